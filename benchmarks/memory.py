"""Memory of a training step and of scoring a bag, for increasing bag sizes.

    python benchmarks/memory.py --write

Each figure comes from a separate process, minus its memory after the import, when everything is imported and nothing is
built or opened. `anon_mib` is the highest anonymous memory (RssAnon, read every 2 ms from outside), `peak_mib` the
highest resident memory (VmHWM, which the kernel records, reset after the import); both include the building of the
model and the fit of the standardizer. Pages of mapped files are resident but not anonymous: the system frees them when
memory is short, so only anonymous memory must be available.

Bags hold float16 instances of 1024 features: zeros in sparse files. One thread computes; the encoder is one layer of
1024, the default. A training step has 16 bags. Small bags are scored repeatedly, 100 000 instances in total.

glibc keeps freed blocks below a threshold that grows with the freed blocks, up to 32 MB. The memory that it keeps then
depends on the order in which threads free blocks, not on the bags. Thus all processes run with
MALLOC_MMAP_THRESHOLD_=131072, which fixes the threshold at its start value; `midam-usual-malloc` runs without it.

- `midam`: a store read with `reads="pread"`. Training: the trainer, vrsp, 64 instances a bag, ten steps. Scoring:
  `predict` on one bag in chunks of 128, which also the smallest compared bags fill.
- `midam-mmap`: the same store, mapped.
- `midam-chunk-4096`: scoring in chunks of 4096, the default; a bag of fewer instances is a smaller chunk.
- `midam-usual-malloc`: like `midam`, the smallest and the largest figure of three processes.
- `midam-exact-point`, `midam-exact`: two steps of the estimators that stream whole bags, in chunks of 128.
- `libauc`: LibAUC 2.0.1: all bags in memory as arrays of float16, 64 instances of each drawn by its `MIL_sampling`, its
  loss and optimizer, ten steps; scoring by its `MIL_aggregation` on the whole bag, without graph.
- `libauc-mmap`: the same with arrays opened by `np.load(path, mmap_mode="r")`, which its functions accept too.
- `torchmil`: its `ProcessedMILDataset` over .npy files, its collate function, its ABMIL on whole bags and its loss, two
  steps; scoring on one bag, without graph. A batch is cast to float32 after it is assembled.

A process that exceeds 8192 MiB is ended, and larger bags are then not tried.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.memory_members import BAGS, MEMBERS, USUAL, Member, child, make_files
from benchmarks.shared import RESULTS, measured_on, memory_mib

from midam.report.figures import new_figure
from studies.drawing import COLORS, DASHES, MARKERS, add_legend, save_figure

PAGE = RESULTS / "memory.md"
SIZES = (10**2, 10**3, 10**4, 10**5, 10**6)
LIMIT_MIB = 8192
FLAT_FROM, FLAT = 10**3, 1.05
_LOOK_S = 0.002


def measure(case: str, who: str, size: int, folder: Path) -> dict[str, Any]:
    """Return one row: the memory of a process that works on the files of a folder."""
    command = [sys.executable, __file__, "--child", case, who, str(folder)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    if who != USUAL:
        env["MALLOC_MMAP_THRESHOLD_"] = str(1 << 17)
    row: dict[str, Any] = {"case": case, "who": who, "bag_size": size, "anon_mib": None, "peak_mib": None}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env
        ) as process,
    ):
        try:
            first = process.stdout.readline()
            if first:
                _watch(process, json.loads(first), row)
        finally:
            process.kill()
        if row["peak_mib"] is None and "failed" not in row:
            process.wait()
            errors.seek(0)
            said = errors.read().strip().splitlines()
            row["failed"] = said[-1] if said else f"ended with {process.returncode}"
    return row


def range_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row of one or more processes: the largest figures, and with several processes also the smallest."""
    if len(rows) == 1:
        return rows[0]
    if any("failed" in row for row in rows):
        return next(row for row in rows if "failed" in row)
    smallest = {f"least_{name}": min(row[name] for row in rows) for name in ("anon_mib", "peak_mib")}
    largest = {name: max(row[name] for row in rows) for name in ("anon_mib", "peak_mib")}
    return {**rows[0], **largest, **smallest}


def _watch(process: subprocess.Popen[str], base: dict[str, float], row: dict[str, Any]) -> None:
    """Watch the memory of the process until it ends or exceeds the limit."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    highest = 0.0
    for now in _looks(process):
        highest = max(highest, now["RssAnon"] - base["RssAnon"])
        row["seconds"] = now["seconds"]
        if highest > LIMIT_MIB:
            row["failed"] = f"passed {LIMIT_MIB} MiB"
            return
        if now["done"]:
            row["anon_mib"], row["peak_mib"] = highest, now["VmHWM"] - base["VmHWM"]


def _looks(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    started = time.perf_counter()
    done = False
    while not done:
        said, _, _ = select.select([process.stdout], [], [], _LOOK_S)
        try:
            found = memory_mib(process.pid)
        except (FileNotFoundError, ProcessLookupError):
            return
        if "RssAnon" not in found:  # The process has ended, but nobody has waited for it yet.
            return
        done = bool(said) and process.stdout.readline() == "done\n"
        yield {**found, "seconds": time.perf_counter() - started, "done": done}
        if said and not done:
            return


def measure_all(
    sizes: tuple[int, ...], scratch: Path, members: tuple[Member, ...], known: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return known and measured rows, size after size; a failed other library is not tried with larger bags."""
    rows = list(known)
    done = {(row["case"], row["who"], row["bag_size"]) for row in rows}
    failed = {(row["case"], row["who"]) for row in rows if "failed" in row}
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            for member in members:
                key = (member.case, member.who)
                if size > member.largest or key in failed or (*key, size) in done:
                    continue
                folder = Path(name) / member.files
                if not folder.exists():
                    make_files(folder, member.files, size)
                times = 3 if member.who == USUAL else 1
                rows.append(range_of([measure(*key, size, folder) for _ in range(times)]))
                print(json.dumps(rows[-1]), flush=True)
                if "failed" in rows[-1]:
                    if member.who.startswith("midam"):
                        raise SystemExit(f"{member.case}, {member.who}, bags of {size}: {rows[-1]['failed']}")
                    failed.add(key)
    return rows


def flatness(rows: list[dict[str, Any]], case: str, who: str, column: str) -> float | None:
    """Return largest over smallest value for bags of at least 1000 instances; None for fewer than two values."""
    found = [
        row[column]
        for row in rows
        if (row["case"], row["who"]) == (case, who) and row["bag_size"] >= FLAT_FROM and row[column] is not None
    ]
    return max(found) / min(found) if len(found) > 1 else None


def table(rows: list[dict[str, Any]], case: str, column: str) -> list[str]:
    """Return the Markdown table of one case, with a row for each member and a column for each bag size."""
    sizes = sorted({row["bag_size"] for row in rows})
    head = [f"{size:,}".replace(",", " ") for size in sizes]
    lines = [f"| | {' | '.join(head)} | largest / smallest from 1000 on |", "|---" + "|---:" * (len(sizes) + 1) + "|"]
    for who in [member.who for member in MEMBERS if member.case == case]:
        cells = []
        for size in sizes:
            row = next((r for r in rows if (r["case"], r["who"], r["bag_size"]) == (case, who, size)), None)
            if row is None:
                cells.append("")
            else:
                least = f"{row[f'least_{column}']:.1f} to " if f"least_{column}" in row else ""
                cells.append(row.get("failed", "").replace("|", "/") or f"{least}{row[column]:.1f}")
        ratio = flatness(rows, case, who, column)
        lines.append(f"| {who} | {' | '.join(cells)} | {'' if ratio is None else f'{ratio:.3f}'} |")
    return lines


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """Return what the rows show about the aim."""
    names = {"anon_mib": "anonymous memory", "peak_mib": "peak resident memory"}
    said = []
    for case, what in (("train", 'Training, reads="pread"'), ("score", 'Scoring in chunks of 128, reads="pread"')):
        for column, name in names.items():
            ratio = flatness(rows, case, "midam", column)
            if ratio is not None:
                said.append(
                    f"- {what}, {name} of `midam` from 1000 instances a bag on: the largest is {ratio:.3f} times the "
                    f"smallest. Aim: at most {FLAT:g}. {'Met' if ratio <= FLAT else 'Missed'}."
                )
    return said


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw anonymous memory against bag size, training on the left, scoring on the right."""
    figure = new_figure((9.6, 4.2))
    names = ("midam", "libauc", "torchmil", "midam-exact-point", "midam-exact", "midam-mmap", "libauc-mmap")
    for axes, case, title in zip(figure.subplots(1, 2, sharey=True), ("train", "score"), ("Training", "Scoring a bag")):
        for who in names:
            # Mapped files have the color of the same reader, with hollow markers.
            style, fill = names.index(who.removesuffix("-mmap")), "none" if who.endswith("-mmap") else "full"
            own = [row for row in rows if (row["case"], row["who"]) == (case, who)]
            known = [(row["bag_size"], row["anon_mib"]) for row in own if row["anon_mib"] is not None]
            look = {"color": COLORS[style], "linestyle": DASHES[style]}
            if known:
                axes.plot(*zip(*known), marker=MARKERS[style], fillstyle=fill, markersize=5, lw=1.6, label=who, **look)
            for row in own:
                if row.get("failed", "").startswith("passed"):
                    path_to = [known[-1], (row["bag_size"], LIMIT_MIB)] if known else [(row["bag_size"], LIMIT_MIB)]
                    axes.plot(*zip(*path_to), lw=1.2, alpha=0.6, **look)
                    axes.plot(row["bag_size"], LIMIT_MIB, marker="x", markersize=9, mew=2, color=look["color"])
        axes.axhline(LIMIT_MIB, color="#6E6E6E", lw=1, ls=":", label="limit (x: passed)")
        axes.set(xscale="log", yscale="log", xlabel="Instances a bag")
        axes.set_title(title, loc="left", fontweight="bold")
    figure.axes[0].set_ylabel("Highest anonymous memory\nabove the bare import, MiB")
    add_legend(figure, columns=4)
    save_figure(figure, path)


def page(rows: list[dict[str, Any]], command: str) -> str:
    """Return the results page."""
    tables = []
    for case, what in (("train", "Training"), ("score", "Scoring one bag")):
        tables += [f"## {what}", "", "Anonymous memory, MiB:", "", *table(rows, case, "anon_mib"), ""]
        tables += ["Peak resident memory, MiB:", "", *table(rows, case, "peak_mib"), ""]
    return "\n".join(
        [
            "# Memory against the size of the bags",
            "",
            *verdicts(rows),
            "",
            "![Highest anonymous memory against instances a bag](memory.png)",
            "",
            f"- Command: `{command}`",
            f"- {measured_on()}",
            f"- {BAGS} bags, whatever their size.",
            "",
            *tables,
            "## What is measured",
            "",
            (__doc__ or "").split("\n\n", 2)[2].strip(),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    parser.add_argument("--write", action="store_true", help="write records/memory.md and its figure")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="instances a bag")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="keep the rows that an earlier call wrote")
    parser.add_argument("--who", nargs="+", help="only these (not for the page)")
    parser.add_argument("--scratch", type=Path, help="folder for the sparse files (default: the system's)")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1], Path(options.child[2]))
        return
    members = tuple(member for member in MEMBERS if not options.who or member.who in options.who)
    known = json.loads(options.measured.read_text(encoding="utf-8"))["rows"] if options.measured else []
    rows = measure_all(tuple(options.sizes), options.scratch or Path(tempfile.gettempdir()), members, known)
    print("\n".join(verdicts(rows)))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    if options.write:
        PAGE.write_text(page(rows, "python benchmarks/memory.py --write"), encoding="utf-8")
        draw(rows, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
