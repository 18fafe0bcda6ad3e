"""Free disk space for what a run or a prediction is about to write: estimated, and refused where it is missing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from midam.data.bags import Bags
from midam.files import require_space
from midam.runs.folder import RunFolder
from midam.runs.instance_files import bytes_of_files
from midam.runs.scoring import Scoring, row_text
from midam.train.trainer import Trainer

_GROUP_LINE = 128  # bytes of a group in a journal, beside its scores
_ROW = 80  # bytes of a bag in predictions.csv, beside its names
_REPORT = 1 << 20  # figures and page of a run
_TEXT, _NUMBER = 16, 16  # bytes of an entry in a checkpoint, beside its letters


def require_score_space(scorings: Sequence[Scoring], outs: Sequence[Path], *, instances: Path | None = None) -> None:
    """Refuse a disk that cannot hold the tables of scores, what is kept of them meanwhile, and the instance files.

    The sizes are estimates: of a table, that of its first row for each bag.
    """
    needed = {out: _bytes_of_scores(one) for out, one in zip(outs, scorings, strict=True)}
    if instances is not None:
        one = scorings[0]
        left = np.arange(one.part.start, one.part.stop)[0 if one.journal is None else len(one.journal) :]
        needed[instances] = bytes_of_files(one.run.model, one.bags.sizes[left], coords=one.bags.coords)
    require_space(needed, "scores")


def _bytes_of_scores(scoring: Scoring) -> int:
    """Bytes of a table, and of the journal of those bags that it does not know yet."""
    count, known = len(scoring.part), 0 if scoring.journal is None else len(scoring.journal)
    groups = sum(1 for _ in scoring.groups())
    of_bag = 11 * scoring.run.target.count  # 8 bytes in base64
    return count * len(row_text(scoring).encode()) + of_bag * max(0, count - known) + _GROUP_LINE * groups


def require_run_space(
    folder: RunFolder, bags: Bags, origin: Mapping[str, Any], *, trainer: Trainer | None = None
) -> None:
    """Refuse a disk that cannot hold the rest of a run: its checkpoints, model, predictions and report.

    A file is written beside the old one and then takes its place: so there are two of the last checkpoint. Of a method
    that is fitted in one step, nobody knows the size of the model before.
    """
    of_bags = stored_bytes(origin)
    rows = len(bags) * (_ROW + bags.ids.itemsize // 4)
    needed = of_bags + rows + _REPORT
    if trainer is not None:
        weights = stored_bytes(trainer.model.state_dict())
        needed += 2 * (stored_bytes(trainer.state_dict()) + of_bags) + 2 * weights
        if not trainer.epoch:  # the optimizer remembers nothing yet
            trained = sum(p.numel() * p.element_size() for p in trainer.model.parameters() if p.requires_grad)
            settings = trainer.config.training
            needed += 2 * trained * (2 if settings.optimizer == "adam" else int(settings.momentum > 0))
    held = sum(path.stat().st_size for path in folder.root.rglob("*") if path.is_file())
    require_space({folder.root: max(0, needed - held)}, "checkpoints, predictions and report of the run")


def stored_bytes(content: Any) -> int:
    """About the bytes of a checkpoint of this content: tensors, texts, numbers, and mappings and lists of them."""
    if isinstance(content, Tensor):
        return content.nbytes
    if isinstance(content, str):
        return len(content) + _TEXT
    if isinstance(content, Mapping):
        return sum(stored_bytes(name) + stored_bytes(value) for name, value in content.items())
    return sum(map(stored_bytes, content)) if isinstance(content, list | tuple) else _NUMBER
