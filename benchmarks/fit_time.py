"""Time of `midam fit` by default and with `--method midam`, on each tabular set of the study `defaults`.

    MIDAM_DATA=... python benchmarks/fit_time.py --write

Each figure is the smallest of the repeats, in seconds from the start of a process to its end: imports, reading,
training, scoring, the intervals, the report. The three calls for a set take turns, on a machine without other work.

- bare: `--hidden "[]" --no-baseline`, one method without a minimum width and without a baseline
- midam: `--method midam`, one method with all parts of a run
- default: the result for a user who gives only the data, which is `auto`
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.shared import RESULTS, measured_on
from rich.console import Console
from rich.progress import track

from midam.files import write_text
from studies.page import table
from studies.tabular.defaults_trials import KINDS, SYNTHETIC

PAGE = RESULTS / "fit-time.md"
CALLS: dict[str, list[str]] = {
    "bare": ["--hidden", "[]", "--no-baseline"],
    "midam": ["--method", "midam"],
    "default": [],
}
SETS = tuple(name for kind, names in KINDS.items() if kind != SYNTHETIC for name in names)
_TWICE, _TEN_TIMES, _MINUTES = 2.0, 10.0, 3.0


def seconds_of(data: str, words: list[str]) -> float:
    """Return the seconds of a call of `midam fit`."""
    with tempfile.TemporaryDirectory(prefix="midam-fit-") as folder:
        command = [sys.executable, "-m", "midam.cli", "fit", data, *words, "--seed", "0", "--out", f"{folder}/run"]
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
        seconds = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return seconds


def measure(sets: tuple[str, ...], repeats: int, words: tuple[str, ...] = ()) -> dict[str, dict[str, float]]:
    """Return seconds by set and call; all calls get `words`, except the default call, which makes its own choices."""
    found: dict[str, dict[str, float]] = {}
    turns = [(data, name) for data in sets for _ in range(repeats) for name in CALLS]
    for data, name in track(turns, description="calls", console=Console(stderr=True)):
        seconds = seconds_of(data, [*CALLS[name], *(() if name == "default" else words)])
        own = found.setdefault(data, {})
        own[name] = min(seconds, own.get(name, seconds))
    return found


def page(found: dict[str, dict[str, float]], repeats: int) -> str:
    """Return the text of the page."""
    rows = [
        [
            data,
            *(f"{own[name]:.1f}" for name in CALLS),
            f"{own['midam'] / own['bare']:.2f}",
            f"{own['default'] / own['midam']:.2f}",
        ]
        for data, own in found.items()
    ]
    most = {
        what: max(own[over] / own[under] for own in found.values())
        for what, over, under in (("midam", "midam", "bare"), ("default", "default", "midam"))
    }
    longest = max(found, key=lambda data: found[data]["default"])
    return "\n".join(
        [
            "# The time of `midam fit`",
            "",
            " ".join((__doc__ or "").split("\n\n")[2].split()),
            "",
            (__doc__ or "").split("\n\n")[3].strip(),
            "",
            *table(["set", *(f"{name}, s" for name in CALLS), "midam / bare", "default / midam"], rows),
            "",
            f"`midam` alone takes at most {most['midam']:.2f} times the bare method (wanted: {_TWICE:g}), the default "
            f"at most {most['default']:.2f} times `midam` (wanted: {_TEN_TIMES:g}). The longest default is that of "
            f"{longest}, {found[longest]['default'] / 60:.1f} minutes (wanted on small sets: under {_MINUTES:g}).",
            "",
            f"- Command: `{' '.join(['python', 'benchmarks/fit_time.py', *sys.argv[1:]])}`",
            f"- Repeats of each call: {repeats}",
            f"- {measured_on()}",
            "",
        ]
    )


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2, help="calls of each kind on each set")
    parser.add_argument("--sets", default=",".join(SETS), metavar="A,B,...", help="sets of the catalogue")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    text = page(measure(tuple(options.sets.split(",")), options.repeats), options.repeats)
    print(text)
    if options.write:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
