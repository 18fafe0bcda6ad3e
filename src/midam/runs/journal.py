"""Journal of a call: finished work on disk, so that the same call can continue after a stop."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from midam.errors import MidamError
from midam.files import Journal


class CallJournal(Journal):
    """File of a line with the call, then a line for each finished step; one process at a time writes it.

    `call` holds everything besides the bags that the results depend on, as JSON. `busy` is raised if another process
    holds the file, `other` if the file belongs to another call or a line does not match its checksum.
    """

    def __init__(self, path: Path, call: dict[str, Any], *, busy: MidamError, other: MidamError) -> None:
        super().__init__(path, busy=busy)
        if not self.rows and self.damaged is None:
            try:
                self.add([call])
            except OSError:
                super().close()
                path.unlink(missing_ok=True)
                raise
        elif self.damaged is not None or self.rows[0] != call or not self._sound():
            super().close()
            raise other

    @property
    def steps(self) -> list[Any]:
        """The finished steps."""
        return [step for _, step in self.rows[1:]]

    def add_steps(self, steps: Sequence[Any]) -> None:
        """Append steps; they are on the disk when the call returns."""
        self.add([_checksum(step), step] for step in steps)

    def _sound(self) -> bool:
        lines = self.rows[1:]
        return all(isinstance(line, list) and len(line) == 2 and line[0] == _checksum(line[1]) for line in lines)


def _checksum(row: Any) -> str:
    return f"{zlib.crc32(json.dumps(row).encode()):08x}"
