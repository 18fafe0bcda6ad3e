"""Checkpoints: one file that holds everything, written atomically, read without running code."""

import io
import os
import pickle
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from midam.errors import CheckpointError

FORMAT = 2


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint: a reader sees the old file or the new one, never half of it.

    Parameters
    ----------
    path : Path
        Target.
    content : dict
        Tensors, numbers, strings, lists and dictionaries only, so that it loads with ``weights_only=True``.
    """
    # torch hides the reason of a failed write, such as a full disk, behind an error of its own.
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **content}, buffer)
    write_bytes(path, buffer.getbuffer())


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it.

    Raises
    ------
    OSError
        If the file cannot be written; its `filename` is `path`, and the old file is left as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        # Where nothing could be made there is nothing to remove, and the first error is the one to tell.
        with suppress(OSError):
            temporary.unlink()


def load_checkpoint(path: Path, *, required: Sequence[str] = ()) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Parameters
    ----------
    path : Path
        The file.
    required : sequence of str
        Entries that it must hold.

    Raises
    ------
    CheckpointError
        If there is none, or it is damaged, foreign, or of a newer format.

    Notes
    -----
    A file of format 1 comes back in the form of format 2.
    """
    try:
        _check_sums(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"Expected a checkpoint, got nothing at {path}; check the run folder.") from None
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"Expected a checkpoint, got a damaged file (in {path}): {reason}; restore a copy, or start a new run."
        ) from None
    if not isinstance(content, dict) or any(key not in content for key in ("format", *required)):
        raise CheckpointError(f"Expected a checkpoint of midam, got something else (in {path}); check the path.")
    if content["format"] > FORMAT:
        raise CheckpointError(
            f"Expected checkpoint format {FORMAT} or older, got {content['format']} (in {path}); install a newer midam."
        )
    if content["format"] == 1:
        _from_format_1(content)
    return content


def _from_format_1(content: dict[str, Any]) -> None:
    """Make the one scorer of a file written before there were members the only member, linearly scaled."""
    content["format"] = FORMAT
    if "config" in content:
        content["config"] |= {"members": 1, "scaling": "linear"}
    trainer = content.get("trainer", {})
    for holder in (content, trainer):
        if "model" in holder:
            holder["model"] = {f"members.0.{name}": weight for name, weight in holder["model"].items()}
    if trainer:
        names = ("estimator", "objective", "optimizer", "sampler")
        trainer["members"] = [{name: trainer.pop(name) for name in names}]


def _check_sums(path: Path) -> None:
    # torch.load does not compare the checksums of the archive: a flipped bit would pass for a weight.
    with zipfile.ZipFile(path) as archive:
        broken = archive.testzip()
    if broken is not None:
        raise zipfile.BadZipFile(f"the checksum of {broken} is wrong")
