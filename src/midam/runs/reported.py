"""What a page says of how a run came about, from its folder: settings, command, versions, hashes, explanations."""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from midam.errors import MidamError
from midam.plain_files import open_plain
from midam.reading import counts, known_numbers, read_columns, read_json
from midam.report.page.study import Explained
from midam.report.pseudonyms import Pseudonyms
from midam.runs.folder import RunFolder, read_budget
from midam.runs.forms import Explanations
from midam.runs.method import method_title, taken_settings
from midam.settings import Settings
from midam.targets import Target
from midam.train.members import with_objective


def how_made(
    folder: RunFolder,
    settings: Settings,
    data: str,
    summary: Mapping[str, Any],
    *,
    method: str | None,
    target: Target,
    tested_data: str | None,
    key: Pseudonyms | None = None,
) -> dict[str, Any]:
    """Fields of `midam.report.page.study.Study`; `summary` is the summary.json of the run, `key` hides its files."""
    flat = settings.flat() if method is None else taken_settings(settings)
    usual = _defaults(settings, summary, target)
    if key is not None:
        flat = {name: key.setting(name, value) for name, value in flat.items()}
        data = key.of("file", data)
        tested_data = None if tested_data is None else key.of("file", tested_data)
    shown = {name: json.dumps(value) for name, value in flat.items()}
    changed = [(name, shown[name], json.dumps(usual[name])) for name in flat if flat[name] != usual[name]]
    return {
        "data": Path(tested_data or data).name,
        "trained_on": Path(data).name,
        "method": method_title(method, settings),
        "explain_command": f"midam explain RUN {shlex.quote(tested_data or data)}",
        "history": read_history(folder.metrics) if folder.metrics.exists() else [],
        "best_epoch": summary.get("by_weights", {}).get("best", {}).get("epoch"),
        "selected": summary.get("selected", {}),
        "chosen": summary.get("auto"),
        "changed": changed,
        "settings": list(shown.items()),
        "facts": [
            *_facts(folder, settings, data, changed, summary, method=method),
            *([("tested on", tested_data)] if tested_data else []),
        ],
    }


def read_history(path: Path) -> list[dict[str, Any]]:
    """Rows of metrics.csv; None where a field is empty."""
    found = read_columns(path, {"epoch": counts}, others=known_numbers)
    by_row = zip(*(column.tolist() for column in found.values()), strict=True)
    return [{key: None if value != value else value for key, value in zip(found, row)} for row in by_row]  # noqa: PLR0124


def explanations(root: Path, page: Path, *, external: bool) -> Explained | None:
    """Explanations in the run, of bags of its own data or, `external`, of others; later folders win."""
    pictures: dict[str, str] = {}
    index = None
    for file in sorted(root.glob("explain*/explain.json")):
        for entry in read_json(file, Explanations)["bags"]:
            if (entry["split"] is None) == external:
                index = _link(file.parent / "index.html", page)
                pictures[entry["bag"]] = _link(file.parent / entry["files"]["picture"], page)
    return None if index is None else Explained(index, pictures)


def _defaults(settings: Settings, summary: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """What the settings are for the same encoder, instances and target where nobody says anything."""
    shape = summary.get("data", {}).get("instance_shape")
    if shape is None:
        return Settings().flat()
    try:
        return with_objective(Settings(encoder=settings.model.encoder), target).resolve(tuple(shape)).flat()
    except MidamError:  # an encoder of somebody's that is not here
        return with_objective(Settings(), target).resolve(tuple(shape)).flat()


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
            with open_plain(file) as content:
                found.append((f"SHA-256 of {file.name}", hashlib.file_digest(content, "sha256").hexdigest()))
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
