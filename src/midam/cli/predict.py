"""`midam predict`: score bags with trained runs."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from midam.cli.outputs import keep_other, keep_sources, tell_left_out
from midam.cli.parser import DATA, Options, Parser
from midam.errors import ConfigError, RunStoppedError, plural
from midam.files import Journal, is_stream, require_plain_folder, resolved, write_parts
from midam.report.program import note_result, remark, stdout_console

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from midam.cli.why import CallList
    from midam.data.bags import Bags
    from midam.runs.loaded import LoadedRun

# Settings that replace those of a run.
TABLES = ("labels", "slides", "bag_column", "label_column", "positive", "sheet", "groups", "missing")


def parser() -> Parser:
    """Return the parser of the command."""
    predict = Parser("predict", "Score bags with trained runs; labels are not needed.")
    predict.add_argument("run", nargs="+", help="run folder, or several")
    predict.add_argument("data", help=DATA)
    predict.add_settings(TABLES, of_run=True)
    text = (
        "where to write bag, score, probability, class; a device or pipe, such as /dev/stdout, is written to; of "
        "several runs a file each, FILE.RUN.csv; default: predictions.csv in the folder predict-DATA of the run"
    )
    predict.add_text("--out", metavar="FILE.csv", help=text)
    text = (
        "also say why: for each bag called positive (`all`: for every bag) the instances that did it and what is "
        "unusual about them, in FILE.why.csv and FILE.why.html"
    )
    why: dict[str, Any] = {"nargs": "?", "const": "called", "choices": ["called", "all"], "metavar": "called|all"}
    predict.add_argument("--why", **why, help=text)
    predict.add_argument("--top", type=int, metavar="N", help="with --why: most instances of a bag (default: 3)")
    text = "also write DIR/<bag>.h5 with score, weight and attention of each instance; needs the extra hdf5"
    predict.add_text("--instances", metavar="DIR", help=text)
    text = "score only the bags from position START, counted from 0, to before STOP; each may be left out"
    predict.add_text("--bags", metavar="START:STOP", help=text)
    return predict


def add_inputs(parser: Parser) -> None:
    """Add the run, the data, and the settings that replace those of the run."""
    parser.add_argument("run", help="run folder")
    parser.add_argument("data", help=DATA)
    parser.add_settings(TABLES, of_run=True)


def read_inputs(options: Options, console: Console, **more: Any) -> "tuple[LoadedRun, Bags]":
    """Read the run and the bags that the options of `add_inputs` name, see `midam.runs.apply.read_for`."""
    from midam.runs.apply import read_for
    from midam.runs.loaded import load_run

    run = load_run(options.run)
    return run, read_for(run, options.data, console=console, **more, **options.values)


def run(options: Options, console: Console) -> int:
    """Score bags; returns the exit code."""
    jobs = [_Job(options, console, name, out) for name, out in zip(options.run, _outs(options))]
    calls = [job.calls for job in jobs if job.calls is not None]
    of_calls = [output for one in calls for output in (("calls", one.table), ("page", one.page))]
    keep_other(options, *(("scores", job.out) for job in jobs), *of_calls)
    with ExitStack() as stack:
        # What is wrong with a run shows before another one has scored.
        for job in jobs:
            job.read(stack)
        for job in jobs:
            job.score()
        for journal in filter(None, [job.journal for job in jobs]):
            journal.remove()
    note_result(scores=[job.out for job in jobs], bags=len(jobs[0].part))
    results = [one.tell(len(jobs[0].part)) for one in calls]
    if results:
        note_result(why=results[0] if len(results) == 1 else results)
    return 0


class _Job:
    """The prediction of one run: what it reads, and what it writes to `out`."""

    calls: "CallList | None" = None
    journal: Journal | None = None

    def __init__(self, options: Options, console: Console, name: str, out: Path) -> None:
        from midam.runs.loaded import load_run

        self.options, self.console, self.run, self.out = options, console, load_run(name), out
        self.stream, self.part = is_stream(out), range(0)
        if options.out is None:  # only in a folder that the user named are links followed
            require_plain_folder(Path(name), writes=True)
        if options.why is None and options.top is not None:
            raise ConfigError(f"Expected --why with --top, got --top {options.top} alone; add --why.")
        if options.why is not None:
            from midam.cli.why import CallList

            self.calls = CallList(options, self.run, out)

    def read(self, stack: ExitStack) -> None:
        """Read the bags, and hold the journal of their scores until the `stack` is closed."""
        from midam.runs.apply import read_for
        from midam.runs.kept_scores import journal_of, vectors_beside

        options, vectors = self.options, None
        if not self.stream:
            place = self.out if options.out is None else resolved(self.out)
            vectors = vectors_beside(place, options.data, options.bags)
            self.journal = stack.enter_context(journal_of(place, vectors))
        reading = {"console": self.console, "chosen": self._chosen, "vectors": vectors, **options.values}
        self.bags = read_for(self.run, options.data, **reading)
        if len(self.bags) == len(self.part):  # of raw files, only these were embedded
            self.part = range(len(self.bags))

    def _chosen(self, bags: "Bags") -> range:
        """Return the positions of the bags to score; refuse outputs among their files."""
        keep_sources(bags, str(self.out), "--out", folder=False)
        keep_sources(bags, self.options.instances, "--instances", folder=True)
        self.part = _part(self.options.bags, len(bags))
        return self.part

    def score(self) -> None:
        """Write the scores, and say so."""
        from midam.runs.results import predictions_parts

        bags, part, out, target = self.bags, self.part, self.out, self.run.target
        replaced, scores = out.is_file(), self._scores()
        content = predictions_parts(bags.subset(part), target, scores, decision=self.run.decision)
        write_parts(out, content, typed=self.options.out is not None)
        if self.calls is not None:
            self.calls.write(bags, part, scores, self.console)
        # A stream gets the scores and nothing else.
        messages = self.console if self.stream else stdout_console()
        if not self.stream:
            tell_left_out(bags, out, messages)
        for note in target.notes(self.run.decision):
            remark(messages, note)
        _tell_class(self.run, messages)
        earlier = ", instead of earlier scores" if replaced else ""
        messages.print(f"{plural(len(part), 'bag')} scored: {escape(str(out))}{earlier}")

    def _scores(self) -> "NDArray[np.float64]":
        """Return the scores of the bags; a stopped call continues from its journal."""
        from midam.report.terminal import BagProgress
        from midam.runs.kept_scores import KeptScores

        folder = None if self.options.instances is None else Path(self.options.instances)
        part, journal, console = self.part, self.journal, self.console
        kept = KeptScores(self.run, self.bags, part, instances=folder, journal=journal)
        if journal is not None and kept.done:
            holds = f"{journal.path} holds the scores of {plural(kept.done, 'bag')}"
            console.print(escape(f"{holds}: continuing there"))
        try:
            with BagProgress("scoring", self.bags.sizes[part.start : part.stop], console=console) as bar:
                return kept.score(bar.update_all)
        except KeyboardInterrupt:
            if journal is None or not kept.done:
                raise
            text = f"stopped; {journal.path} holds {kept.done} of {plural(len(part), 'bag')}"
            raise RunStoppedError(f"{text}. The same command continues from there") from None


def _tell_class(trained: "LoadedRun", console: Console) -> None:
    """Print from which score on a bag has the positive class, as that is seldom where the probability is 0.5."""
    if trained.calibrator is not None and trained.threshold is not None:
        probability, name = trained.calibrator.predict([trained.threshold])[0], (trained.target.names or (0, 1))[1]
        point = f"from score {trained.threshold:.4g} on, where the probability is {probability:.2g}"
        console.print(escape(f"class {name}: {point}: the threshold of the run ({trained.settings.run.threshold})"))


def _part(text: str | None, count: int) -> range:
    """Return the positions of the bags that --bags names, of `count` bags in all.

    Examples
    --------
    >>> _part("90:200", 100), _part(":10", 100), _part(None, 100)
    (range(90, 100), range(0, 10), range(0, 100))
    """
    match = re.fullmatch(r"(\d*):(\d*)", ":" if text is None else text)
    part = range(count)[slice(*(int(end) if end else None for end in match.groups()))] if match else range(0)
    if not part:
        raise ConfigError(
            f"Expected --bags as START:STOP with at least one of {plural(count, 'bag')}, got {text!r}; choose others, "
            f"such as 0:{count}."
        )
    return part


def _outs(options: Options) -> list[Path]:
    """Return the output file of each run."""
    if options.out is None:
        stem = Path(options.data).resolve().stem
        return [Path(run) / f"predict-{stem}" / "predictions.csv" for run in options.run]
    out = Path(options.out)
    if len(options.run) > 1 and is_stream(out):
        raise ConfigError(f"Expected a file for the scores of several runs, got {out}; choose a name.")
    if len(options.run) > 1 and options.instances is not None:
        raise ConfigError(
            "Expected one run with --instances, which are written in a separate pass for each run, got "
            f"{len(options.run)}; make a call for each run, with separate folders."
        )
    names = [] if len(options.run) == 1 else _names(options.run)
    return [out.with_name(f"{out.stem}.{name}{out.suffix}") for name in names] or [out]


def _names(runs: list[str]) -> list[str]:
    """Return names of run folders, each with as many parent folders as make the names differ."""
    from midam.runs.instance_files import file_name

    places = [Path(run).resolve() for run in runs]
    twice = next((run for run, place in zip(runs, places) if places.count(place) > 1), None)
    if twice is not None:
        raise ConfigError(f"Expected each run once, got {twice} more than once; name it once.")
    depth, names = 1, [""]
    while len({name.lower() for name in names}) < len(places):
        names = ["-".join(place.parts[-depth:]).lstrip("/") for place in places]
        depth += 1
    return [file_name(name) for name in names]
