"""The page of a study: its content, its command, its machine, and its tables and figures."""

import datetime
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from midam import __version__
from midam.files import write_text
from studies.engine import Store
from studies.options import StudyOptions

# Heading of the last part of a page: command, machine, time, seeds.
MADE = "## How this page was made"
_UNPUBLISHED = "- Trials: not published. To check a figure, run the command again."


def write_page(
    options: StudyOptions,
    name: str,
    *,
    title: str,
    shows: str,
    seeds: str,
    seconds: float,
    body: Iterable[str],
    made: Iterable[str] = (),
    store: Store | None = None,
    tried: bool = True,
    study: str | None = None,
) -> Path:
    """Write ``OUT/NAME.md`` completely or not at all.

    The results come first, and the way the page was made last, with the entries `made` at the end of its list. The
    trials of a complete study are published with its page; without a `store`, the page says that they are not, if any
    were `tried`.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> page = write_page(StudyOptions(out=folder), "demo", title="Demo", shows="Nothing.", seeds="0", seconds=1.0,
    ...                   body=["Text."])
    >>> page.name, page.read_text().splitlines()[0]
    ('demo.md', '# Demo')
    """
    small = ["**Quick version: a part of the study.**", ""] if options.quick and not options.smaller else []
    small = ["**A trial of the command in seconds: no figure here means anything.**", ""] if options.smaller else small
    options.out.mkdir(parents=True, exist_ok=True)
    published = [_UNPUBLISHED] if tried and store is None and not options.quick else []
    published += [] if store is None or options.quick else [_publish(store, options.out)]
    lines = [
        f"# {title}",
        "",
        shows,
        "",
        *small,
        "\n".join(body).rstrip("\n"),
        "",
        MADE,
        "",
        f"- Command: `{options.command(study or name)}`",
        f"- {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, midam {__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}",
        f"- Machine: {machine()}; {options.jobs} process{'es' if options.jobs > 1 else ''} at a time, one thread each",
        f"- Wall time of the computation: {duration(seconds) if seconds else 'not noted, since it was stopped'}",
        f"- Seeds: {seeds}",
        *published,
        *made,
        "",
    ]
    path = options.out / f"{name}.md"
    write_text(path, "\n".join(lines))
    return path


def figure_path(options: StudyOptions, name: str, part: str = "") -> Path:
    """Return the path of a figure of the page, ``OUT/NAME.png`` or ``OUT/NAME-PART.png``; makes the folder."""
    options.out.mkdir(parents=True, exist_ok=True)
    return options.out / f"{name}{'-' if part else ''}{part}.png"


def section(title: str, *parts: str | Sequence[str]) -> list[str]:
    """Return a heading and paragraphs or lines, each followed by an empty line.

    Examples
    --------
    >>> section("Time", "None.", ["- a", "- b"])
    ['## Time', '', 'None.', '', '- a', '- b', '']
    """
    lines = [f"## {title}", ""]
    for part in parts:
        lines += [part, ""] if isinstance(part, str) else [*part, ""]
    return lines


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table; the first column is aligned to the left, the others to the right.

    Examples
    --------
    >>> table(["a", "b"], [["x", "1"]])
    ['| a | b |', '|---|---:|', '| x | 1 |']
    """
    rule = "|---|" + "---:|" * (len(head) - 1)
    return [_row(head), rule, *(_row(row) for row in rows)]


def duration(seconds: float) -> str:
    """Return a time as a readable text.

    Examples
    --------
    >>> duration(2.34), duration(75), duration(7330)
    ('2.3 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def machine() -> str:
    """Return the CPU's model and the number of cores that this process may use."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{model}, {cores} core{'s' if cores > 1 else ''}"


def _publish(store: Store, out: Path) -> str:
    where = store.publish(out / "trials").relative_to(out).as_posix()
    return f"- Trials, a line of JSON each: [{where}]({where}); `--trials FILE` carries the study on from there"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
