"""Commands killed at random moments, continued, and compared with undisturbed ones."""

import itertools
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from tests.fuzz.outputs import contents, unlike
from tests.integration.commands import finish, session, table

from midam.cli import main as midam

FAULTS = ("differences", "unresumable", "leftovers", "orphans")
_ROOT = Path(__file__).resolve().parents[2]
_COLD = 0.15  # of the kills: from the start of the interpreter, which costs seconds
_AGAIN = 0.5  # chance that what continues is killed too
_PATIENCE = 300.0
_GRACE = 60.0  # seconds that the children of a killed process have to end
_SIGNALS = (*[signal.SIGKILL] * 3, signal.SIGTERM, signal.SIGINT)  # with which a command is stopped, by turns
_STOPPED = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130)
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree", "os.utime")
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("tests.fuzz.torture", "midam.runs.report", "midam.train.trainer", "midam.explain.run"),
        *("scipy.stats", "sklearn.ensemble"),
    ]
)


@dataclass(frozen=True)
class Job:
    """A command, and the command that continues it where something of it is left."""

    name: str
    words: tuple[str, ...]
    out: str
    resume: tuple[str, ...] = ()
    needs_run: bool = False
    fresh: bool = False  # in an interpreter of its own, as one that starts workers must be


_LABELS = ("--labels", "labels.csv")
_UNLABELED = ("--unlabeled", "--plugin", "tests.fuzz.cells", "--encoder", "cells")
JOBS = (
    Job(
        "fit",
        ("fit", "bags.csv", "--epochs", "4", "--members", "2", "--select", "best", "--out", "run"),
        "run",
        resume=("fit", "--resume", "run"),
    ),
    Job("import", ("data", "import", "many.npz", "--out", "store", "--jobs", "2"), "store"),
    Job("import files", ("data", "import", "slides", *_LABELS, "--out", "store", "--jobs", "2"), "store"),
    Job("embed images", ("embed", "images", *_UNLABELED, "--out", "store"), "store"),
    Job("embed volumes", ("embed", "volumes", *_UNLABELED, "--out", "store"), "store"),
    Job("predict files", ("predict", "run", "slides", "--out", "p.csv"), "p.csv", needs_run=True),
    Job("report", ("report", "run"), "run/report.html", needs_run=True),
    Job("predict", ("predict", "run", "bags.csv", "--out", "p.csv"), "p.csv", needs_run=True),
    Job(
        "predict instances",
        ("predict", "run", "bags.csv", "--out", "p.csv", "--instances", "instances"),
        "p.csv",
        needs_run=True,
    ),
    Job(
        "explain",
        ("explain", "run", "bags.csv", "--bags", "b00", "b01", "b02", "--top", "2", "--out", "why"),
        "why",
        needs_run=True,
    ),
    Job(
        "compare",
        (
            *("compare", "bags.csv", "--methods", "midam-att,mean-map-svm", "--cv", "1x3", "--epochs", "2"),
            *("--lrs", "0.1", "--margins", "1.0", "--jobs", "2", "--out", "compare"),
        ),
        "compare",
        fresh=True,
    ),
)
_WEIGHTS = {"fit": 4, "import": 4, "import files": 4, "predict": 3, "predict files": 4, "predict instances": 3}
_WEIGHTS |= {"embed images": 4, "embed volumes": 4}
_WEIGHTS |= {"explain": 4, "report": 4, "compare": 1}


@dataclass
class Tally:
    """Kills and faults of a job, and what was said of the faults."""

    counts: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    def fault(self, kind: str, text: str) -> None:
        """Count a fault."""
        self.counts[kind] += 1
        self.said.append(f"{kind}: {text}")


@dataclass(frozen=True)
class Moment:
    """When to stop a command, and by which signal: after seconds, or before the file event of a number.

    Cold ones count from the interpreter's start.
    """

    number: signal.Signals
    seconds: float | None = None
    event: int | None = None
    cold: bool = False


@dataclass(frozen=True)
class Undisturbed:
    """Files of a job that nobody killed, the seconds that it takes, and its file events."""

    files: dict[str, str]
    seconds: float
    events: int


def write_base(folder: Path) -> Path:
    """Write what the jobs need: small data, many small bags, and a run."""
    folder.mkdir(parents=True)
    table(folder / "bags.csv")
    bag = np.repeat(np.arange(3000), 4)
    features = np.random.default_rng(0).normal(size=(len(bag), 16)).astype(np.float32)
    np.savez(folder / "many.npz", X=features, bag=bag, y=np.arange(3000) % 2)
    (folder / "slides").mkdir()
    names = [f"s{number:03d}" for number in range(300)]
    for name in names:
        np.save(folder / "slides" / f"{name}.npy", np.random.default_rng(len(name)).normal(size=(40, 4)))
    lines = [f"{name},{number % 2}" for number, name in enumerate(names)]
    (folder / "labels.csv").write_text("\n".join(["bag,label", *lines]) + "\n")
    rng = np.random.default_rng(0)
    for name in ("images", "volumes"):
        (folder / name).mkdir()
    for number in range(80):
        Image.fromarray(rng.integers(0, 255, (64 + number, 96, 3), np.uint8)).save(folder / f"images/i{number:02d}.png")
        np.save(folder / f"volumes/v{number:02d}.npy", rng.normal(size=(4 + number % 3, 48, 40)).astype(np.float32))
    words = ["fit", "bags.csv", "--epochs", "1", "--members", "1", "--chunk-size", "3", "--out", "run"]
    if finish(_start(words, folder), patience=_PATIENCE) != 0:
        raise RuntimeError((folder / "LOG").read_text())
    (folder / "LOG").unlink()
    return folder


class Torture:
    """Kills jobs and continues them, all at one place: a run knows where its data lies."""

    def __init__(self, base: Path, place: Path, rng: Random, jobs: Sequence[Job]) -> None:
        self.base, self.place, self.rng = base, place, rng
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", "import midam.runs.fit"], check=True, env=environment(base))
        self.start = time.monotonic() - begun  # seconds that the interpreter takes before a command begins
        self.undisturbed = {job.name: self._measure(job) for job in jobs}

    def _measure(self, job: Job) -> Undisturbed:
        """Run a job to its end, for what it leaves behind and what it takes."""
        counted = self.place.with_name(f"{self.place.name}-events")
        found = []
        for _ in range(2):
            place, begun = self._fresh(job), time.monotonic()
            if finish(_start(job.words, place, count=counted, fresh=job.fresh), patience=_PATIENCE):
                raise RuntimeError((place / "LOG").read_text())
            seconds = time.monotonic() - begun
            found.append(contents(place))
        if found[0] != found[1]:
            raise RuntimeError(f"{job.name} gives other files each time: {unlike(*found)}")
        return Undisturbed(found[0], seconds, int(counted.read_text()))

    def chain(self, job: Job, tally: Tally, *, most: int) -> int:
        """Kill a job, and what continues it, up to `most` times; let it end, and compare. Returns the kills."""
        rng, kills, code, usual = self.rng, 0, -signal.SIGKILL, self.undisturbed[job.name]
        place = self._fresh(job)
        while kills < most and (kills == 0 or rng.random() < _AGAIN):
            moment = self._moment(usual, rng)
            words = job.words if kills == 0 else self._next_words(job, place)
            code = self._kill(job, words, moment, tally)
            kills += code in _STOPPED
            if code not in _STOPPED:
                break
        if code != 0:
            self._end(job, place, tally, kills)
        found = contents(place)
        for name in sorted(set(found) - set(usual.files)):
            tally.fault("leftovers", f"{name} of {job.name}")
        for name in sorted(usual.files):
            if found.get(name) != usual.files[name]:
                tally.fault("differences", f"{name} of {job.name}")
        tally.counts["kills"] += kills
        return kills

    def _next_words(self, job: Job, place: Path) -> tuple[str, ...]:
        return job.resume if job.resume and (place / job.out).exists() else job.words

    def _end(self, job: Job, place: Path, tally: Tally, kills: int) -> None:
        """Continue to the end; the same command is tried where there is nothing to continue."""
        tried = [self._next_words(job, place), job.words]
        for words in dict.fromkeys(tried):
            (place / "LOG").unlink(missing_ok=True)
            code = finish(_start(words, place, fresh=job.fresh), patience=_PATIENCE)
            if code == 0:
                return
        done = kills and set(contents(place)) >= set(self.undisturbed[job.name].files)
        if not done:
            log = (place / "LOG").read_text(errors="replace").strip().splitlines()
            tally.fault("unresumable", f"{job.name}: {log[-1] if log else code}")

    def _moment(self, usual: Undisturbed, rng: Random) -> Moment:
        number = rng.choice(_SIGNALS)
        if rng.random() < _COLD:
            return Moment(number, seconds=rng.uniform(0, usual.seconds + self.start), cold=True)
        if rng.random() < 0.5:
            return Moment(number, event=rng.randrange(usual.events))
        return Moment(number, seconds=rng.uniform(0, usual.seconds))

    def _kill(self, job: Job, words: tuple[str, ...], moment: Moment, tally: Tally) -> int:
        """Start a command and kill it; returns its exit code, which is another where it ended before."""
        place = self.place
        if moment.cold:
            null = subprocess.DEVNULL
            command = [sys.executable, "-m", "midam.cli", *words]
            how = {"cwd": place, "env": environment(place), "start_new_session": True}
            process = subprocess.Popen(command, stdout=null, stderr=null, **how)
            leader = process.pid
            time.sleep(moment.seconds or 0.0)
            process.send_signal(moment.number)
            code = process.wait()
        else:
            at = None if moment.event is None else (moment.event, int(moment.number))
            warm = _start(words, place, at=at, fresh=job.fresh)
            leader = warm.pid or 0
            if moment.seconds is not None:
                time.sleep(moment.seconds)
                with suppress(ProcessLookupError):
                    os.kill(leader, moment.number)
            code = finish(warm, patience=_PATIENCE)
        alive = _left(leader)
        for process_id, command_line in alive.items():
            tally.fault("orphans", f"{command_line[:200]} after {job.name} {moment}")
            os.kill(process_id, signal.SIGKILL)
        return code

    def _fresh(self, job: Job) -> Path:
        shutil.rmtree(self.place, ignore_errors=True)
        left_out = () if job.needs_run else ("run",)
        shutil.copytree(self.base, self.place, ignore=shutil.ignore_patterns(*left_out))
        return self.place


def environment(place: Path) -> dict[str, str]:
    path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(place),
    }


class _Fresh:
    """A process of a new interpreter, with the face of one of `multiprocessing`."""

    def __init__(self, arguments: tuple[Any, ...], place: Path) -> None:
        code = f"from tests.fuzz.torture import run_here; run_here(*{arguments!r})"
        self._process = subprocess.Popen([sys.executable, "-c", code], env=environment(place))
        self.pid, self.kill = self._process.pid, self._process.kill

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def join(self, timeout: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def close(self) -> None:
        return


def _start(
    words: Any, place: Path, *, at: tuple[int, int] | None = None, count: Path | None = None, fresh: bool = False
) -> BaseProcess | _Fresh:
    """Start a command in a fork of a process that has imported everything, or in a new interpreter."""
    arguments = (tuple(words), str(place), at, None if count is None else str(count))
    if fresh:
        return _Fresh(arguments, place)
    process = _CONTEXT.Process(target=run_here, args=arguments)
    process.start()
    return process


def run_here(words: tuple[str, ...], place: str, at: tuple[int, int] | None, count: str | None) -> None:
    """Run a command in this process, which gets a signal before a file event, `at`; or `count` its file events."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(place)
    os.environ.update(environment(Path(place)))
    tempfile.tempdir = place
    torch.set_num_threads(1)
    out = os.open("LOG", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    numbers, inside = itertools.count(), str(Path(place).resolve())

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or (event == "open" and not _writes(arguments)):
            return
        named = os.fspath(arguments[0]) if isinstance(arguments[0], str | os.PathLike) else inside
        if isinstance(named, str) and os.path.isabs(named) and not named.startswith(inside):
            return
        if next(numbers) == (-1 if at is None else at[0]):  # no lock: a thread that forks may hold it
            os.kill(os.getpid(), at[1])

    sys.addaudithook(hook)
    try:
        code = midam(list(words))
    except KeyboardInterrupt:  # before or after the command
        code = 130
    if count is not None:
        total = next(numbers)
        Path(count).write_text(str(total))
    sys.exit(code)


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _left(leader: int) -> dict[int, str]:
    """Processes of a session that are alive after a while, with their command lines."""
    end = time.monotonic() + _GRACE
    while (alive := session(leader)) and time.monotonic() < end:
        time.sleep(0.1)
    return alive


def torture(kills: int, *, seed: int, jobs: int, names: list[str] | None = None) -> dict[str, Tally]:
    """Kill jobs so many times in all; returns what came of it, by job."""
    chosen = [job for job in JOBS if names is None or job.name in names]
    tallies = {job.name: Tally() for job in chosen}
    lock, done, number = threading.Lock(), 0, 0
    with tempfile.TemporaryDirectory(prefix="midam-torture-", ignore_cleanup_errors=True) as folder:
        base = write_base(Path(folder) / "base")
        order = [job for job in chosen for _ in range(_WEIGHTS[job.name])]
        Random(seed).shuffle(order)

        def work(worker: int) -> None:
            nonlocal done, number
            made = Torture(base, Path(folder) / f"place-{worker}", Random(f"{seed}/{worker}"), chosen)
            while True:
                with lock:
                    at, left = number, kills - done
                    number += 1
                if left <= 0:
                    return
                job, tally = order[at % len(order)], Tally()
                found = made.chain(job, tally, most=min(4, left))
                with lock:
                    done += found
                    tallies[job.name].counts += tally.counts
                    tallies[job.name].said += tally.said

        with ThreadPoolExecutor(jobs) as pool:
            for future in [pool.submit(work, worker) for worker in range(jobs)]:
                future.result()
    return tallies
