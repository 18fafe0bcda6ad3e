"""A reader: bags from a file of JSON lines, `{"bag": "a", "label": 1, "instances": [[0.1, 0.2], ...]}`."""

import json
from typing import Any, ClassVar

from midam.data import BagReader, Bags, Request
from midam.errors import BagDataError


class JSONLines(BagReader):
    """Reader of a file with one line for each bag."""

    what: ClassVar[str] = "a file of JSON lines"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl",)

    def read(self, request: Request) -> Bags:
        """Read the bags."""
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(request.path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                row = json.loads(line)
                rows.append({"bag": row["bag"], "label": row.get("label"), "instances": row["instances"]})
            except (ValueError, KeyError, TypeError) as error:
                raise BagDataError(
                    f"Expected a bag with its instances, got {error!r} (in {request.path}, line {number}); correct it."
                ) from None
        labels = [row["label"] for row in rows]
        return Bags.from_list(
            [row["instances"] for row in rows],
            None if None in labels and not request.require_labels else labels,
            ids=[row["bag"] for row in rows],
        )
