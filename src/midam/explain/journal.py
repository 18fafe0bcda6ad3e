"""Which call explains which bags and how far it came, so that the same call can go on; and explain.json, its result."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from midam.data.bags import Bags, bag_digests
from midam.errors import ConfigError, RunExistsError
from midam.files import write_json
from midam.runs.apply import LoadedRun
from midam.runs.folder import free_folder
from midam.runs.journal import CallJournal

SUMMARY = "explain.json"
_PART = f"{SUMMARY}.part"
_FOLDER = "explain"


def call_of(run: LoadedRun, bags: Bags, index: Sequence[int], options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two calls the same: the model with its calibration, the options, and the ids of the bags.

    The content of a bag belongs to it as well, and is compared bag by bag: `open_journal`.
    """
    return {"run": run.digest(), "options": dict(options), "wanted": [str(bags.ids[i]) for i in index]}


def free_or_unfinished(root: Path, call: Mapping[str, Any]) -> Path:
    """The folder of a run where this call was stopped, else a new one."""
    for part in sorted(root.glob(f"{_FOLDER}*/{_PART}")):
        first = part.read_text(encoding="utf-8").partition("\n")[0]
        if first == json.dumps(call):
            return part.parent
    return free_folder(root, _FOLDER).root


def open_journal(
    folder: Path, call: Mapping[str, Any], bags: Bags, index: Sequence[int], files: Sequence[Path]
) -> CallJournal:
    """Journal of the entries that this call has finished in a folder: none in a new one.

    `call` is that of `call_of`, of the bags at the positions `index`; `files` are all that it can write. A
    `RunExistsError` if one of them is there and the same call was not stopped before, or was with other instances; a
    `ConfigError` if another process explains bags in this folder.
    """
    taken = [path for path in (*files, folder / _PART) if path.exists()]
    other = RunExistsError(
        f"Expected a folder without explanations of these bags, got {len(taken)} files of them (in {folder}, first "
        f"{taken[0].name if taken else _PART}); choose another folder, or remove them."
    )
    if taken and not (folder / _PART).exists():
        raise other
    busy = f"Expected no other call that explains bags in {folder}, got one that is running; choose another folder."
    journal = CallJournal(folder / _PART, dict(call), busy=ConfigError(busy), other=other)
    done = {entry["bag"]: entry["content"] for entry in journal.rows}
    changed = [bag for i in index if (bag := str(bags.ids[i])) in done and done[bag] != content_of(bags, i)]
    if changed:
        journal.close()
        raise RunExistsError(
            f"Expected the instances that were explained before, got others (in {bags.source}, bag {changed[0]}); "
            f"choose another folder than {folder}."
        )
    return journal


def write_summary(folder: Path, call: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]) -> None:
    """Write explain.json; it is finished where there is an entry for each bag of the call."""
    bags = list(entries)
    write_json(folder / SUMMARY, {**call, "finished": len(bags) == len(call["wanted"]), "bags": bags})


def content_of(bags: Bags, index: int) -> str:
    """Digest of a bag's instances."""
    return bag_digests(bags.subset([index]))[0]
