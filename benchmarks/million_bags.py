"""Scoring of a million bags of ten instances: time and memory, kills, several runs in one pass.

    python benchmarks/million_bags.py --write

An instance is 8 normal numbers (float16); every second bag has one shifted instance. The bags are in a store. The run
is one scorer with the default settings, trained for five epochs on 400 other bags; the other runs have another seed and
another pooling or estimator.

Each figure is from a call of `midam predict` in a separate process, with one thread: seconds from its start to its end,
imports included, and its highest resident memory, which the kernel records (VmHWM). Bytes a bag: the difference of the
highest memory between the processes with the most and the fewest bags, divided by the difference of their bags.

- Killed: the process gets SIGKILL a random time (up to 0.2 s) after a random share of all groups of bags is on the
  disk, with fixed seeds. In one pass this share is all groups, while the file is written; one pass is killed three
  times. Then the same command continues to its end, and its file is compared with the file of the pass that was not
  killed.
- Several runs: in one call, and one after the other; the two ways take turns.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.million_bags_calls import (
    RUNS,
    SIZE,
    WIDTH,
    Plan,
    kill_passes,
    make_runs,
    plan_of,
    score_passes,
    score_together,
)
from benchmarks.shared import MIB, RESULTS, measured_on

from midam.report.figures import new_figure
from studies.drawing import COLORS, save_figure

PAGE = RESULTS / "million-bags.md"


def measure(plan: Plan, folder: Path) -> dict[str, Any]:
    """Return all figures of a plan; the files are in a folder."""
    runs = make_runs(folder, plan)
    run = next(iter(runs.values()))
    found: dict[str, Any] = {}
    for name, take in {
        "passes": lambda: score_passes(plan, run, folder),
        "kills": lambda: kill_passes(plan, run, folder),
        "together": lambda: score_together(plan, runs, folder),
    }.items():
        found[name] = take()
        print(json.dumps({name: found[name]}), file=sys.stderr, flush=True)
    return found


def bytes_a_bag(passes: list[dict[str, Any]]) -> float:
    """Return the growth of the highest memory for each bag, from the fewest bags to the most."""
    least, most = passes[0], passes[-1]
    return float((most["peak_mib"] - least["peak_mib"]) * MIB / (most["bags"] - least["bags"]))


def ratio(together: dict[str, Any]) -> float:
    """Return the seconds of all runs in one pass, divided by the seconds one after the other; median over turns."""
    return float(statistics.median(row["together"] / row["alone"] for row in together["rows"]))


def verdicts(found: dict[str, Any]) -> list[str]:
    """Return what the figures show."""
    passes, kills, together = (found[name] for name in ("passes", "kills", "together"))
    most, grown = passes[-1], bytes_a_bag(passes)
    count, equal = sum(len(row["held"]) for row in kills), sum(row["same"] for row in kills)
    return [
        f"- {number(most['bags'])} bags, {number(most['bags'] * SIZE)} instances, in one pass: {most['seconds']:.0f} "
        f"s, at most {most['peak_mib']:.0f} MiB; a process that scores {number(passes[0]['bags'])} bags takes "
        f"{passes[0]['peak_mib']:.0f} MiB. A bag more takes {grown:.0f} bytes.",
        f"- Killed {count} times in {len(kills)} passes: {equal} of {len(kills)} files are to the byte that of the "
        f"pass that was not killed. Aim: all. {met(equal == len(kills))}",
        f"- {len(RUNS)} runs in one pass take {ratio(together):.2f} of the time of one after the other, and write "
        f"{'the very bytes' if together['same'] else 'other bytes'}. Aim: the very bytes. {met(together['same'])}",
    ]


def met(yes: bool) -> str:
    """Return the word for a verdict."""
    return "Met." if yes else "Missed."


def number(count: int) -> str:
    """Return a whole number with its thousands separated."""
    return f"{count:,}".replace(",", " ")


def tables(found: dict[str, Any], plan: Plan) -> list[str]:
    """Return Markdown tables, and the messages of a pass."""
    passes, most = found["passes"], number(plan.bags)
    lines = ["## One pass", "", "| bags | s | bags a second | highest memory, MiB | store, MB | file, MB |"]
    lines.append("|---:|---:|---:|---:|---:|---:|")
    for row in passes:
        speed = number(round(row["bags"] / row["seconds"]))
        sizes = f"{row['store_bytes'] / 1e6:.1f} | {row['bytes'] / 1e6:.1f}"
        lines.append(f"| {number(row['bags'])} | {row['seconds']:.1f} | {speed} | {row['peak_mib']:.0f} | {sizes} |")
    said = passes[-1]["said"].strip().splitlines()[:-1]  # the last line has a path of this machine
    lines += ["", "What it says where the output is no terminal:", "", "```text", *said, "```", ""]
    lines += [f"## Killed, of {most} bags", ""]
    lines += ["| bags on the disk when killed | s to go on to the end | highest memory, MiB | same bytes |"]
    lines.append("|---|---:|---:|---|")
    for row in found["kills"]:
        held, same = ", then ".join(map(number, row["held"])), "yes" if row["same"] else "no"
        lines.append(f"| {held} | {row['seconds']:.1f} | {row['peak_mib']:.0f} | {same} |")
    lines.append("")
    lines += [f"## {len(RUNS)} runs, {number(plan.together)} bags", ""]
    lines += ["| turn | one after the other, s | in one pass, s | ratio |", "|---:|---:|---:|---:|"]
    for turn, row in enumerate(found["together"]["rows"], start=1):
        share = f"{row['together'] / row['alone']:.2f}"
        lines.append(f"| {turn} | {row['alone']:.1f} | {row['together']:.1f} | {share} |")
    return [*lines, ""]


def page(found: dict[str, Any], plan: Plan, command: str) -> str:
    """Return the results page."""
    return "\n".join(
        [
            "# Scoring a million bags",
            "",
            *verdicts(found),
            "",
            "![Highest memory and time against the number of bags](million-bags.png)",
            "",
            f"- Command: `{command}`",
            f"- {measured_on()}",
            f"- Bags of {SIZE} instances of {WIDTH} float16. Other work on the machine lengthens the seconds; the "
            "ratio of the runs is of turns that follow each other.",
            "",
            *tables(found, plan),
            "## What is measured",
            "",
            (__doc__ or "").split("\n\n", 2)[2].strip(),
            "",
        ]
    )


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the highest memory on the left and the seconds on the right, against the number of bags."""
    passes = found["passes"]
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
    plan = plan_of(options.bags)
    if options.measured:
        found = json.loads(options.measured.read_text(encoding="utf-8"))
    else:
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            found = measure(plan, Path(folder))
    print("\n".join(verdicts(found)))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.write:
        asked = [] if options.bags == parser.get_default("bags") else [f"--bags {options.bags}"]
        command = " ".join(["python benchmarks/million_bags.py", *asked, "--write"])
        PAGE.write_text(page(found, plan, command), encoding="utf-8")
        draw(found, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
