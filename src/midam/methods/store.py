"""A store of trials: rows, dictionaries that JSON can hold, with fields that name them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from midam.errors import CheckpointError, ConfigError
from midam.files import Journal

Row = dict[str, Any]


class TrialStore:
    """Rows of finished trials, in a journal that one process at a time writes, or only in memory.

    Leave the context, or call `close`, to release the journal; a journal without rows is removed. A last line that a
    crash cut off is dropped; other damage raises a `CheckpointError`, and a journal that another process holds a
    `ConfigError`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.rows: list[Row] = []
        self._journal: Journal | None = None
        self._indexes: dict[tuple[str, ...], dict[str, Row]] = {}
        if path is None:
            return
        busy = f"Expected no other process that adds to {path}, got one that is running; wait for its end."
        self._journal = Journal(path, busy=ConfigError(busy))
        self.rows = list(self._journal.rows)
        strange = (number for number, row in enumerate(self.rows, start=1) if not isinstance(row, dict))
        damaged = next(strange, self._journal.damaged)
        if damaged is not None:
            self.close()
            raise CheckpointError(
                f"Expected a trial in each line, got damage (in {path}, line {damaged}); remove the line to compute "
                "the trial again."
            )

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows; they are on the disk when the call returns."""
        new = list(rows)
        if self._journal is not None:
            self._journal.add(new)
        self.rows += new
        for fields, index in self._indexes.items():
            index.update((_key(row, fields), row) for row in new)

    def find(self, names: Sequence[Row]) -> list[Row | None]:
        """Return the row of each name, or None."""
        return [self._find(name, tuple(sorted(name))) for name in names]

    def _find(self, name: Row, fields: tuple[str, ...]) -> Row | None:
        if fields not in self._indexes:
            self._indexes[fields] = {_key(row, fields): row for row in self.rows}
        return self._indexes[fields].get(_key(name, fields))

    def missing(self, groups: Iterable[Any]) -> list[Any]:
        """Return the groups with missing trials; the `names` of a group are those of its trials."""
        return [group for group in groups if None in self.find(group.names)]

    def keep(self, names: Sequence[Row], results: Sequence[Row]) -> None:
        """Add the results of names that have no row yet."""
        rows = self.find(names)
        self.add({**n, **r} for n, r, row in zip(names, results, rows, strict=True) if row is None)

    def close(self) -> None:
        """Release the journal."""
        if self._journal is not None:
            self._journal.close() if self.rows or self._journal.damaged else self._journal.remove()
            self._journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key(row: Row, fields: Sequence[str]) -> str:
    return json.dumps([row.get(field) for field in fields])
