"""Speed and memory of `midam embed`: compared with the bare network, and for growing bags.

    MIDAM_DATA=... python benchmarks/embed.py --write

Speed: `midam.embed_bags` reads, decodes, scales, runs the network and writes; the bare network gets the same tensors
from memory. The two take turns in one process, with the same threads, and change their order each turn; the result is
the median ratio of the turns. Waiting is the share of the time of `embed_bags` in which the network does not run.

Memory: one bag with an increasing number of tiles of 320 x 320 (100 cells each), JPEG files of one patient. Each figure
comes from a separate process, and is its highest anonymous memory (RssAnon, read every 1 ms).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.shared import RESULTS, AnonymousPeak, measured_on

import midam
from midam.data.bags import Bags
from midam.files import write_text
from midam.imaging.network import Network
from midam.settings.data import CutSettings
from studies.sets import catalog

PAGE = RESULTS / "embed.md"
NETWORK = "efficientnet-lite0"
SETS = {"breast": 10, "colon": 120, "adrenal": 40}  # number of bags of each set that are embedded
TILES = (1, 10, 100, 1000)
_SIDE = 320  # pixels of a tile side: 100 cells
TURNS = 5
_BUSY = (
    " Other programs kept the machine busy: single turns scatter, and a share above 100% says no more than that "
    "nothing was lost."
)


def load(name: str, count: int, network: Network) -> Bags:
    """Return some bags of a set, cut as `midam embed` cuts them."""
    stride = network.stride or 32
    bags = catalog.load(name) if name == "adrenal" else catalog.load(name, images=CutSettings(patch_size=stride))
    return bags.subset(np.linspace(0, len(bags) - 1, count).astype(int).tolist())


class Recorded:
    """Record the inputs of a network and the seconds of each pass, while the block runs."""

    def __init__(self, network: Network) -> None:
        self.network, self.calls, self.seconds = network, list[tuple[str, torch.Tensor]](), 0.0
        self._inside = False

    def __enter__(self) -> "Recorded":
        for name in ("maps", "vectors"):
            setattr(self.network, name, self._keeping(name))
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("maps", "vectors"):
            delattr(self.network, name)

    def _keeping(self, name: str) -> Any:
        passed = getattr(self.network, name)

        def keep(images: torch.Tensor) -> torch.Tensor:
            if self._inside:  # vectors may call maps
                inner: torch.Tensor = passed(images)
                return inner
            self._inside, started = True, time.perf_counter()
            found: torch.Tensor = passed(images)
            self._inside, self.seconds = False, self.seconds + time.perf_counter() - started
            self.calls.append((name, images))
            return found

        return keep


def speed(name: str, count: int) -> dict[str, float]:
    """Return medians over some turns: seconds of both ways, their ratio, and the share of waiting in the time."""
    network = midam.load_network(NETWORK)
    bags = load(name, count, network)
    turns: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:

        def embed(turn: str) -> Recorded:
            with Recorded(network) as recorded:
                midam.embed_bags(bags, network, Path(folder) / turn)
            return recorded

        calls = embed("first").calls
        for number in range(TURNS):
            turn: dict[str, float] = {}
            for way in ("embed", "bare") if number % 2 else ("bare", "embed"):
                started, used = time.perf_counter(), time.process_time()
                if way == "embed":
                    passed = embed(str(number)).seconds
                else:
                    with torch.inference_mode():
                        for kind, images in calls:
                            getattr(network, kind)(images)
                turn[way], turn[f"{way} cpu"] = time.perf_counter() - started, time.process_time() - used
            turn["cpu"] = turn["bare cpu"] / turn["embed cpu"]
            turns.append(turn | {"share": turn["bare"] / turn["embed"], "waiting": 1 - passed / turn["embed"]})
    medians = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    shares = [turn["share"] for turn in turns]
    return medians | {"least": min(shares), "most": max(shares), "instances": float(bags.num_instances)}


def memory(tiles: int) -> dict[str, float]:
    """Return the memory peak of a process that embeds one bag of `tiles` tiles."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "tiles"
        folder.mkdir()
        pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((_SIDE, _SIDE)).save(folder / "0.jpg")
        for number in range(1, tiles):
            shutil.copy(folder / "0.jpg", folder / f"{number}.jpg")
        lines = ["file,patient,label", *(f"{number}.jpg,one,1" for number in range(tiles))]
        (folder / "labels.csv").write_text("\n".join(lines) + "\n")
        network = midam.load_network(NETWORK)
        cut = CutSettings(patch_size=network.stride or 32)
        bags = midam.read_bags(folder, labels=folder / "labels.csv", images=cut, bag_by="patient")
        started = time.perf_counter()
        with AnonymousPeak(every_s=0.001) as peak:
            midam.embed_bags(bags, network, Path(name) / "store")
        return {"mib": peak.mib, "seconds": time.perf_counter() - started, "cells": float(bags.sizes.max())}


def in_process(*words: str, **environment: str) -> dict[str, float]:
    """Run this file in a separate process, and return what it prints."""
    command = [sys.executable, str(Path(__file__).resolve()), "--one", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def page(speeds: dict[str, dict[str, float]], peaks: list[dict[str, float]], load: tuple[float, float]) -> str:
    """Return the text of the page; `load` is the load of the machine before and after."""
    least, most = min(row["mib"] for row in peaks), max(row["mib"] for row in peaks)
    lowest, waiting = (pick(row[key] for row in speeds.values()) for pick, key in ((min, "share"), (max, "waiting")))
    return "\n".join(
        [
            "# Speed and memory of `midam embed`",
            "",
            f"Images and slices pass once through {NETWORK} and become vectors in a store. How much slower is that "
            "than the bare network on tensors that wait in memory, and how does memory grow with a bag?",
            "",
            f"- Command: `python benchmarks/embed.py --write`, {torch.get_num_threads()} threads",
            f"- {measured_on()}. Load of the machine when it began {load[0]:.1f}, when it ended {load[1]:.1f} (of "
            f"{os.cpu_count()} cores)",
            "",
            "| set | bags | instances | embed, s | bare, s | share of its speed | least to most | by CPU | waiting |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
            *(
                f"| {name} | {SETS[name]} | {row['instances']:.0f} | {row['embed']:.2f} | {row['bare']:.2f} | "
                f"{row['share']:.1%} | {row['least']:.1%} to {row['most']:.1%} | {row['cpu']:.1%} | "
                f"{row['waiting']:.1%} |"
                for name, row in speeds.items()
            ),
            "",
            f"Embedding has at least {lowest:.1%} of the bare network's speed (wanted: 85%), and the network waits for "
            f"at most {waiting:.1%} of the time (wanted: 5%). Both take turns, each figure is the median of {TURNS} "
            "turns, and the share that of the ratios of each turn; by CPU it is that of the seconds of the processor, "
            "which other programs on the machine change less. Threads that wait do not spin (OMP_WAIT_POLICY=passive)."
            + (_BUSY if max(load) > (os.cpu_count() or 1) else ""),
            "",
            "| cells of one bag | tiles | peak memory, MiB | seconds |",
            "|---:|---:|---:|---:|",
            *(
                f"| {row['cells']:.0f} | {tiles} | {row['mib']:.0f} | {row['seconds']:.1f} |"
                for tiles, row in zip(TILES, peaks)
            ),
            "",
            f"From the smallest to the largest peak it is {most / least - 1:.1%} (wanted: 5%).",
            "",
        ]
    )


def main() -> None:
    """Measure, print, and write the page with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        what, *rest = options.one
        print(json.dumps(memory(int(rest[0])) if what == "memory" else speed(rest[0], SETS[rest[0]])))
        return
    before = os.getloadavg()[0]
    speeds = {name: in_process("speed", name, OMP_WAIT_POLICY="passive") for name in SETS}
    peaks = [in_process("memory", str(tiles), MALLOC_MMAP_THRESHOLD_="131072") for tiles in TILES]
    text = page(speeds, peaks, (before, os.getloadavg()[0]))
    print(text)
    if options.write:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
