"""Scoring of a million bags of ten instances: time and memory.

    python benchmarks/million_bags.py --write

An instance is 8 normal numbers (float16); every second bag has one shifted instance. The bags are in a store. The run
is one scorer with the default settings, trained for five epochs on 400 other bags.

Each figure is from a call of `midam predict` in a separate process, with one thread: seconds from its start to its end,
imports included, and its highest resident memory, which the kernel records (VmHWM). Bytes a bag: the difference of the
highest memory between the processes with the most and the fewest bags, divided by the difference of their bags.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.million_bags_calls import SIZE, WIDTH, make_run, score_passes
from benchmarks.shared import MIB, RESULTS, measured_on

from midam.report.figures import new_figure
from studies.drawing import COLORS, save_figure

PAGE = RESULTS / "million-bags.md"


def bytes_a_bag(passes: list[dict[str, Any]]) -> float:
    """Return the growth of the highest memory for each bag, from the fewest bags to the most."""
    least, most = passes[0], passes[-1]
    return float((most["peak_mib"] - least["peak_mib"]) * MIB / (most["bags"] - least["bags"]))


def verdict(passes: list[dict[str, Any]]) -> str:
    """Return what the figures show."""
    least, most = passes[0], passes[-1]
    return (
        f"- {number(most['bags'])} bags, {number(most['bags'] * SIZE)} instances, in one pass: {most['seconds']:.0f} "
        f"s, at most {most['peak_mib']:.0f} MiB; a process that scores {number(least['bags'])} bags takes "
        f"{least['peak_mib']:.0f} MiB. A bag more takes {bytes_a_bag(passes):.0f} bytes."
    )


def number(count: int) -> str:
    """Return a whole number with its thousands separated."""
    return f"{count:,}".replace(",", " ")


def tables(passes: list[dict[str, Any]]) -> list[str]:
    """Return Markdown tables, and the messages of a pass."""
    lines = ["## One pass", "", "| bags | s | bags a second | highest memory, MiB | store, MB | file, MB |"]
    lines.append("|---:|---:|---:|---:|---:|---:|")
    for row in passes:
        speed = number(round(row["bags"] / row["seconds"]))
        sizes = f"{row['store_bytes'] / 1e6:.1f} | {row['bytes'] / 1e6:.1f}"
        lines.append(f"| {number(row['bags'])} | {row['seconds']:.1f} | {speed} | {row['peak_mib']:.0f} | {sizes} |")
    said = passes[-1]["said"].strip().splitlines()[:-1]  # the last line has a path of this machine
    said = passes[-1]["said"].strip().splitlines()[:-1]  # the last line has a path of this machine
    return [*lines, "", "What it says where the output is no terminal:", "", "```text", *said, "```", ""]


def page(passes: list[dict[str, Any]], command: str) -> str:
    """Return the results page."""
    return "\n".join(
        [
            "# Scoring a million bags",
            "",
            verdict(passes),
            "",
            "![Highest memory and time against the number of bags](million-bags.png)",
            "",
            f"- Command: `{command}`",
            f"- {measured_on()}",
            f"- Bags of {SIZE} instances of {WIDTH} float16. Other work on the machine lengthens the seconds.",
            "",
            *tables(passes),
            "## What is measured",
            "",
            (__doc__ or "").split("\n\n", 2)[2].strip(),
            "",
        ]
    )


def draw(passes: list[dict[str, Any]], path: Path) -> None:
    """Draw the highest memory on the left and the seconds on the right, against the number of bags."""
    bags = [row["bags"] / 1e3 for row in passes]
    figure = new_figure((9.6, 3.8))
    left, right = figure.subplots(1, 2)
    left.plot(bags, [row["peak_mib"] for row in passes], marker="o", color=COLORS[0], lw=1.6)
    fewest = passes[0]
    left.axhline(fewest["peak_mib"], color="#6E6E6E", lw=1, ls=":")
    note = f"{number(fewest['bags'])} bags: {fewest['peak_mib']:.0f} MiB"
    left.annotate(note, (bags[-1], fewest["peak_mib"]), xytext=(0, -12), textcoords="offset points", ha="right")
    left.set(ylabel="Highest memory of the process, MiB")
    right.plot(bags, [row["seconds"] for row in passes], marker="o", color=COLORS[1], lw=1.6)
    right.set(ylabel="Seconds of the call")
    for axes, title in ((left, f"{bytes_a_bag(passes):.0f} bytes a bag"), (right, "One thread")):
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        axes.set(xlabel="Bags, thousands")
        axes.set_title(title, loc="left", fontweight="bold")
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bags", type=int, default=1_000_000, help="bags of the largest pass (default: a million)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="take the figures of an earlier call")
    parser.add_argument("--write", action="store_true", help="write records/million-bags.md and its figure")
    parser.add_argument("--scratch", type=Path, help="folder for the files, 0.6 GB (default: the system's)")
    options = parser.parse_args()
    if options.measured:
        passes = json.loads(options.measured.read_text(encoding="utf-8"))
    else:
        counts = sorted({min(1000, options.bags // 10), options.bags // 10, 3 * options.bags // 10, options.bags})
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            passes = score_passes(counts, make_run(Path(folder)), Path(folder))
    print(verdict(passes))
    if options.json:
        options.json.write_text(json.dumps(passes, indent=1) + "\n", encoding="utf-8")
    if options.write:
        asked = [] if options.bags == parser.get_default("bags") else [f"--bags {options.bags}"]
        command = " ".join(["python benchmarks/million_bags.py", *asked, "--write"])
        PAGE.write_text(page(passes, command), encoding="utf-8")
        draw(passes, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
