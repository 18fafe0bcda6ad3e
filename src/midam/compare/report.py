"""Write the page about a comparison from the files in its folder, by `midam.report.page`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from midam.compare.summary import Comparison
from midam.compare.trials import read_record, read_tables
from midam.data.target_labels import TargetLabels
from midam.errors import CheckpointError
from midam.evaluate.classes import class_aurocs, one_against_rest
from midam.files import write_text
from midam.reading import read_text
from midam.report.page.comparison import MethodsStudy, comparison_page
from midam.report.pseudonyms import Pseudonyms
from midam.report.words import value_text
from midam.settings import DataSettings, Settings
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
    record, target = read_record(folder)
    if not record.get("files"):
        raise CheckpointError(f"Expected a finished comparison, got {folder}; repeat `midam compare` as it was.")
    summary, trials, scores = read_tables(folder, record, target)
    methods: list[Any] = summary.to_dict("records")
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
        # None and auto of others than of the data depend on the shape of the instances.
        if defaults.get(name) not in ((value,) if name in DataSettings.model_fields else (value, None, "auto"))
    ]
    study = MethodsStudy(
        data=Path(record["data"]).name,
        methods=methods,
        scores=scores,
        basis=Comparison(trials, summary, metric=target.metric).basis,
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
        by_class=_by_class([row["method"] for row in methods], scores, target) if target.count > 1 else [],
    )
    write_text(path, comparison_page(study), typed=out is not None)
    return path


def _by_class(methods: Sequence[str], scores: pd.DataFrame, target: Target) -> list[list[Any]]:
    """Return each class or label with its AUROC by method, averaged over folds in which it is defined."""
    labels = {str(name): column.tolist() for name, column in scores.items()}
    values = TargetLabels.of_columns(target.name, target.names, labels).values
    table = one_against_rest(values[:, 0], target.count) if target.pairs == "classes" else values
    columns, of_columns = [list(target.columns)], scores[target.score_columns].to_numpy(np.float64)
    for method in methods:
        folds = scores[scores["method"] == method].groupby(["repeat", "fold"]).indices
        rows = scores.index[scores["method"] == method].to_numpy()
        areas = [class_aurocs(table[rows[part]], of_columns[rows[part]]) for part in folds.values()]
        columns.append(pd.DataFrame(areas, columns=range(target.count)).mean().tolist())
    return [list(row) for row in zip(*columns, strict=True)]
