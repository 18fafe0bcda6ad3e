"""Write the page about a run, or about its evaluation on other data, from its files by `midam.report.page`."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import CheckpointError, MidamError
from midam.evaluate.calibrate import Thresholds
from midam.evaluate.subgroups import make_levels
from midam.files import open_plain, write_text
from midam.lazy_imports import pandas as pd
from midam.methods.names import method_title, taken_settings
from midam.report.page.run_page import report_page
from midam.report.page.study import BY_GROUP, BY_SIZE, ScoredBags, Study
from midam.report.pseudonyms import Pseudonyms
from midam.report.words import flag_words, instances_of, value_text
from midam.runs.apply import Evaluation
from midam.runs.data import SubgroupTable
from midam.runs.folder import OUT_OF_FOLD, RunConfig, RunFolder, read_run_config
from midam.runs.result import Result, described_target
from midam.runs.results import thresholds_of
from midam.settings import Settings
from midam.targets import Target
from midam.train.members import with_objective

_MOST_GROUPS = 12  # more groups are not shown as subgroups
_PARTS = ("train", "val", "test", OUT_OF_FOLD)  # in the order of the flow


def write_run_report(
    root: Path, *, out: Path | None = None, table: SubgroupTable | None = None, key: Pseudonyms | None = None
) -> Path:
    """Write the page about a finished run; returns its path, by default report.html in the run.

    Parameters
    ----------
    root, out : Path
        Folder of the run; HTML file to write, replaced in one step.
    table : SubgroupTable, optional
        Columns of the test bags, for subgroups.
    key : Pseudonyms, optional
        Replaces the names of bags, groups, levels and files; its `write` writes the key to the pseudonyms.

    Raises
    ------
    CheckpointError
        If there is no finished run.
    BagDataError
        If the table does not name the bags.
    """
    folder, path = RunFolder(root), out or root / "report.html"
    config = read_run_config(folder)
    if not folder.summary.exists():
        quoted = shlex.quote(str(root))
        way = f"test it on labeled bags with `midam report {quoted} DATA`"
        way = way if folder.is_saved_model() else f"finish it with `midam fit --resume {quoted}`"
        raise CheckpointError(f"Expected a finished run, got {root} without {folder.summary.name}; {way}.")
    result = Result.read(folder)
    target, part = described_target(result.entries()), next(iter(result.parts))
    parts = recorded_parts(folder, result, target)
    tested: dict[str, Any] = {"part": part, "tested": parts[part], "parts": parts, "summary": result.parts[part]}
    tested |= {"instances": instances_of(result.instances or {}, part), "thresholds": result.thresholds}
    tested |= {"left_out": result.data.get("notes", [])}
    study = _study(folder, config, result, target, table=table, key=key, **tested)
    write_text(path, report_page(study), typed=out is not None)
    return path


def write_evaluation_report(
    root: Path,
    bags: Bags,
    evaluation: Evaluation,
    *,
    data: str,
    out: Path | None = None,
    table: SubgroupTable | None = None,
    notes: Sequence[str] = (),
    key: Pseudonyms | None = None,
) -> Path:
    """Write the page about an evaluation; returns its path, by default report-DATA.html in the run.

    Parameters
    ----------
    root, out, table, key
        As in `write_run_report`.
    bags, evaluation : Bags, Evaluation
        The evaluated bags, and the result of `midam.runs.apply.evaluate_bags`.
    data : str
        Name or path of the data.
    notes : sequence of str
        Warnings from reading the data, see `midam.runs.data.noting`.
    """
    folder, path = RunFolder(root), out or evaluation_path(root, data)
    config = read_run_config(folder)
    result = Result.read(folder) if folder.summary.exists() else None
    part, target = str(evaluation.result["headline"]), described_target(evaluation.result)
    bags_of_run = {} if result is None else recorded_parts(folder, result, target)
    tested = _evaluated(bags, evaluation, evaluation.parts == part, target)
    new: dict[str, Any] = {"part": part, "tested": tested, "summary": evaluation.result[part], "left_out": notes}
    new |= {"parts": {**bags_of_run, "new": tested} if part == "new" else bags_of_run or {part: tested}}
    new |= {"instances": instances_of(evaluation.result.get("instances", {}), part), "cautions": evaluation.notes}
    new |= thresholds_of(evaluation.decision)
    study = _study(folder, config, result, target, table=table, key=key, tested_data=data, **new)
    write_text(path, report_page(study), typed=out is not None)
    return path


def evaluation_path(root: Path, data: str) -> Path:
    """Path of the page about an evaluation: report-DATA.html in the run."""
    return root / f"report-{Path(data).stem}.html"


def _study(
    folder: RunFolder,
    config: RunConfig,
    result: Result | None,
    target: Target,
    *,
    table: SubgroupTable | None,
    key: Pseudonyms | None,
    part: str,
    tested: ScoredBags,
    tested_data: str | None = None,
    thresholds: Mapping[str, Any] | None = None,
    **more: Any,
) -> Study:
    """Return the content of a page from the files of a run; `more` are fields of `Study` about the tested bags."""
    (settings, data, method), about = config, {} if result is None else result.entries()
    flat = settings.flat() if method is None else taken_settings(settings)
    defaults = _defaults(settings, about, target)
    if key is not None:
        flat = {name: key.setting(name, value) for name, value in flat.items()}
        data, tested_data = key.of("file", data), tested_data and key.of("file", tested_data)
    changed = {name: value for name, value in flat.items() if value != defaults[name]}
    facts = _facts(folder, config, about, data, changed)
    study = Study(
        data=Path(tested_data or data).name,
        trained_on=Path(data).name,
        method=method_title(method, settings),
        explain_command=f"midam explain RUN {shlex.quote(tested_data or data)}",
        history=_history(result, folder),
        changed=[(name, value_text(value), value_text(defaults[name])) for name, value in changed.items()],
        settings=[(name, value_text(value)) for name, value in flat.items()],
        facts=[*facts, *([("tested on", tested_data)] if tested_data else [])],
        target=target,
        about=about,
        part=part,
        tested=tested,
        thresholds=None if thresholds is None else Thresholds.model_validate(thresholds),
        columns=_columns(tested, table, None if part == "new" else about.get("sites")),
        **more,
    )
    return study if key is None else key.hide(study)


def _facts(
    folder: RunFolder, config: RunConfig, about: Mapping[str, Any], data: str, changed: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return command, seed, hashes and versions."""
    options = [] if config.method is None else ["--method", config.method]
    words = [word for name, value in changed.items() for word in flag_words(name, value)]
    origin = about.get("data", {})
    names, versions = origin.get("features", []), {"midam": about.get("version", "unknown")}
    facts = {
        "command": shlex.join(["midam", "fit", data, *options, *words]),
        "seed": config.settings.run.seed,
        "data": data,
        "SHA-256 of the data": origin.get("fingerprint"),
        "groups from": origin.get("groups_from"),
        **{f"SHA-256 of {path.name}": _digest(path) for path in (folder.model, folder.predictions) if path.exists()},
        "scorers averaged": about.get("members"),
        f"the {len(names)} features": ", ".join(names) or None,
        "versions": ", ".join(
            f"{name} {value}" for name, value in {**versions, **about.get("environment", {})}.items()
        ),
    }
    return [(name, str(value)) for name, value in facts.items() if value is not None]


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file of any size."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _columns(
    tested: ScoredBags, table: SubgroupTable | None, sites: Mapping[str, Any] | None
) -> dict[str, NDArray[np.str_]]:
    """Return levels of the tested bags.

    They come from the table if given, from the sites that are folds, from the groups if they are few, and from the
    sizes if they vary.
    """
    levels = {} if table is None else table.levels(tested.ids, tested.groups)
    if sites is not None and tested.folds is not None:
        levels[sites["column"]] = tested.folds
    if tested.groups is not None and 2 <= len(np.unique(tested.groups)) <= _MOST_GROUPS:
        levels.setdefault(BY_GROUP, tested.groups)
    if tested.sizes is not None and len(np.unique(tested.sizes)) > 1:
        levels.setdefault(BY_SIZE, make_levels(tested.sizes.tolist()))
    return levels


def _history(result: Result | None, folder: RunFolder) -> list[dict[str, Any]]:
    """Return the rows of metrics.csv, with None for an empty field; none for a method without epochs."""
    if result is None or not folder.metrics.exists():
        return []
    rows = result.table(folder.metrics).to_dict("records")
    numbers = [{str(name): float(text) if text else None for name, text in row.items()} for row in rows]
    return [{**row, "epoch": int(row["epoch"] or 0)} for row in numbers]


def _defaults(settings: Settings, summary: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the default settings for the same encoder, instances and target."""
    shape = summary.get("data", {}).get("instance_shape")
    if shape is None:
        return Settings().flat()
    try:
        return with_objective(Settings(encoder=settings.model.encoder), target).resolve(tuple(shape)).flat()
    except MidamError:  # an encoder that is not installed here
        return with_objective(Settings(), target).resolve(tuple(shape)).flat()


def recorded_parts(folder: RunFolder, result: Result, target: Target) -> dict[str, ScoredBags]:
    """Return the scored bags of each part of the run's data."""
    names = [f"{kind}_{name}" for kind in ("label", "score", "probability") for name in target.columns]
    table = result.table(folder.predictions, names)
    parts = {name: table[table["split"] == name] for name in _PARTS}
    return {name: _scored(part, target) for name, part in parts.items() if len(part)}


def _evaluated(bags: Bags, evaluation: Evaluation, inside: NDArray[np.bool_], target: Target) -> ScoredBags:
    """Return the evaluated bags that the mask `inside` [N] selects."""
    scores = evaluation.scores[inside]
    predicted = target.read_predictions(target.predictions(scores, evaluation.decision))
    groups, values = None if bags.groups is None else bags.groups[inside], target.values(bags)[inside]
    return ScoredBags(bags.ids[inside], values, scores, predicted, groups=groups, sizes=bags.sizes[inside])


def _scored(table: "pd.DataFrame", target: Target) -> ScoredBags:
    columns = {str(name): column.tolist() for name, column in table.items()}
    scores = table[list(target.score_columns)].to_numpy(np.float64)
    known = {name: np.array(columns[name]) if name in columns else None for name in ("group", "fold")}
    return ScoredBags(
        np.array(columns["bag"]),
        target.read_labels(columns),
        scores[:, 0] if target.count == 1 else scores,
        target.read_predictions(columns),
        groups=known["group"],
        sizes=table["instances"].to_numpy(np.int64),
        folds=known["fold"],
    )
