"""`midam predict`: score bags with trained runs."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from midam.cli.outputs import keep_data, keep_other, keep_sources, tell_left_out
from midam.cli.parser import DATA, Options, Parser
from midam.errors import ConfigError, RunStoppedError, plural, require_counts
from midam.files import Journal, is_stream, require_plain_folder, resolved, write_parts
from midam.report.program import note_result, remark, stdout_console

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from midam.cli.why import CallList
    from midam.data.bags import Bags
    from midam.runs.loaded import LoadedRun

CALLED = "called"
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
    why: dict[str, Any] = {"nargs": "?", "const": CALLED, "choices": [CALLED, "all"], "metavar": "called|all"}
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


def read_inputs(
    options: Options, console: Console, *, labeled: bool = False, embedded: Sequence[str] = ()
) -> "tuple[LoadedRun, Bags]":
    """Read the run and the bags that the options of `add_inputs` name, see `midam.runs.apply.read_for`."""
    from midam.runs.apply import read_for
    from midam.runs.loaded import load_run

    run = load_run(options.run)
    return run, read_for(run, options.data, labeled=labeled, console=console, embedded=embedded, **options.values)


def run(options: Options, console: Console) -> int:
    """Score bags; returns the exit code."""
    from midam.runs.apply import read_for
    from midam.runs.kept_scores import journal_of, vectors_beside
    from midam.runs.loaded import load_run

    outs = _outs(options)
    runs = [load_run(name) for name in options.run]
    for name, out in zip(options.run, outs):
        keep_data(options, run=name, path=out)
        if options.out is None:  # only in a folder that the user named are links followed
            require_plain_folder(Path(name), writes=True)
    lists = [_list_of(options, trained, out) for trained, out in zip(runs, outs)]
    places = [out if options.out is None or is_stream(out) else resolved(out) for out in outs]
    for out in outs:
        keep_other(out)
    with ExitStack() as stack:
        journals = [None if is_stream(place) else stack.enter_context(journal_of(place)) for place in places]
        # What is wrong with a run shows before another one has scored.
        of_runs = [
            read_for(trained, options.data, console=console, vectors=vectors_beside(place), **options.values)
            for trained, place in zip(runs, places)
        ]
        for bags, out in zip(of_runs, outs):
            keep_sources(bags, str(out), "--out", folder=False)
            if options.instances is not None:
                keep_sources(bags, options.instances, "--instances", folder=True)
        scored = zip(runs, of_runs, outs, lists, journals, strict=True)
        counts = [_score(options, console, *each) for each in scored]
        for journal in filter(None, journals):
            journal.remove()
    note_result(scores=outs, bags=counts[0])
    results = [one.tell(count) for one, count in zip(lists, counts) if one is not None]
    if results:
        note_result(why=results[0] if len(results) == 1 else results)
    return 0


def _score(  # noqa: PLR0917
    options: Options,
    console: Console,
    trained: "LoadedRun",
    bags: "Bags",
    out: Path,
    calls: "CallList | None",
    journal: Journal | None,
) -> int:
    """Write the scores of a run, and say so; returns the number of scored bags."""
    from midam.runs.results import predictions_parts

    part, replaced, stream = _part(options.bags, len(bags)), out.is_file(), is_stream(out)
    scores = _kept(options, console, trained, bags, part, journal)
    scored = bags if len(part) == len(bags) else bags.subset(part)
    content = predictions_parts(scored, trained.target, scores, decision=trained.decision)
    write_parts(out, content, typed=options.out is not None)
    if calls is not None:
        calls.write(bags, part, scores, console)
    # A stream gets the scores and nothing else.
    messages = console if stream else stdout_console()
    if not stream:
        tell_left_out(bags, out, messages)
    for note in trained.target.notes(trained.decision):
        remark(messages, note)
    _tell_class(trained, messages)
    earlier = ", instead of earlier scores" if replaced else ""
    messages.print(f"{plural(len(part), 'bag')} scored: {escape(str(out))}{earlier}")
    return len(part)


def _kept(  # noqa: PLR0917
    options: Options, console: Console, trained: "LoadedRun", bags: "Bags", part: range, journal: Journal | None
) -> "NDArray[np.float64]":
    """Return the scores of the bags at the positions `part`; a stopped call continues from its journal."""
    from midam.report.terminal import BagProgress
    from midam.runs.kept_scores import KeptScores

    folder = None if options.instances is None else Path(options.instances)
    kept = KeptScores(trained, bags, part, instances=folder, journal=journal)
    if journal is not None and kept.done:
        console.print(f"{escape(str(journal.path))} holds the scores of {plural(kept.done, 'bag')}: continuing there")
    try:
        with BagProgress("scoring", bags.sizes[part.start : part.stop], console=console) as bar:
            return kept.score(bar.update_all)
    except KeyboardInterrupt:
        if journal is None or not kept.done:
            raise
        text = f"stopped; {journal.path} holds {kept.done} of {plural(len(part), 'bag')}"
        raise RunStoppedError(f"{text}. The same command continues from there") from None


def _list_of(options: Options, run: "LoadedRun", out: Path) -> "CallList | None":
    """Return the list that --why asks for, beside the scores in `out`; refuse what it cannot be made of."""
    if options.why is None:
        if options.top is not None:
            raise ConfigError(f"Expected --why with --top, got --top {options.top} alone; add --why.")
        return None
    from midam.cli.why import CallList
    from midam.explain.calls import TOP, require_called

    if is_stream(out):
        raise ConfigError(f"Expected a file for --out with --why, which writes files beside it, got {out}; name one.")
    every, top = options.why != CALLED, TOP if options.top is None else options.top
    require_counts(top=top)
    require_called(run, every=every)
    return CallList(options, run, out, every=every, top=top)


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
