"""Functions that are called while a method is fitted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midam.settings import Settings

if TYPE_CHECKING:
    from midam.train.trainer import Trainer


def _nothing(*_: Any) -> None:
    pass


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called while a method is fitted; by default, nothing is done.

    Attributes
    ----------
    on_start : callable
        After all checks, with the settings and the name of a method without epochs, else None.
    on_trainer : callable
        With a trainer before its first step; it may load a state.
    on_epoch : callable
        After each epoch, with the new row of the history and the trainer.
    on_candidate : callable
        With the method that "auto" tries, its number from 0, the number of methods, and the share of its folds that are
        done: 0 as it begins.
    on_stage : callable
        With the name of each stage that begins after the fit, and the number of bags that it processes, 0 for none.
    on_bags : callable
        With the positions of bags that the model has scored; each position once.
    """

    on_start: Callable[[Settings, str | None], None] = _nothing
    on_trainer: Callable[["Trainer"], None] = _nothing
    on_epoch: Callable[[dict[str, Any], "Trainer"], None] = _nothing
    on_candidate: Callable[[str, int, int, float], None] = _nothing
    on_stage: Callable[[str, int], None] = _nothing
    on_bags: Callable[[Sequence[int]], None] = _nothing


QUIET = Callbacks()
