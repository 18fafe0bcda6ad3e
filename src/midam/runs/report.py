"""Write the page about a run, or about its evaluation on other data, from its files by `midam.report.page`."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from midam.runs.folder import OUT_OF_FOLD, SPLITS, RunConfig, RunFolder, read_run_config
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
    summary = result.entries()
    target = described_target(summary)
    parts = recorded_parts(folder, result, target)
    part = next(name for name in SPLITS if name in summary)
    run = _Run(folder, config, result, summary, target)
    notes, thresholds = summary["data"].get("notes", []), summary.get("thresholds")
    tested = {"part": part, "tested": parts[part], "summary": summary[part], "parts": parts, "left_out": notes}
    tested |= {"instances": instances_of(summary.get("instances") or {}, part)}
    write_text(path, run.page(table=table, key=key, thresholds=thresholds, **tested), typed=out is not None)
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
    target = described_target(evaluation.result)
    part, own_parts = str(evaluation.result["headline"]), recorded_parts(folder, result, target)
    tested = evaluated_bags(bags, evaluation, evaluation.parts == part, target)
    parts = {**own_parts, "new": tested} if part == "new" else own_parts or {part: tested}
    run = _Run(folder, config, result, {} if result is None else result.entries(), target)
    thresholds = thresholds_of(evaluation.decision).get("thresholds")
    new = {"part": part, "tested": tested, "summary": evaluation.result[part], "parts": parts, "left_out": notes}
    new |= {"data": data, "cautions": evaluation.notes, "thresholds": thresholds}
    new |= {"instances": instances_of(evaluation.result.get("instances", {}), part)}
    write_text(path, run.page(table=table, key=key, **new), typed=out is not None)
    return path


def evaluation_path(root: Path, data: str) -> Path:
    """Path of the page about an evaluation: report-DATA.html in the run."""
    return root / f"report-{Path(data).stem}.html"


@dataclass(frozen=True)
class _Run:
    """A run on disk: its folder, settings, result with its entries, and target."""

    folder: RunFolder
    config: RunConfig
    result: Result | None
    summary: Mapping[str, Any]
    target: Target

    def page(
        self,
        *,
        table: SubgroupTable | None,
        key: Pseudonyms | None,
        thresholds: Mapping[str, Any] | None,
        data: str | None = None,
        cautions: Sequence[str] = (),
        **tested: Any,
    ) -> str:
        """Return the HTML page of the run or of its evaluation; `tested` holds fields of the page's `Study`."""
        about = self.summary
        sites = None if tested["part"] == "new" else about.get("sites")
        study = Study(
            **self._how_made(data, key),
            **tested,
            target=self.target,
            about=about,
            thresholds=None if thresholds is None else Thresholds.model_validate(thresholds),
            cautions=cautions,
            columns=_columns(tested["tested"], table, sites),
            baseline=self._baseline(tested["part"], tested["tested"]),
        )
        return report_page(study if key is None else key.hide(study))

    def _baseline(self, part: str, tested: ScoredBags) -> NDArray[np.float64] | None:
        """Return the baseline's scores of the tested bags for their ROC curve; None for other targets or other bags."""
        entry = self.summary.get("baseline")
        if self.result is None or entry is None or entry["part"] != part or self.target.name != "binary":
            return None
        table, ids = self.result.table(self.folder.baseline).set_index("bag"), tested.ids.tolist()
        if sorted(table.index) != sorted(ids):
            return None
        table = table.loc[ids]
        alike = (table["label"].to_numpy(np.float64) == tested.values).all()
        return table["score"].to_numpy(np.float64) if alike else None

    def _how_made(self, tested_data: str | None, key: Pseudonyms | None) -> dict[str, Any]:
        """Return the fields of `midam.report.page.study.Study` about the run; `key` replaces names of files."""
        (settings, data, method), summary = self.config, self.summary
        flat = settings.flat() if method is None else taken_settings(settings)
        defaults = _defaults(settings, summary, self.target)
        if key is not None:
            flat = {name: key.setting(name, value) for name, value in flat.items()}
            data = key.of("file", data)
            tested_data = None if tested_data is None else key.of("file", tested_data)
        changed = {name: value for name, value in flat.items() if value != defaults[name]}
        return {
            "data": Path(tested_data or data).name,
            "trained_on": Path(data).name,
            "method": method_title(method, settings),
            "explain_command": f"midam explain RUN {shlex.quote(tested_data or data)}",
            "history": _history(self.result, self.folder),
            "changed": [(name, value_text(value), value_text(defaults[name])) for name, value in changed.items()],
            "settings": [(name, value_text(value)) for name, value in flat.items()],
            "facts": [*self._facts(data, changed), *([("tested on", tested_data)] if tested_data else [])],
        }

    def _facts(self, data: str, changed: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return command, seed, hashes and versions."""
        (settings, _, method), folder, summary = self.config, self.folder, self.summary
        options = [] if method is None else ["--method", method]
        words = [word for name, value in changed.items() for word in flag_words(name, value)]
        command, origin = shlex.join(["midam", "fit", data, *options, *words]), summary.get("data", {})
        facts = [("command", command), ("seed", str(settings.run.seed)), ("data", data)]
        if "fingerprint" in origin:
            facts.append(("SHA-256 of the data", origin["fingerprint"]))
        if "groups_from" in origin:
            facts.append(("groups from", origin["groups_from"]))
        for file in (folder.model, folder.predictions):
            if file.exists():
                with open_plain(file) as content:
                    facts.append((f"SHA-256 of {file.name}", hashlib.file_digest(content, "sha256").hexdigest()))
        if "members" in summary:
            facts.append(("scorers averaged", str(summary["members"])))
        if names := origin.get("features"):
            facts.append((f"the {len(names)} features", ", ".join(names)))
        versions = {"midam": summary.get("version", "unknown"), **summary.get("environment", {})}
        return [*facts, ("versions", ", ".join(f"{name} {value}" for name, value in versions.items()))]


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


def recorded_parts(folder: RunFolder, result: Result | None, target: Target) -> dict[str, ScoredBags]:
    """Return the scored bags of each part of the run's data; empty if the run did not finish."""
    if result is None:
        return {}
    names = [f"{kind}_{name}" for kind in ("label", "score", "probability") for name in target.columns]
    table = result.table(folder.predictions, names)
    parts = {name: table[table["split"] == name] for name in _PARTS}
    return {name: _scored(part, target) for name, part in parts.items() if len(part)}


def evaluated_bags(bags: Bags, evaluation: Evaluation, inside: NDArray[np.bool_], target: Target) -> ScoredBags:
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
