"""Names and numbers as figures and pages show them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

PART_NAMES = {"test": "test", "val": "validation", "train": "training", "new": "new"}
METRIC_NAMES = {"auroc": "AUROC", "auroc_macro": "macro AUROC", "c_index": "C-index"}


def metric_of_history(history: Sequence[Mapping[str, Any]]) -> str:
    """Main metric of the rows of a training, a key of `METRIC_NAMES`; of none, AUROC.

    Examples
    --------
    >>> metric_of_history([{"epoch": 1, "train_c_index": 0.6, "val_c_index": None}])
    'c_index'
    """
    return next((name for name in METRIC_NAMES if history and f"val_{name}" in history[0]), "auroc")


def metric_of_part(part: Mapping[str, Any]) -> str:
    """Main metric of a part of a summary, or of the baseline in it, a key of `METRIC_NAMES`.

    Examples
    --------
    >>> metric_of_part({"bags": 40, "c_index": 0.7})
    'c_index'
    """
    return next(name for name in METRIC_NAMES if name in part)


def shortened(name: str, limit: int) -> str:
    """Name of at most `limit` characters, without its middle: names often differ at the end. Nothing below 4.

    Examples
    --------
    >>> shortened("north_clinic_scan_07", 10).split("\N{HORIZONTAL ELLIPSIS}"), shortened("scan_07", 10)
    (['nort', 'an_07'], 'scan_07')
    """
    if len(name) <= limit:
        return name
    return f"{name[: limit // 2 - 1]}\N{HORIZONTAL ELLIPSIS}{name[-(limit - limit // 2) :]}" if limit > 3 else ""


def signed(value: float, form: str = ".3g") -> str:
    """A number with a true minus sign.

    Examples
    --------
    >>> signed(-0.25) == "\N{MINUS SIGN}0.25", signed(0.25, "+.3g")
    (True, '+0.25')
    """
    return f"{value:{form}}".replace("-", "\N{MINUS SIGN}")


def form_apart(scores: ArrayLike, threshold: float | None, *, least: int = 4) -> str:
    """Form of numbers with as many decimals, at least `least`, as tell each score from another threshold.

    In this form a score below the threshold never reads as one that reaches it.

    Examples
    --------
    >>> form_apart(0.49996, 0.5), form_apart([0.2, 0.49996], 0.5), form_apart(0.2, 0.5), form_apart(0.5, 0.5)
    ('.5f', '.5f', '.4f', '.4f')
    >>> form_apart(1e-40, 2e-40)  # all digits
    '.17g'
    """
    if threshold is None:
        return f".{least}f"
    values = np.unique(np.asarray(scores, dtype=np.float64))
    nearest = [float(value) for value in (*values[values < threshold][-1:], *values[values > threshold][:1])]
    for form in (f".{decimals}f" for decimals in range(least, 18)):
        if all(float(f"{value:{form}}") != float(f"{threshold:{form}}") for value in nearest):
            return form
    return ".17g"


def mean_words(summary: Mapping[str, Any]) -> str | None:
    """Say what the score of a run is the mean of, by its summary.json; None where it is that of one scorer.

    Examples
    --------
    >>> mean_words({"members": 3})
    'the mean of 3 scorers trained from different seeds'
    >>> rows = [{"method": "a", "weight": 0.7}, {"method": "b", "weight": 0.3}, {"method": "c", "weight": 0.0}]
    >>> mean_words({"members": 4, "auto": {"tried": rows}})
    'a weighted mean of 2 methods (4 scorers)'
    """
    members = summary.get("members", 1)
    taken = sum(row["weight"] > 0 for row in summary.get("auto", {}).get("tried", ()))
    if taken > 1:
        return f"a weighted mean of {taken} methods ({members} scorers)"
    return f"the mean of {members} scorers trained from different seeds" if members > 1 else None
