"""The page about a run, or about its evaluation on other data: gathered from disk for `midam.report.html`."""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import CheckpointError, MidamError
from midam.evaluate.subgroups import make_levels
from midam.files import write_text
from midam.report.beside import advice, caution
from midam.report.html.page import study_page
from midam.report.html.study import BY_GROUP, BY_SIZE, Baseline, Explained, ScoredBags, Study
from midam.runs.apply import Evaluation
from midam.runs.beside import read_scores
from midam.runs.folder import RunFolder, read_budget, read_json, read_run_config
from midam.runs.judge import NO_DECISION
from midam.runs.method import method_title, taken_settings
from midam.runs.subgroup_table import SubgroupTable
from midam.settings import Settings

_MOST_GROUPS = 12  # that are still subgroups


def write_run_report(
    root: Path, *, out: Path | None = None, table: SubgroupTable | None = None, trust: bool = False
) -> Path:
    """Write the page about a finished run; returns its path, by default report.html in the run.

    Parameters
    ----------
    root, out : Path
        Folder of the run; HTML file to write, replaced in one step.
    table : SubgroupTable, optional
        Columns of the test bags, for subgroups.
    trust : bool, default False
        As in `midam.load_run`.

    Raises
    ------
    CheckpointError
        If there is no finished run.
    BagDataError
        If the table does not know the bags.
    """
    folder, path = RunFolder(root), out or root / "report.html"
    settings, data, method = read_run_config(folder, trust=trust)
    if not folder.summary.exists() or not folder.predictions.exists():
        raise CheckpointError(
            f"Expected a finished run, got {root} without {folder.summary.name}; finish it with "
            f"`midam fit --resume {shlex.quote(str(root))}`."
        )
    summary = read_json(folder.summary)
    if "target" in summary:
        return path
    parts = _recorded(folder)
    part = next(name for name in ("test", "val", "train") if name in summary)
    how = {"part": part, "tested": parts[part], "summary": summary[part], "parts": parts, "method": method}
    left_out = summary["data"].get("notes", [])
    study = _study(folder, settings, data, summary, **how, table=table, external=False, left_out=left_out, path=path)
    write_text(path, study_page(study))
    return path


def write_evaluation_report(
    root: Path,
    bags: Bags,
    found: Evaluation,
    *,
    data: str,
    out: Path | None = None,
    table: SubgroupTable | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write the page about an evaluation; returns its path, by default report-DATA.html in the run.

    Parameters
    ----------
    root, out, table
        As of `write_run_report`.
    bags, found : Bags, Evaluation
        What was evaluated, and the result of `midam.runs.apply.evaluate_bags`.
    data : str
        Name or path of the data.
    notes : sequence of str
        What reading the data warned of, see `midam.runs.data.noting`.
    """
    folder, path = RunFolder(root), out or evaluation_path(root, data)
    if "target" in found.result:
        return path
    settings, own, method = read_run_config(folder)
    summary = read_json(folder.summary) if folder.summary.exists() else {}
    part, own_parts = str(found.result["headline"]), _recorded(folder)
    inside = found.parts == part
    take = partial(_take, inside)
    tested = ScoredBags(
        ids=bags.ids[inside],
        labels=bags.require_labels()[inside],
        scores=found.scores[inside],
        probabilities=take(found.probabilities),
        groups=take(bags.groups),
        sizes=bags.sizes[inside],
    )
    parts = {**own_parts, "new": tested} if part == "new" else own_parts or {part: tested}
    how: dict[str, Any] = {"part": part, "tested": tested, "summary": found.result[part], "parts": parts}
    how |= {"left_out": notes, "cautions": found.notes, "method": method}
    study = _study(
        folder, settings, own, summary, **how, table=table, external=part == "new", path=path, tested_data=data
    )
    write_text(path, study_page(study))
    return path


def evaluation_path(root: Path, data: str) -> Path:
    """Where the page about an evaluation goes: report-DATA.html in the run."""
    return root / f"report-{Path(data).stem}.html"


def _take(inside: NDArray[np.bool_], values: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if values is None else values[inside]


def _study(
    folder: RunFolder,
    settings: Settings,
    data: str,
    about: Mapping[str, Any],
    *,
    tested: ScoredBags,
    parts: Mapping[str, ScoredBags],
    table: SubgroupTable | None,
    external: bool,
    path: Path,
    summary: Mapping[str, Any],
    method: str | None,
    cautions: Sequence[str] = (),
    tested_data: str | None = None,
    **how: Any,
) -> Study:
    """What the pages of a run and of an evaluation share; `about` is the summary.json of the run."""
    # What else `summary` warns of, the page itself says.
    decision = [note.removesuffix(".") for note in summary.get("warnings", []) if note == NO_DECISION]
    decision += [about["deployed"]["note"].removesuffix(".")] if "deployed" in about else []
    flat = settings.flat() if method is None else taken_settings(settings)
    usual = _defaults(settings, about)
    shown = {name: json.dumps(value) for name, value in flat.items()}
    changed = [(name, shown[name], json.dumps(usual[name])) for name in flat if flat[name] != usual[name]]
    history = pd.read_csv(folder.metrics).replace({np.nan: None}).to_dict("records") if folder.metrics.exists() else []
    return Study(
        data=Path(tested_data or data).name,
        trained_on=Path(data).name,
        method=method_title(method, settings),
        external=external,
        tested=tested,
        summary=summary,
        cautions=[*decision, *cautions],
        validation=parts.get("val"),
        parts=parts,
        columns=_columns(tested, table),
        classes=about.get("data", {}).get("classes"),
        baseline=None if external else _baseline(folder, about, tested, str(how["part"]), parts),
        covariates=None if external else about.get("covariates"),
        explained=_explained(folder.root, path, external=external),
        explain_command=f"midam explain RUN {shlex.quote(tested_data or data)}",
        history=[{str(key): value for key, value in row.items()} for row in history],
        best_epoch=about.get("by_weights", {}).get("best", {}).get("epoch"),
        selected=about.get("selected", {}),
        chosen=about.get("auto"),
        changed=changed,
        settings=list(shown.items()),
        facts=[
            *_facts(folder, settings, data, changed, about, method=method),
            *([("tested on", tested_data)] if tested_data else []),
        ],
        **how,
    )


def _recorded(folder: RunFolder) -> dict[str, ScoredBags]:
    """Scored bags of each part of the run's own data, in the order of the flow; none where the run did not finish."""
    if not folder.predictions.exists():
        return {}
    frame = pd.read_csv(
        folder.predictions, dtype={"bag": str, "group": str}, keep_default_na=False, na_values={"probability": [""]}
    )
    found = {}
    for name in ("train", "val", "test"):
        rows = frame[frame["split"] == name]
        if not len(rows):
            continue
        found[name] = ScoredBags(
            ids=rows["bag"].to_numpy(dtype=np.str_),
            labels=rows["label"].to_numpy(dtype=np.int64),
            scores=rows["score"].to_numpy(dtype=np.float64),
            probabilities=None if rows["probability"].isna().any() else rows["probability"].to_numpy(dtype=np.float64),
            groups=rows["group"].to_numpy(dtype=np.str_) if "group" in rows else None,
            sizes=rows["instances"].to_numpy(dtype=np.int64) if "instances" in rows else None,
        )
    return found


def _defaults(settings: Settings, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the settings are for the same encoder and instances where nobody says anything."""
    shape = summary.get("data", {}).get("instance_shape")
    if shape is None:
        return Settings().flat()
    try:
        return Settings(encoder=settings.model.encoder).resolve(tuple(shape)).flat()
    except MidamError:  # an encoder of somebody's that is not here
        return Settings().resolve(tuple(shape)).flat()


def _columns(tested: ScoredBags, table: SubgroupTable | None) -> dict[str, NDArray[np.str_]]:
    """Levels of the tested bags: of the table that was named, of few groups, of the bag size where it varies."""
    found = {} if table is None else table.levels(tested.ids, tested.groups)
    if tested.groups is not None and 2 <= len(np.unique(tested.groups)) <= _MOST_GROUPS:
        found[BY_GROUP] = tested.groups
    if tested.sizes is not None and len(np.unique(tested.sizes)) > 1:
        found[BY_SIZE] = make_levels(tested.sizes.tolist())
    return found


def _baseline(
    folder: RunFolder, about: Mapping[str, Any], tested: ScoredBags, part: str, parts: Mapping[str, ScoredBags]
) -> Baseline | None:
    """The baseline of the run, if its comparison is one on the bags of this page."""
    if "baseline" not in about:
        return None
    found = about["baseline"]
    if found is None:
        return Baseline(note=about.get("baseline_note"))
    own = found["part"]
    bags = tested if own == part else parts.get(own)
    scores = None if bags is None else read_scores(folder, bags.ids, bags.labels)
    if bags is None or scores is None:
        return None
    told = {"caution": caution(found, about["selected"]), "advice": advice(found, about["data"]["name"])}
    return Baseline(found, model=about[own], scores=scores if own == part else None, **told)


def _explained(root: Path, page: Path, *, external: bool) -> Explained | None:
    """Explanations in the run, of bags of its own data or, `external`, of others; later folders win."""
    pictures: dict[str, str] = {}
    index = None
    for file in sorted(root.glob("explain*/explain.json")):
        for entry in read_json(file)["bags"]:
            if (entry["split"] is None) == external:
                index = _link(file.parent / "index.html", page)
                pictures[entry["bag"]] = _link(file.parent / entry["files"]["picture"], page)
    return None if index is None else Explained(index, pictures)


def _link(file: Path, page: Path) -> str:
    """Address of a file as the page links to it."""
    try:
        return quote(Path(os.path.relpath(file, page.parent)).as_posix())
    except ValueError:  # another drive of Windows
        return file.resolve().as_uri()


def _facts(
    folder: RunFolder,
    settings: Settings,
    data: str,
    changed: list[tuple[str, str, str]],
    summary: Mapping[str, Any],
    *,
    method: str | None,
) -> list[tuple[str, str]]:
    """Command, seed, hashes and versions."""
    named, budget = "" if method is None else f" --method {shlex.quote(method)}", read_budget(folder)
    named += "" if budget is None else f" --budget {budget:g}s"
    found = [("command", f"midam fit {shlex.quote(data)}{named}{''.join(map(_flag, changed))}")]
    known = summary.get("data", {})
    found.append(("seed", str(settings.run.seed)))
    found.append(("data", data))
    if "fingerprint" in known:
        found.append(("SHA-256 of the data", known["fingerprint"]))
    for file in (folder.model, folder.predictions):
        if file.exists():
            found.append((f"SHA-256 of {file.name}", hashlib.sha256(file.read_bytes()).hexdigest()))
    if "members" in summary:
        found.append(("scorers averaged", str(summary["members"])))
    versions = {"midam": summary.get("version", "unknown"), **summary.get("environment", {})}
    return [*found, ("versions", ", ".join(f"{name} {value}" for name, value in versions.items()))]


def _flag(changed: tuple[str, str, str]) -> str:
    name, text, _ = changed
    value = json.loads(text)
    flag = f" --{name.replace('_', '-')}"
    if value is True:
        return flag
    return f"{flag} {shlex.quote(value if isinstance(value, str) else text)}"
