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
from midam.files import is_stream, require_plain_folder, resolved, write_parts
from midam.report.program import note_result, remark, stdout_console

if TYPE_CHECKING:
    from midam.cli.why import CallList
    from midam.data.bags import Bags
    from midam.runs.loaded import LoadedRun
    from midam.runs.scoring import ScoreTable

CALLED = "called"
# Settings that replace those of a run.
TABLES = ("labels", "slides", "bag_column", "label_column", "positive", "sheet", "groups", "missing")


def parser() -> Parser:
    """Return the parser of the command."""
    predict = Parser("predict", "Score bags with trained runs; labels are not needed.")
    predict.add_argument("run", nargs="+", help="run folder, or several: the data are read once for all")
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
    from midam.runs.loaded import load_run
    from midam.runs.scoring import ScoreTable, journal_of, read_together, require_score_space

    outs = _outs(options)
    for name, out in zip(options.run, outs):
        keep_data(options, run=name, path=out)
    runs = [load_run(name) for name in options.run]
    if options.out is None:  # only in a folder that the user named are links followed
        for name in options.run:
            require_plain_folder(Path(name), writes=True)
    lists = [_list_of(options, trained, out) for trained, out in zip(runs, outs)]
    bags = read_together(runs, lambda trained: read_for(trained, options.data, console=console, **options.values))
    part = _part(options.bags, len(bags[0]))
    for out, run_bags in zip(outs, bags):
        keep_sources(run_bags, str(out), "--out", folder=False)
        keep_other(out)
    folder = None if options.instances is None else Path(options.instances)
    if folder is not None:
        keep_sources(bags[0], options.instances, "--instances", folder=True)
    replaced = {out for out in outs if out.is_file()}
    with ExitStack() as stack:
        files = [out if options.out is None or is_stream(out) else resolved(out) for out in outs]
        journals = [None if is_stream(out) else stack.enter_context(journal_of(file)) for out, file in zip(outs, files)]
        tables = [
            ScoreTable(trained, run_bags, part, instances=folder, journal=journal)
            for trained, run_bags, journal in zip(runs, bags, journals)
        ]
        require_score_space(tables, outs)
        _score(tables, console)
        for out, table in zip(outs, tables):
            write_parts(out, table.content(), typed=options.out is not None)
        entries = [[] if one is None else one.write(table, console) for one, table in zip(lists, tables)]
        for table in tables:
            if table.journal is not None:
                table.journal.remove()
    # A stream gets the scores and nothing else.
    messages = console if is_stream(outs[0]) else stdout_console()
    if not is_stream(outs[0]):
        tell_left_out(bags[0], outs[0], messages)
    note_result(scores=outs, bags=len(part))
    for out, trained in zip(outs, runs):
        for note in trained.target.notes(trained.decision):
            remark(messages, note)
        _tell_class(trained, messages)
        earlier = ", instead of earlier scores" if out in replaced else ""
        messages.print(f"{plural(len(part), 'bag')} scored: {escape(str(out))}{earlier}")
    results = [one.tell(calls, len(part)) for one, calls in zip(lists, entries) if one is not None]
    if results:
        note_result(why=results[0] if len(results) == 1 else results)
    return 0


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


def _score(tables: "list[ScoreTable]", console: Console) -> None:
    """Score the missing rows of all tables; instances that several runs share are read once."""
    from midam.report.terminal import BagProgress
    from midam.runs.scoring import passes, score_instances, score_tables

    for table in tables:
        if table.journal is not None and table.done:
            count = plural(table.done, "bag")
            console.print(f"{escape(str(table.journal.path))} holds the scores of {count}: continuing from there")
    groups = passes(tables)
    if len(groups) > 1:
        console.print(f"{len(groups)} passes: not all of the runs take the same instances in the same chunks")
    try:
        for group in groups:
            first, part = group[0], group[0].part
            with BagProgress("scoring", first.bags.sizes[part.start : part.stop], console=console) as bar:

                def done(bags: Any, start: int = part.start, bar: BagProgress = bar) -> None:
                    bar.update_all([i - start for i in bags])

                if first.instances is None:
                    score_tables(group, on_bags=done)
                else:
                    score_instances(first, on_bags=done)
    except KeyboardInterrupt:
        progress = [f"{each.journal.path} holds {each.done}" for each in tables if each.journal and each.done]
        if not progress:
            raise
        text = f"stopped; {', '.join(progress)} of {plural(len(tables[0].part), 'bag')}"
        raise RunStoppedError(f"{text}. The same command continues from there") from None
