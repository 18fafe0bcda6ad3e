"""Pseudonyms for a page that is shared: bags, groups, levels and files get numbers; a key maps them to names."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.open_file import sound
from midam.evaluate.subgroups import MISSING
from midam.files import replacing
from midam.names import plain_cell, safe_cell
from midam.reading import read_text
from midam.report.page.study import BY_GROUP, BY_SIZE, Study

PATHS = ("labels", "slides", "split_file", "encoder_weights")  # settings that name a file
_ABOUT = {"auto", "data", "baseline_note"}  # entries of summary.json whose texts may name files
_RANGE = re.compile(r"\S+ to \S+")  # a range of numbers as in `midam.evaluate.subgroups.make_levels`
_LEFT_OUT = "{} notes that may hold names, such as of files that were left out, are not shown here"


NAMES = (
    "This page names bags and groups. Before you share it, check whether these are names of patients: "
    "`midam report RUN --pseudonyms` writes a report without them."
)
PSEUDONYMS = "Names of bags, groups, levels and files are pseudonyms here; the author of this page has the key."


class Pseudonyms:
    """Pseudonyms by kind of name, such as ``bag-001``, numbered in the order of the data.

    Their key, at `path`, is next to the page. If there is one, its names keep their pseudonyms, and the numbers go on:
    an earlier page may have been shared.
    """

    def __init__(self, page: Path) -> None:
        self.path = page.with_name(f"{page.stem}.pseudonyms.csv")
        self._known: dict[tuple[str, str], str] = {}
        self._counts = Counter[str]()
        if self.path.is_file():
            with sound("a key of pseudonyms", self.path, advice="restore it, or choose another page"):
                for row in [*csv.reader(io.StringIO(read_text(self.path), newline=""))][1:]:
                    kind, name, pseudonym = map(plain_cell, row)
                    self._known[kind, name] = pseudonym
                    self._counts[kind] = max(self._counts[kind], int(pseudonym.rpartition("-")[2]))

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name."""
        if (kind, name) not in self._known:
            self._counts[kind] += 1
            self._known[kind, name] = f"{kind}-{self._counts[kind]:03d}"
        return self._known[kind, name]

    def setting(self, name: str, value: Any) -> Any:
        """Return the value of a setting with pseudonyms of files."""

        def change(text: str) -> str:
            return self.of("file", text) if name in PATHS or re.search(r"[/\\]", text) else text

        return _changed(value, change)

    def text(self, text: str) -> str:
        """Return a message with pseudonyms of files, without its "(in FILE)"."""
        files = [(name, other) for (kind, name), other in self._known.items() if kind == "file"]
        for name, other in sorted(files, key=lambda pair: -len(pair[0])):
            text = text.replace(name, other)
        return re.sub(r" \(in .*?\)", "", text)

    def notes(self, notes: Any) -> list[str]:
        """Replace notes on the data, which may contain names, by their number."""
        return [_LEFT_OUT.format(len(notes))] if notes else []

    def hide(self, report: Study) -> Study:
        """Return the report with pseudonyms instead of names; its data, settings and facts have them already."""
        columns = {name: self._levels(name, levels) for name, levels in report.columns.items()}
        parts = {name: self._bags(part) for name, part in report.parts.items()}
        tested, left_out = self._bags(report.tested), self.notes(report.left_out)
        cautions = [self.text(note) for note in report.cautions]
        about = {**report.about, **{key: _changed(report.about[key], self.text) for key in _ABOUT & {*report.about}}}
        named = {"parts": parts, "columns": columns, "tested": tested, "left_out": left_out, "cautions": cautions}
        return replace(report, **named, about=about, pseudonyms=True)

    def write(self) -> Path:
        """Write the key, readable only by its owner; returns its path."""
        text = io.StringIO()
        rows = [("kind", "name", "pseudonym"), *((*key, pseudonym) for key, pseudonym in self._known.items())]
        csv.writer(text, lineterminator="\n").writerows(map(safe_cell, row) for row in rows)
        with replacing(self.path, mode=0o600) as file:
            file.write(text.getvalue().encode())
        return self.path

    def _bags(self, bags: Any) -> Any:
        groups = None if bags.groups is None else self._names("group", bags.groups)
        return replace(bags, ids=self._names("bag", bags.ids), groups=groups)

    def _levels(self, name: str, levels: NDArray[np.str_]) -> NDArray[np.str_]:
        if name == BY_SIZE or any(map(_RANGE.fullmatch, levels.tolist())):
            return levels
        kind = "group" if name == BY_GROUP else name
        return np.where(np.isin(levels, [MISSING]), levels, self._names(kind, levels))

    def _names(self, kind: str, names: NDArray[np.str_]) -> NDArray[np.str_]:
        return np.array([self.of(kind, name) for name in names.tolist()], dtype=np.str_)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Change the texts of a value, also in lists and dictionaries."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _changed(part, change) for key, part in value.items()}
    return [_changed(part, change) for part in value] if isinstance(value, list | tuple) else value
