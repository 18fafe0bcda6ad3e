"""``python -m studies NAME``: run a study, and write its page.

Exit codes: 0 done, 2 bad input or settings, 3 trials whose worker died each time, 130 stopped by Ctrl-C or SIGTERM.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from joblib import cpu_count
from rich.console import Console
from rich.markup import escape

from midam.compare.workers import BACKENDS
from midam.errors import ConfigError, MidamError, TrialsLostError, nearest
from midam.report.program import program
from studies.engine import take_published
from studies.options import CACHE, OUT, StudyOptions
from studies.registry import STUDIES, check_study, find_study


class _Parser(argparse.ArgumentParser):
    """Parser that raises errors instead of exiting."""

    def error(self, message: str) -> NoReturn:
        name, _, unknown = message.partition("unrecognized arguments: ")
        if not name and unknown:
            known = [option for action in self._actions for option in action.option_strings]
            raise ConfigError(f"Expected known options, got {unknown}; {nearest(unknown.split()[0], known)}")
        raise ConfigError(f"Expected the name of a study and its options, got: {message}; see --help.")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = "; ".join(f"{name}: {find_study(name).help}" for name in STUDIES.names())
    made = _Parser(
        prog="python -m studies",
        allow_abbrev=False,
        description="Run a study and write its page, DIR/NAME.md, with its figures. Finished trials are kept: a "
        f"stopped study goes on where it was. {names}.",
    )
    made.add_argument("name", help=f"one of {', '.join(STUDIES.names())}")
    made.add_argument("--quick", action="store_true", help="a part of the study that ends in minutes")
    made.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder of the page and figures")
    made.add_argument("--cache", type=Path, default=CACHE, metavar="DIR", help="folder of the finished trials")
    made.add_argument(
        "--trials",
        type=Path,
        metavar="FILE",
        help="published trials to start from, DIR/trials/NAME.jsonl.gz of a page: those that are missing are computed",
    )
    made.add_argument("--jobs", type=int, default=cpu_count(), help="processes at a time; default: one a core")
    text = f"where trials run: {', '.join(BACKENDS)}; default: processes of this machine (loky)"
    made.add_argument("--backend", choices=list(BACKENDS), default="loky", help=text)
    text = "address of the cluster, tcp://HOST:8786 or a scheduler file (dask), HOST:6379 or auto (ray)"
    made.add_argument("--cluster", metavar="ADDRESS", help=text)
    made.add_argument("--margin", type=float, help="margin c of the AUC objectives (table2, ...)")
    made.add_argument("--splits", type=int, help="random splits (table2), or the first folds (league)")
    made.add_argument("--protocol", help="protocol: splits or cv (table2)")
    made.add_argument("--size", help="size: full or small (table3, ...)")
    made.add_argument("--device", help="device: auto, cpu or cuda (table2, table3, ...)")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    with program() as console:
        try:
            _run(argv, console)
            return 0
        except KeyboardInterrupt:
            console.print("[yellow]studies:[/] stopped; the same command goes on from what is finished")
            return 130
        except (MidamError, OSError) as error:
            console.print(f"[red]studies: error:[/] {escape(' '.join(str(error).split()))}")
            return 3 if isinstance(error, TrialsLostError) else 2


def _run(argv: Sequence[str] | None, console: Console) -> None:
    words = vars(parser().parse_args(argv))
    name, trials = words.pop("name"), words.pop("trials")
    options = StudyOptions(**words, console=console)
    study = check_study(name, options, trials=trials)
    if trials is not None:
        count = take_published(trials, options.cache)
        console.print(f"took {count} lines of published trials into {escape(str(options.cache))}")
    study(options)
    sys.stdout.write(f"page: {options.out / name}.md\n")


if __name__ == "__main__":
    sys.exit(main())
