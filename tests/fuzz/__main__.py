"""`python -m tests.fuzz inputs`: damaged inputs; `kills`: commands killed; `ranks`, `endings`: of several processes."""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.fuzz import endings, lost_ranks
from tests.fuzz.campaign import BAD, OUTCOMES, Found, campaign, replay
from tests.fuzz.endings import end_often
from tests.fuzz.lost_ranks import lose_processes
from tests.fuzz.samples import samples
from tests.fuzz.torture import FAULTS, JOBS, torture

_CONSOLE = Console(highlight=False, soft_wrap=True, markup=False, width=160)


def main() -> int:
    """Run; returns 1 where anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    inputs = commands.add_parser("inputs", help="damaged inputs of every format")
    inputs.add_argument("--count", type=int, help="number of inputs")
    inputs.add_argument("--minutes", type=float, help="how long; default: 30, unless a count is given")
    inputs.add_argument(
        "--keep", type=Path, default=Path("runs/fuzz"), metavar="DIR", help="takes the inputs that fail"
    )
    again = commands.add_parser("replay", help="read an input that was kept again")
    again.add_argument("place", type=Path)
    kills = commands.add_parser("kills", help="commands killed, continued and compared with undisturbed ones")
    kills.add_argument("--count", type=int, default=200, help="at least so many kills")
    ranks = commands.add_parser("ranks", help="runs of several processes, of which one is killed")
    ranks.add_argument("--count", type=int, default=10, help="so many kills, of each process by turns")
    ranks.add_argument("--devices", type=int, default=2, help="processes")
    ended = commands.add_parser("endings", help="runs of several processes that end in every way, on busy cores")
    ended.add_argument("--count", type=int, default=100, help="so many endings, each way by turns")
    ended.add_argument("--devices", type=int, default=3, help="processes")
    ended.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="processes that never rest next to them")
    for one in (ranks, ended):
        one.add_argument("--seed", type=int, default=0, help="another number gives other moments")
    for one, known in ((inputs, samples()), (kills, [job.name for job in JOBS])):
        one.add_argument("--seed", type=int, default=0, help="another number gives others")
        one.add_argument("--only", default="", metavar="A,B,...", help=f"of: {', '.join(known)}")
        one.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time; default: one a core")
    options = parser.parse_args()
    ways = {"inputs": _inputs, "replay": _replay, "kills": _kills, "ranks": _ranks, "endings": _endings}
    return ways[options.command](options)


def _inputs(options: argparse.Namespace) -> int:
    def tell(found: Found, number: int) -> None:
        if found.outcome in BAD:
            place = options.keep / f"{found.made.sample.replace(' ', '-')}-{found.made.number}"
            _CONSOLE.print(f"{found.outcome}: {found.made.way}; again: python -m tests.fuzz replay {place}")
        elif number and not number % 500:
            _CONSOLE.print(f"{number} inputs")

    minutes = 30.0 if options.minutes is None and options.count is None else options.minutes
    how = {"seed": options.seed, "count": options.count, "minutes": minutes, "jobs": options.jobs}
    counts = campaign(**how, names=_words(options.only), keep=options.keep, on_found=tell)
    return _show("format", counts, OUTCOMES, BAD, sums=True)


def _replay(options: argparse.Namespace) -> int:
    found = replay(options.place)
    _CONSOLE.print(json.dumps({"outcome": found.outcome, **found.answer}, indent=2))
    return int(found.outcome in BAD)


def _kills(options: argparse.Namespace) -> int:
    tallies = torture(options.count, seed=options.seed, jobs=options.jobs, names=_words(options.only))
    for tally in tallies.values():
        for text in tally.said:
            _CONSOLE.print(text)
    return _show("command", {name: tally.counts for name, tally in tallies.items()}, ("kills", *FAULTS), FAULTS)


def _ranks(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="midam-ranks-") as folder:
        found = lose_processes(Path(folder), options.count, seed=options.seed, devices=options.devices)
    for text in found.said:
        _CONSOLE.print(text)
    kills = ", ".join(f"process {rank}: {count}" for rank, count in sorted(found.kills.items()))
    faults = ", ".join(f"{name} {found.faults[name]}" for name in lost_ranks.FAULTS)
    _CONSOLE.print(f"kills: {kills}; {faults}; the others ended within {found.longest_s:.1f} s")
    return int(found.faults.total() > 0)


def _endings(options: argparse.Namespace) -> int:
    how = {"seed": options.seed, "devices": options.devices, "busy": options.busy}
    with tempfile.TemporaryDirectory(prefix="midam-endings-") as folder:
        found = end_often(Path(folder), options.count, **how)
    for text in found.said:
        _CONSOLE.print(text)
    ways = ", ".join(f"{way} {count}" for way, count in found.ways.items())
    _CONSOLE.print(f"endings: {ways}; {', '.join(f'{name} {found.faults[name]}' for name in endings.FAULTS)}")
    return int(found.faults.total() > 0)


def _show(
    title: str, counts: Mapping[str, Counter[str]], columns: Sequence[str], bad: Sequence[str], *, sums: bool = False
) -> int:
    """Print the counts; returns 1 where a bad one is not 0."""
    total = sum(counts.values(), Counter[str]())
    table = Table(title, *columns, *(["all"] if sums else []), box=None)
    for name, row in [*counts.items(), ("all", total)]:
        table.add_row(name, *(str(row[column]) for column in columns), *([str(row.total())] if sums else []))
    _CONSOLE.print(table)
    return int(any(total[name] for name in bad))


def _words(text: str) -> list[str] | None:
    return [word.strip() for word in text.split(",") if word.strip()] or None


if __name__ == "__main__":
    sys.exit(main())
