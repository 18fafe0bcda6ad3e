"""What explain.json says: of which run, with which options, which bags are done; so that the same call can go on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from midam.data.bags import Bags, bag_digests
from midam.errors import RunExistsError
from midam.runs.apply import LoadedRun
from midam.runs.folder import free_folder, write_json

SUMMARY = "explain.json"
_FOLDER = "explain"


def call_of(run: LoadedRun, bags: Bags, index: Sequence[int], options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two calls the same: the model with its calibration, the options, and the ids of the bags.

    The content of a bag belongs to it as well, and is compared bag by bag: `entries_of`.
    """
    return {"run": run.digest(), "options": dict(options), "wanted": [str(bags.ids[i]) for i in index]}


def free_or_unfinished(root: Path, call: Mapping[str, Any]) -> Path:
    """The folder of a run where this call was stopped, else a new one."""
    for folder in sorted(root.glob(f"{_FOLDER}*")):
        found = _read(folder)
        if not found.get("finished", True) and _same(found, call):
            return folder
    return free_folder(root, _FOLDER).root


def entries_of(
    folder: Path, call: Mapping[str, Any], bags: Bags, index: Sequence[int], files: Sequence[Path]
) -> dict[str, Any]:
    """Entries of the bags that this call has explained before it was stopped, by id; none in a new folder.

    Parameters
    ----------
    folder : Path
        Of the explanations.
    call : mapping
        See `call_of`.
    bags : Bags
        Hold the bags.
    index : sequence of int
        Positions of the bags.
    files : sequence of Path
        All that the call can write.

    Raises
    ------
    RunExistsError
        If one of the files is there and they are not those of the same call, or the call was finished.
    """
    found = _read(folder)
    if found.get("finished", True) or not _same(found, call):
        taken = [path for path in files if path.exists()]
        if taken:
            raise RunExistsError(
                f"Expected a folder without explanations of these bags, got {len(taken)} files of them (in {folder}, "
                f"first {taken[0].name}); choose another --out, or remove them."
            )
        return {}
    done = {entry["bag"]: entry for entry in found["bags"]}
    for i in index:
        entry = done.get(str(bags.ids[i]))
        if entry is not None and entry["content"] != content_of(bags, i):
            raise RunExistsError(
                f"Expected the instances that were explained before, got others (in {bags.source}, bag "
                f"{entry['bag']}); choose another --out than {folder}."
            )
    return done


def write_entries(folder: Path, call: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> None:
    """Write explain.json; it is finished where there is an entry for each bag of the call."""
    finished = len(entries) == len(call["wanted"])
    write_json(folder / SUMMARY, {**call, "finished": finished, "bags": list(entries)})


def content_of(bags: Bags, index: int) -> str:
    """Digest of a bag's instances."""
    return bag_digests(bags.subset([index]))[0]


def _read(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # no explanations, or the file is not ours: then what is there is not written over
    return found if isinstance(found, dict) else {}


def _same(found: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    return all(found.get(name) == value for name, value in call.items())
