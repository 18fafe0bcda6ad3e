"""The part of `midam predict --why`: the list of called bags and of the instances that decided."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from midam.cli.parser import Options
from midam.data.digests import contents_digest
from midam.data.sources.inputs import rows_of
from midam.errors import RunStoppedError, plural
from midam.explain.calls import explain_calls
from midam.explain.page import calls_page
from midam.explain.tables import calls_csv
from midam.explain.words import calls_lines, splits_text
from midam.files import Journal, resolved, write_text
from midam.report.program import say
from midam.report.terminal import BagProgress
from midam.runs.apply import settings_for
from midam.runs.loaded import LoadedRun
from midam.runs.scoring import ScoreTable, journal_of


class CallList:
    """The list of a run: of the bags called positive, or of `every` bag, with at most `top` instances each.

    Its files lie beside the scores in `out`: why.csv and why.html beside predictions.csv, FILE.why.csv and
    FILE.why.html beside FILE.csv. Explained bags are kept in a journal, from which a stopped call goes on.
    """

    def __init__(self, options: Options, run: LoadedRun, out: Path, *, every: bool, top: int) -> None:
        self._options, self._run, self._every, self._top = options, run, every, top
        stem = "why" if out.stem == "predictions" else f"{out.stem}.why"
        self.table, self.page = (out.with_name(f"{stem}{suffix}") for suffix in (".csv", ".html"))
        self._typed = options.out is not None

    def write(self, scored: ScoreTable, console: Console) -> list[dict[str, Any]]:
        """Explain the bags of a table of scores, and write both files; returns the entries of the bags."""
        bags = scored.bags
        index, scores = scored.called(every=self._every)
        place = resolved(self.table) if self._typed else self.table
        with journal_of(place) as journal:
            known = {row[0]: row[1] for row in journal.rows if isinstance(row, list) and len(row) == 2}
            digests = {i: self._digest(scored, i) for i in index.tolist()}
            left = np.array([i for i in index.tolist() if digests[i] not in known], dtype=np.int64)
            settings = settings_for(self._run, self._options.data, **self._options.values).data
            origins = rows_of(self._options.data, bags.ids[left].tolist(), settings) if len(left) else {}
            try:
                with BagProgress("explaining", bags.sizes[left], console=console) as bar:
                    places = {i: at for at, i in enumerate(left.tolist())}
                    for one in explain_calls(self._run, bags, left, scores, top=self._top, origins=origins):
                        known[digests[one.index]] = one.to_dict()
                        journal.add([[digests[one.index], known[digests[one.index]]]])
                        bar.update(places[one.index])
            except KeyboardInterrupt:
                raise self._stopped(journal) from None
            entries = sorted((known[digests[i]] for i in index.tolist()), key=lambda entry: -entry["score"])
            self._write(entries, scored)
            journal.remove()
        return entries

    def tell(self, entries: Sequence[dict[str, Any]], total: int) -> dict[str, Any]:
        """Print the first bags of the list; returns all, with the files."""
        which = "explained" if self._every or self._run.threshold is None else "called positive"
        known = f" ({splits})" if (splits := splits_text(entries)) else ""
        say(f"{len(entries)} of {plural(total, 'bag')} {which}{known}: {self.table}, {self.page}")
        for line in calls_lines(entries):
            say(line)
        return {"table": self.table, "page": self.page, "bags": entries}

    def _write(self, entries: Sequence[dict[str, Any]], scored: ScoreTable) -> None:
        write_text(self.table, calls_csv(entries), typed=self._typed)
        title = f"Why: {Path(self._options.data).name}"
        page = calls_page(title, entries, scored.bags, total=len(scored.part))
        write_text(self.page, page, typed=self._typed)

    def _digest(self, scored: ScoreTable, index: int) -> str:
        """Return the digest of the run, the options and the content of a bag."""
        facts = [self._run.digest(), self._top, contents_digest(scored.bags.subset([index]))]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _stopped(self, journal: Journal) -> RunStoppedError:
        count = plural(len(journal.rows), "bag")
        return RunStoppedError(f"stopped; {journal.path} holds {count}. The same command continues from there")
