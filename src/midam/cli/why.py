"""The part of `midam predict --why`: the list of called bags and of the instances that decided."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from midam.cli.parser import Options
from midam.data.bags import Bags
from midam.data.sources.inputs import rows_of
from midam.errors import ConfigError, plural, require_counts
from midam.evaluate.calibrate import BinaryDecision
from midam.explain.calls import TOP, by_score, explain_calls, require_called
from midam.explain.page import calls_csv, calls_page
from midam.explain.words import bag_lines, splits_text
from midam.files import is_stream, write_text
from midam.report.program import say
from midam.report.terminal import BagProgress
from midam.runs.apply import settings_for
from midam.runs.loaded import LoadedRun

_LISTED = 10  # bags in the console


class CallList:
    """The list of a run: of the bags called positive, or of every bag.

    Its files lie beside the scores in `out`: why.csv and why.html beside predictions.csv, FILE.why.csv and
    FILE.why.html beside FILE.csv.
    """

    def __init__(self, options: Options, run: LoadedRun, out: Path) -> None:
        if is_stream(out):
            raise ConfigError(f"Expected a file for --out with --why, with files beside it, got {out}; name one.")
        every, top = options.why == "all", TOP if options.top is None else options.top
        require_counts(top=top)
        require_called(run, every=every)
        self._options, self._run, self._top = options, run, top
        self._decision = run.decision if isinstance(run.decision, BinaryDecision) and not every else None
        stem = "why" if out.stem == "predictions" else f"{out.stem}.why"
        self.table, self.page = (out.with_name(f"{stem}{suffix}") for suffix in (".csv", ".html"))
        self._entries: list[dict[str, Any]] = []

    def write(self, bags: Bags, part: range, scores: NDArray[np.float64], console: Console) -> None:
        """Explain the bags at the positions `part`, which have these scores [n] or [n, C], and write both files."""
        called = np.ones(len(part)) if self._decision is None else self._decision.call(scores)
        bags, index = bags.subset(part), np.flatnonzero(called)
        settings = settings_for(self._run, self._options.data, **self._options.values).data
        origins = rows_of(self._options.data, bags.ids[index].tolist(), settings) if len(index) else {}
        entries: list[dict[str, Any]] = []
        with BagProgress("explaining", bags.sizes[index], console=console) as bar:
            for bag in explain_calls(self._run, bags, index, scores, top=self._top, origins=origins):
                bar.update(len(entries))
                entries.append(bag)
        self._entries = by_score(entries)
        typed = self._options.out is not None
        write_text(self.table, calls_csv(self._entries), typed=typed)
        page = calls_page(f"Why: {Path(self._options.data).name}", self._entries, bags, total=len(part))
        write_text(self.page, page, typed=typed)

    def tell(self, total: int) -> dict[str, Any]:
        """Print the first bags of the list; returns all, with the files."""
        which = "explained" if self._decision is None else "called positive"
        known = f" ({splits})" if (splits := splits_text(self._entries)) else ""
        say(f"{len(self._entries)} of {plural(total, 'bag')} {which}{known}: {self.table}, {self.page}")
        for line in (line for entry in self._entries[:_LISTED] for line in bag_lines(entry)):
            say(line)
        return {"table": self.table, "page": self.page, "bags": self._entries}
