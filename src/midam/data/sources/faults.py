"""All faults of a table in one message: of each kind the first in full, and the rows of up to ten."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from midam.data.sources.file_names import first_names
from midam.data.sources.label_columns import label_columns
from midam.data.sources.label_values import gap_advice
from midam.data.sources.request import Request
from midam.errors import BagDataError, fault_list, with_article

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 10


class Faults:
    """Faults of a table, by kind; `unit` is what its rows are called, "line" or "row"."""

    def __init__(self, where: str, unit: str = "line") -> None:
        self._where, self._unit = where, unit
        self._messages: list[str] = []

    def add(self, expected: str, got: object, place: str, rows: Sequence[int], *, advice: str) -> None:
        """Add a fault: what stands at which `place` first, and all rows, numbered as the file does."""
        numbers = first_names([str(row) for row in rows], limit=_SHOWN)
        more = f"; {len(rows)} such {self._unit}s: {numbers}" if len(rows) > 1 else ""
        self._messages.append(f"Expected {expected}, got {got} ({place}{more}); {advice}.")

    def add_error(self, error: BagDataError) -> None:
        """Add a fault that was found by others."""
        self._messages.append(str(error))

    def refuse(self) -> None:
        """Raise a `BagDataError` that lists all faults, if there are some."""
        if not self._messages:
            return
        head = f"Expected a sound table, got {len(self._messages)} kinds of faults (in {self._where}); correct them:"
        raise BagDataError(fault_list(head, self._messages, most=_SHOWN))


def refuse_empty_fields(
    frame: "pd.DataFrame", columns: Iterable[str | None], request: Request, where: str, *, shown: str | None = None
) -> None:
    """Refuse empty fields of columns, all at once; messages give their lines, or their values of the column `shown`."""
    faults, labels = Faults(where), label_columns(frame.columns, request)
    for name in dict.fromkeys(filter(None, columns)):
        gaps = frame[frame[name].isna()]
        if len(gaps):
            lines, got, place = (gaps.index + 2).tolist(), "none", f"in {where}"
            if shown is None:
                place += f", line {lines[0]}"
            else:
                lines, got = [], f"none for {first_names(gaps[shown].tolist(), limit=_SHOWN)}"
            advice = gap_advice(request, name, "fill it in", label=name in labels)
            faults.add(f"{with_article(name)} in each row", got, place, lines, advice=advice)
    faults.refuse()
