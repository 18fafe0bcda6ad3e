"""Count how often an explanation finds a lesion that was planted in one slice of a scan, by the default commands.

    python benchmarks/planted.py runs/planted --like path/to/a/dicom/series

The scans are those of `examples/planted_scans.py`: 160 patients to train on, half of them with a lesion, and 100 others
with one. The commands are `midam fit` on the folder, and `midam explain` on the folder of the others. It prints how
many top slices are the planted one, and how many peaks of the map of this slice lie on the lesion. Files of an earlier
call are kept, so that a stopped call continues.
"""

import argparse
import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

from midam.cli import main as midam

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from planted_scans import make_template, read_template, write_scans


def find_planted(folder: Path, like: Path | None = None, *, train: int = 160, count: int = 100) -> dict[str, int]:
    """Return the number of positive scans, of right top slices, and of map peaks on the lesion in these slices."""
    template = make_template() if like is None else read_template(like)
    for name, size, positive, seed in (("train", train, train // 2, 0), ("test", count, count, 1)):
        if not (folder / name / "lesions.csv").exists():
            write_scans(folder / name, template, count=size, positive=positive, seed=seed)
    scans, run, why = str(folder / "train"), str(folder / "run"), folder / "why"
    if not (folder / "run" / "summary.json").exists():
        _call("fit", scans, "--labels", f"{scans}/labels.csv", "--seed", "0", "--out", run)
    if not _finished(why):
        _call("explain", run, str(folder / "test"), "--bags", "all", "--out", str(why))
    entries = json.loads((why / "explain.json").read_text())["bags"]
    with (folder / "test" / "lesions.csv").open(newline="") as file:
        lesions = {row["patient"]: row for row in csv.DictReader(file)}
    pairs = [(entry["instances"][0], lesions[entry["bag"]]) for entry in entries]
    slices = [(top["columns"]["instance_number"], int(lesion["instance_number"])) for top, lesion in pairs]
    right = [pair for pair, (shown, planted) in zip(pairs, slices, strict=True) if shown == planted]
    on = sum(_distance(top, lesion) <= float(lesion["radius"]) for top, lesion in right)
    return {"positive": len(pairs), "top slice": len(right), "peak on the lesion": on}


def _distance(top: dict[str, Any], lesion: dict[str, str]) -> float:
    return math.hypot(top["peak_x"] - float(lesion["x"]), top["peak_y"] - float(lesion["y"]))


def _finished(why: Path) -> bool:
    path = why / "explain.json"
    return path.exists() and bool(json.loads(path.read_text())["finished"])


def _call(*words: str) -> None:
    if midam([*words]):
        raise SystemExit(f"midam {' '.join(words)} failed")


def main() -> None:
    """Print the counts for the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--like", type=Path, help="folder of a DICOM series, which the patients resemble")
    parser.add_argument("--train", type=int, default=160)
    parser.add_argument("--count", type=int, default=100, help="positive patients to explain")
    options = parser.parse_args()
    counts = find_planted(options.folder, options.like, train=options.train, count=options.count)
    sys.stdout.write(", ".join(f"{name}: {number}" for name, number in counts.items()) + "\n")


if __name__ == "__main__":
    main()
