"""Runs of several processes of which one is killed at a random moment: the others end, the run goes on."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.torture import environment
from tests.integration.commands import session, table

FAULTS = ("late", "orphans", "unresumable", "differences")
_EPOCHS = 12
_LATE_S = 60.0  # the others have ended by then
_PATIENCE = 300.0


@dataclass
class Lost:
    """Kills, by the number of the process, and faults; and the longest that the others took to end."""

    kills: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    longest_s: float = 0.0

    def fault(self, kind: str, text: str) -> None:
        """Count a fault."""
        self.faults[kind] += 1
        self.said.append(f"{kind}: {text}")


def lose_processes(folder: Path, kills: int, *, seed: int, devices: int = 2) -> Lost:
    """Kill one process of a run, and go on with it, so many times; each run ends as the undisturbed one."""
    found, rng = Lost(), Random(seed)
    whole = _place(folder / "whole")
    undisturbed = _Run(whole, devices)
    if undisturbed.ended() != 0:
        raise RuntimeError(undisturbed.said)
    for number in range(kills):
        place = _place(folder / str(number))
        rank, epoch = number % devices, rng.randrange(1, _EPOCHS - 1)
        _kill(_Run(place, devices), rank, epoch, rng, found)
        last = _Run(place, devices, resumed=(place / "run" / "config.yaml").exists())
        if last.ended() != 0:
            found.fault("unresumable", last.said)
        elif any(_text(place, name) != _text(whole, name) for name in ("predictions.csv", "metrics.csv")):
            found.fault("differences", f"process {rank} killed in epoch {epoch}")
    return found


class _Run:
    """A training in several processes, started in a folder that holds the data."""

    def __init__(self, place: Path, devices: int, *, resumed: bool = False) -> None:
        words = ["fit", "bags.csv", "--epochs", str(_EPOCHS), "--members", "1", "--no-baseline", "--out", "run"]
        words = [*(["fit", "--resume", "run"] if resumed else words), "--devices", str(devices)]
        command, pipe = [sys.executable, "-m", "midam.cli", *words], subprocess.PIPE
        how = {"cwd": place, "env": environment(place), "start_new_session": True, "text": True}
        self.place, self.process, self.said = place, subprocess.Popen(command, stdout=pipe, stderr=pipe, **how), ""

    def ended(self, patience: float = _PATIENCE) -> int | None:
        """Exit code; None where it is still there after so long."""
        try:
            self.said = "".join(self.process.communicate(timeout=patience))
        except subprocess.TimeoutExpired:
            return None
        return self.process.returncode

    def epochs(self) -> int:
        """Epochs that stand in its table."""
        table = self.place / "run" / "metrics.csv"
        return max(0, len(table.read_text().splitlines()) - 1) if table.exists() else 0

    def others(self) -> list[int]:
        """Processes that it has started."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as listed:
            return [int(word) for word in listed.read().split()]


def _kill(run: _Run, rank: int, epoch: int, rng: Random, found: Lost) -> None:
    """Kill a process of a run in an epoch, and watch the others end."""
    leader, end = run.process.pid, time.monotonic() + _PATIENCE
    while (not run.others() or run.epochs() < epoch) and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(rng.random() * 0.05)
    os.kill(leader if rank == 0 else run.others()[rank - 1], signal.SIGKILL)
    begun = time.monotonic()
    found.kills[rank] += 1
    if run.ended(_LATE_S) is None:
        found.fault("late", f"process {rank} killed in epoch {epoch}")
    while session(leader) and time.monotonic() < begun + _LATE_S:
        time.sleep(0.1)
    found.longest_s = max(found.longest_s, time.monotonic() - begun)
    for left in session(leader):
        found.fault("orphans", f"process {rank} killed in epoch {epoch}")
        os.kill(left, signal.SIGKILL)


def _place(folder: Path) -> Path:
    folder.mkdir(parents=True)
    table(folder / "bags.csv")
    return folder


def _text(place: Path, name: str) -> str:
    return (place / "run" / name).read_text()
