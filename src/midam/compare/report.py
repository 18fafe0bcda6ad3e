"""Write the page about a comparison from the files in its folder, by `midam.report.page`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.compare.summary import basis
from midam.compare.trials import read_record, read_tables
from midam.data.target_labels import TargetLabels
from midam.errors import CheckpointError
from midam.evaluate.classes import class_aurocs, one_against_rest
from midam.files import write_text
from midam.reading import read_text
from midam.report.page.comparison import Method, MethodsStudy, Tested, comparison_page
from midam.report.pseudonyms import Pseudonyms
from midam.report.words import value_text
from midam.settings import Settings
from midam.targets import Target


def write_comparison_report(folder: Path, *, out: Path | None = None, key: Pseudonyms | None = None) -> Path:
    """Write the page about a finished comparison; returns its path, by default report.html in its folder.

    `key` replaces the names of files.

    Raises
    ------
    CheckpointError
        If the folder holds no finished comparison.
    """
    path = out or folder / "report.html"
    for name in ("summary.csv", "predictions.csv", "trials.csv", "config.yaml", "summary.md"):
        if not (folder / name).exists():
            raise CheckpointError(
                f"Expected a finished comparison, got {folder} without {name}; repeat `midam compare` as it was."
            )
    record, target = read_record(folder)
    summary, trials, scores = read_tables(folder, target)
    methods = [_method(row, trials, scores, target) for row in summary.to_dict("records")]
    settings = record["settings"]
    encoder = {} if "." in settings["encoder"] else {"encoder": settings["encoder"]}
    defaults = Settings.from_flat(encoder, source=str(folder / "config.yaml")).flat()
    lines = read_text(folder / "summary.md").splitlines()
    notes = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    if key is not None:
        record["data"], notes = key.of("file", str(record["data"])), key.notes(notes)
        settings = {name: key.setting(name, value) for name, value in settings.items()}
    changed = [
        (name, value_text(value), value_text(defaults[name]))
        for name, value in settings.items()
        if defaults.get(name) not in (value, None, "auto")  # None and auto depend on the shape of the instances
    ]
    study = MethodsStudy(
        data=Path(record["data"]).name,
        methods=methods,
        basis=basis(folds=len(trials[["repeat", "fold"]].drop_duplicates()), metric=target.metric),
        changed=changed,
        settings=[(name, value_text(value)) for name, value in settings.items()],
        facts=[
            ("data", str(record["data"])),
            ("SHA-256 of the data", str(record["fingerprint"])),
            ("SHA-256 of the folds", str(record["folds"])),
            ("learning rates to choose from", ", ".join(map(str, record["lrs"]))),
            ("margins to choose from", ", ".join(map(str, record["margins"]))),
            ("epoch that is tested", str(record["select"])),
            ("versions", f"midam {record['version']}"),
        ],
        notes=notes,
        metric=target.metric,
        by_class=_by_class(methods, scores, target) if target.count > 1 else [],
    )
    write_text(path, comparison_page(study), typed=out is not None)
    return path


def _method(row: dict[Any, Any], trials: pd.DataFrame, scores: pd.DataFrame, target: Target) -> Method:
    name = str(row["method"])
    method_scores, method_trials = scores[scores["method"] == name], trials[trials["method"] == name]
    metrics = {(trial["repeat"], trial["fold"]): trial for trial in method_trials.to_dict("records")}
    tested = []
    for repeat, fold in sorted(set(zip(method_scores["repeat"].tolist(), method_scores["fold"].tolist()))):
        part = method_scores[(method_scores["repeat"] == repeat) & (method_scores["fold"] == fold)]
        values = part[target.score_columns].to_numpy(np.float64)
        arrays = (part["bag"].to_numpy(np.str_), _labels(part, target), values[:, 0] if target.count == 1 else values)
        tested.append(Tested(repeat, fold, *arrays, metric=float(metrics[repeat, fold][target.metric])))
    figures = {key: float(value) for key, value in row.items() if key != "method"}
    return Method(name, figures, tested)


def _labels(part: pd.DataFrame, target: Target) -> NDArray[np.int64]:
    """Return the labels [n] of two classes; zeros for other targets, which have no curves."""
    labels = part["label"].tolist() if target.name == "binary" else [0] * len(part)
    return np.array(labels, dtype=np.int64)


def _values(part: pd.DataFrame, target: Target) -> NDArray[np.float64]:
    """Return the labels [n, L] of the bags."""
    table = {str(name): column.tolist() for name, column in part.items()}
    return TargetLabels.of_columns(target.name, target.names, table).values


def _by_class(methods: Sequence[Method], scores: pd.DataFrame, target: Target) -> list[tuple[str, list[float]]]:
    """Return the AUROC of each class or label by method, averaged over folds in which it is defined."""
    bags = scores.drop_duplicates("bag")
    values = _values(bags, target)
    table = one_against_rest(values[:, 0], target.count) if target.pairs == "classes" else values
    row_of = dict(zip(bags["bag"], table, strict=True))
    columns = []
    for method in methods:
        aurocs = [class_aurocs([row_of[bag] for bag in part.ids.tolist()], part.scores) for part in method.tested]
        areas = np.array(aurocs).reshape(-1, target.count)
        defined = np.isfinite(areas)
        sums, counts = np.where(defined, areas, 0.0).sum(axis=0), defined.sum(axis=0)
        columns.append(np.divide(sums, counts, out=np.full(target.count, np.nan), where=counts > 0).tolist())
    return [(name, list(row)) for name, row in zip(target.columns, zip(*columns, strict=True), strict=True)]
