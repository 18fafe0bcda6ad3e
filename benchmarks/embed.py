"""Speed and memory of `midam embed`: beside the bare network, and as bags grow.

    MIDAM_DATA=... python benchmarks/embed.py --write

Speed: `midam.embed_bags` reads, decodes, scales, passes and writes; the bare network passes the very same tensors,
which wait in memory. The two take turns in one process, with the same threads; the ratio is that of the best turns.

Memory: one bag of more and more tiles of 224 x 224 (49 cells each), JPEG files of one patient. Each figure comes from a
process of its own, and is its highest anonymous memory (RssAnon, looked at each 5 ms).
"""

import argparse
import json
import os
import shutil
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
from midam.data.sets import catalog
from midam.embed.network import Network
from midam.files import write_text
from midam.settings.data import CutSettings

PAGE = RESULTS / "embed.md"
NETWORK = "efficientnet-lite0"
SETS = {"breast": 12, "colon": 200, "adrenal": 60}  # bags of each that are embedded
TILES = (2, 20, 204, 2041)  # about 100 to 100 000 cells
TURNS = 5


def load(name: str, count: int, network: Network) -> Bags:
    """Some bags of a set, cut as `midam embed` cuts them."""
    stride = network.stride or 32
    bags = catalog.load(name) if name == "adrenal" else catalog.load(name, images=CutSettings(patch_size=stride))
    return bags.subset(np.linspace(0, len(bags) - 1, count).astype(int).tolist())


class Recorded:
    """Keeps what a network is given, for as long as the block runs."""

    def __init__(self, network: Network) -> None:
        self.network, self.calls = network, list[tuple[str, torch.Tensor]]()

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
            if not self.calls or self.calls[-1][1] is not images:  # vectors may call maps
                self.calls.append((name, images))
            found: torch.Tensor = passed(images)
            return found

        return keep


def speed(name: str, count: int) -> dict[str, float]:
    """Seconds of both ways, the best of some turns."""
    network = midam.load_network(NETWORK)
    bags = load(name, count, network)
    seconds: dict[str, list[float]] = {"embed": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder:
        with Recorded(network) as recorded:
            midam.embed_bags(bags, network, Path(folder) / "first")
        for turn in range(TURNS):
            started = time.perf_counter()
            midam.embed_bags(bags, network, Path(folder) / f"{turn}")
            seconds["embed"].append(time.perf_counter() - started)
            started = time.perf_counter()
            with torch.inference_mode():
                for way, images in recorded.calls:
                    getattr(network, way)(images)
            seconds["bare"].append(time.perf_counter() - started)
    return {way: min(own) for way, own in seconds.items()} | {"instances": float(bags.num_instances)}


def memory(tiles: int) -> dict[str, float]:
    """Peak of a process that embeds one bag of so many tiles."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "tiles"
        folder.mkdir()
        pixels = np.random.default_rng(0).integers(0, 256, (28, 28, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((224, 224)).save(folder / "0.jpg")
        for number in range(1, tiles):
            shutil.copy(folder / "0.jpg", folder / f"{number}.jpg")
        lines = ["bag,file,label", *(f"patient,{number}.jpg,1" for number in range(tiles))]
        (folder / "labels.csv").write_text("\n".join(lines) + "\n")
        network = midam.load_network(NETWORK)
        bags = midam.read_bags(
            folder, labels=folder / "labels.csv", images=CutSettings(patch_size=network.stride or 32)
        )
        started = time.perf_counter()
        with AnonymousPeak() as peak:
            midam.embed_bags(bags, network, Path(name) / "store")
        return {"mib": peak.mib, "seconds": time.perf_counter() - started, "cells": float(bags.num_instances)}


def in_process(*words: str) -> dict[str, float]:
    """What this file prints in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--one", *words]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def page(speeds: dict[str, dict[str, float]], peaks: list[dict[str, float]]) -> str:
    """Text of the page."""
    shares = {name: row["bare"] / row["embed"] for name, row in speeds.items()}
    least, most = min(row["mib"] for row in peaks), max(row["mib"] for row in peaks)
    return "\n".join(
        [
            "# Speed and memory of `midam embed`",
            "",
            f"Images and slices pass once through {NETWORK} and become vectors in a store. How much slower is that "
            "than the bare network on tensors that wait in memory, and how does memory grow with a bag?",
            "",
            f"- Command: `python benchmarks/embed.py --write`, {torch.get_num_threads()} threads",
            f"- {measured_on()}",
            "",
            "| set | bags | instances | embed, s | bare network, s | share of its speed |",
            "|---|---:|---:|---:|---:|---:|",
            *(
                f"| {name} | {SETS[name]} | {row['instances']:.0f} | {row['embed']:.2f} | {row['bare']:.2f} | "
                f"{shares[name]:.1%} |"
                for name, row in speeds.items()
            ),
            "",
            f"Embedding has at least {min(shares.values()):.1%} of the bare network's speed (wanted: 85%). Reading, "
            "decoding, scaling and writing run beside the network as far as they can. Each figure is the best of "
            f"{TURNS} turns.",
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
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        what, *rest = options.one
        print(json.dumps(memory(int(rest[0])) if what == "memory" else speed(rest[0], SETS[rest[0]])))
        return
    peaks = [in_process("memory", str(tiles)) for tiles in TILES]
    text = page({name: in_process("speed", name) for name in SETS}, peaks)
    print(text)
    if options.write:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
