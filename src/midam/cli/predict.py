"""`midam predict`: score bags with a trained run."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from midam.cli.outputs import keep_other, keep_sources, tell_left_out
from midam.cli.parser import DATA, Options, Parser
from midam.errors import ConfigError, RunStoppedError, plural
from midam.files import is_stream, require_plain_folder, resolved, write_parts
from midam.report.program import note_result, remark, stdout_console

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from midam.cli.why import CallList
    from midam.data.bags import Bags
    from midam.runs.kept_scores import KeptScores
    from midam.runs.loaded import LoadedRun

# Settings that replace those of a run.
TABLES = ("labels", "slides", "bag_column", "label_column", "positive", "sheet", "groups", "missing")


def parser() -> Parser:
    """Return the parser of the command."""
    predict = Parser("predict", "Score bags with a trained run; labels are not needed.")
    add_inputs(predict)
    text = (
        "where to write bag, score, probability, class; a device or pipe, such as /dev/stdout, is written to; default: "
        "predictions.csv in the folder predict-DATA of the run"
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
    from midam.runs.apply import read_for
    from midam.runs.kept_scores import KeptScores, journal_of
    from midam.runs.loaded import load_run
    from midam.runs.results import predictions_parts

    trained, typed = load_run(options.run), bool(options.out)
    out = Path(options.out or f"{options.run}/predict-{Path(options.data).resolve().stem}/predictions.csv")
    if not typed:  # only in a folder that the user named are links followed
        require_plain_folder(Path(options.run), writes=True)
    calls, stream, part = _calls(options, trained, out), is_stream(out), range(0)
    files = [] if calls is None else [("calls", calls.table), ("page", calls.page)]
    keep_other(options, ("scores", out), *files)

    def chosen(bags: "Bags") -> range:
        nonlocal part
        keep_sources(bags, str(out), "--out", folder=False)
        keep_sources(bags, options.instances, "--instances", folder=True)
        part = _part(options.bags, len(bags))
        return part

    with TemporaryDirectory() as temporary:
        place = Path(temporary, "scores") if stream else resolved(out) if typed else out
        with journal_of(place) as journal:
            bags = read_for(trained, options.data, console=console, chosen=chosen, **options.values)
            if len(bags) == len(part):  # of raw files, only these were embedded
                part = range(len(bags))
            folder = None if options.instances is None else Path(options.instances)
            kept = KeptScores(trained, bags, part, instances=folder, journal=journal)
            scores = _score(kept, bags, part, None if stream else journal.path, console)
            earlier = ", instead of earlier scores" if out.is_file() else ""
            content = predictions_parts(bags.subset(part), trained.target, scores, decision=trained.decision)
            write_parts(out, content, typed=typed)
            if calls is not None:
                calls.write(bags, part, scores, console)
            # A stream gets the scores and nothing else.
            messages = console if stream else stdout_console()
            if not stream:
                tell_left_out(bags, out, messages)
    for note in trained.target.notes(trained.decision):
        remark(messages, note)
    _tell_class(trained, messages)
    messages.print(f"{plural(len(part), 'bag')} scored: {escape(str(out))}{earlier}")
    note_result(scores=[out], bags=len(part))
    if calls is not None:
        note_result(why=calls.tell(len(part)))
    return 0


def _score(kept: "KeptScores", bags: "Bags", part: range, path: Path | None, console: Console) -> "NDArray[np.float64]":
    """Return the scores of the bags; a stopped call continues from its journal at `path`, if it has one."""
    from midam.report.terminal import BagProgress

    if kept.done:
        console.print(escape(f"{path} holds the scores of {plural(kept.done, 'bag')}: continuing there"))
    try:
        with BagProgress("scoring", bags.sizes[part.start : part.stop], console=console) as bar:
            return kept.score(bar.update_all)
    except KeyboardInterrupt:
        if path is None or not kept.done:
            raise
        text = f"stopped; {path} holds {kept.done} of {plural(len(part), 'bag')}"
        raise RunStoppedError(f"{text}. The same command continues from there") from None


def _calls(options: Options, run: "LoadedRun", out: Path) -> "CallList | None":
    """Return the list of --why, if it is asked for."""
    if options.why is None and options.top is not None:
        raise ConfigError(f"Expected --why with --top, got --top {options.top} alone; add --why.")
    if options.why is None:
        return None
    from midam.cli.why import CallList

    return CallList(options, run, out)


def _tell_class(trained: "LoadedRun", console: Console) -> None:
    """Print from which score on a bag has the positive class, as that is seldom where the probability is 0.5."""
    if trained.calibrator is not None and trained.threshold is not None:
        probability, name = trained.calibrator.predict([trained.threshold])[0], trained.target.positive
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
