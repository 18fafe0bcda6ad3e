"""Checkpoints: one file that holds everything, written atomically, read without running code."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from midam.errors import CheckpointError

FORMAT = 1


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint: a reader sees the old file or the new one, never half of it.

    Parameters
    ----------
    path : Path
        Target.
    content : dict
        Tensors, numbers, strings, lists and dictionaries only, so that it loads with ``weights_only=True``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(path.suffix + ".tmp")
    try:
        with temporary.open("wb") as file:
            torch.save({"format": FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises
    ------
    CheckpointError
        If there is none, or it is damaged, foreign, or of a newer format.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"Expected a checkpoint, got nothing at {path}; check the run folder.") from None
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"Expected a checkpoint, got a damaged file (in {path}): {reason}; restore a copy, or start a new run."
        ) from None
    if not isinstance(content, dict) or "format" not in content:
        raise CheckpointError(f"Expected a checkpoint of midam, got something else (in {path}); check the path.")
    if content["format"] > FORMAT:
        raise CheckpointError(
            f"Expected checkpoint format {FORMAT} or older, got {content['format']} (in {path}); install a newer midam."
        )
    return content
