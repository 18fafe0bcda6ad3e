"""Checkpoints: one file that holds everything, written atomically, read without running code."""

import io
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from midam.errors import CheckpointError
from midam.files import write_bytes

FORMAT = 3


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint of what loads with ``weights_only=True``; a reader sees the old file or the new one."""
    # torch hides the reason of a failed write, such as a full disk, behind an error of its own.
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **content}, buffer)
    with buffer.getbuffer() as view:  # let go of at once: Python 3.13 complains of a buffer that outlives it
        write_bytes(path, view)


def load_checkpoint(path: Path, *, required: Sequence[str] = ()) -> dict[str, Any]:
    """Read a checkpoint, which must hold the `required` entries, onto the CPU; else `CheckpointError`."""
    try:
        # torch.load does not compare the checksums of the archive: a flipped bit would pass for a weight.
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(f"the checksum of {broken} is wrong")
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
    if content["format"] != FORMAT:
        raise CheckpointError(
            f"Expected checkpoint format {FORMAT}, got {content['format']} (in {path}); use the midam that wrote it."
        )
    return content
