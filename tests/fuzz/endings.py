"""Groups of processes that end in every way, on busy cores: each process exits by itself, and none aborts.

The threads of one process come after all others, so that they are late wherever they can be.
"""

import gc
import importlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from midam.process_group import start
from midam.processes import Processes

WAYS = ("finish", "error", "finish", "stop", "lost")
FAULTS = ("aborts", "late", "threads", "codes")
_PATIENCE = 100.0
_THREADS = ("gloo", "tcpstore")
_LEFT = 99  # exit code of a process that ends while threads of its group run
# Keeps a core busy for as long as the process that started it lives.
_LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"


@dataclass
class Endings:
    """Endings by way, faults, and a text for each fault."""

    ways: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    def fault(self, kind: str, text: str) -> None:
        """Count a fault."""
        self.faults[kind] += 1
        self.said.append(f"{kind}: {text}")


def end_often(folder: Path, endings: int, *, seed: int, devices: int = 3, busy: int) -> Endings:
    """End so many runs, each way by turns, next to `busy` processes that never rest."""
    found, rng = Endings(), random.Random(seed)
    with _busy(busy), _Server() as server:
        for number in range(endings):
            way = _Way(WAYS[number % len(WAYS)], rng.randrange(devices), rng.uniform(0.1, 1))
            _end(server, folder, way, devices, found)
            found.ways[way.name] += 1
    return found


@dataclass(frozen=True)
class _Way:
    """How a group ends, which of its processes makes it end, and after how many seconds."""

    name: str
    rank: int
    seconds: float


def _end(server: "_Server", place: Path, way: _Way, devices: int, found: Endings) -> None:
    """Let the processes of a group end in some way, and look at how each has ended."""
    (place / "met").unlink(missing_ok=True)
    kids = server.start({"place": str(place), "devices": devices, **vars(way)})
    # Who dies before all have met is the business of what has started them.
    end = time.monotonic() + _PATIENCE
    while not (place / "met").exists() and time.monotonic() < end:
        time.sleep(0.02)
    end = time.monotonic() + way.seconds
    while time.monotonic() < end:
        _slow_down(kids[way.rank])
        time.sleep(0.02)
    number = {"stop": signal.SIGINT, "lost": signal.SIGKILL}.get(way.name)
    if number is not None:
        with suppress(ProcessLookupError):
            os.kill(kids[way.rank], number)
    for rank, code in enumerate(server.codes()):
        log = (place / f"log-{rank}").read_text(errors="replace").strip()[-400:]
        if code is None:
            found.fault("late", f"process {rank}, {way}: {log}")
        elif code == _LEFT:
            found.fault("threads", f"process {rank}, {way}")
        elif code < 0 and (way.name, way.rank) != ("lost", rank):
            found.fault("aborts", f"process {rank}, {way}, signal {-code}: {log}")
        elif code not in ((0,) if way.name == "finish" else (0, 1, -signal.SIGKILL)):
            found.fault("codes", f"process {rank}, {way}, exit code {code}: {log}")


def _slow_down(process: int) -> None:
    """Let everything else go before the threads that work for the group."""
    for thread, name in _threads(process).items():
        if "gloo" in name:
            with suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, thread, 15)


def _threads(process: int) -> dict[int, str]:
    """Names of the threads of a process."""
    names = {}
    for path in Path(f"/proc/{process}/task").glob("*/comm"):
        with suppress(OSError):
            names[int(path.parent.name)] = path.read_text().strip()
    return names


@contextmanager
def _busy(count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", _LOOP, str(os.getpid())]))
            stack.callback(loop.kill)
        yield


class _Server:
    """A process that has imported everything; the processes of each run are forks of it, which exit as programs do."""

    def __init__(self) -> None:
        root = Path(__file__).resolve().parents[2]
        how: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": root}
        self._process = subprocess.Popen([sys.executable, "-m", "tests.fuzz.endings"], **how)

    def start(self, job: dict[str, Any]) -> list[int]:
        """Start the processes of a run; returns their ids."""
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return list(json.loads(self._process.stdout.readline()))

    def codes(self) -> list[int | None]:
        """Exit codes, once all have ended; None of one that had to be killed because it did not."""
        return list(json.loads(self._process.stdout.readline()))

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve() -> None:
    """Start the runs that are asked for, one after the other."""
    torch.set_num_threads(1)
    importlib.import_module("lightning_fabric")  # once for all kids, and not in tests that only name this module
    gc.freeze()  # an exit would look through all that was imported
    for line in iter(sys.stdin.readline, ""):
        job, kids = json.loads(line), []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for rank in range(job["devices"]):
            kid = os.fork()
            if not kid:
                _become(job, rank, port)
            kids.append(kid)
        for answer in (kids, None):
            sys.stdout.write(json.dumps(_awaited(kids) if answer is None else answer) + "\n")
            sys.stdout.flush()


def _become(job: dict[str, Any], rank: int, port: int) -> NoReturn:
    """Be one of the processes that torchrun starts, to the end that a program comes to."""
    os.chdir(job["place"])
    count = job["devices"]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    os.environ.update({**group, "LOCAL_WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), "RANK": str(rank)})
    log = os.open(f"log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, _fail)
    fails_in = job["seconds"] if (job["name"], job["rank"]) == ("error", rank) else 0
    code = _exchange(count, seconds=job["seconds"] if job["name"] == "finish" else 60, fails_in=fails_in)
    left = [name for name in _threads(os.getpid()).values() if any(part in name for part in _THREADS)]
    sys.exit(_LEFT if left else code)


def _exchange(count: int, *, seconds: float, fails_in: float) -> int:
    """Exchange what a training does for so long; returns the exit code. After `fails_in` seconds, if any, it fails."""
    from lightning_fabric import Fabric

    ranks = None
    try:
        processes = Processes(count)
        ranks = start(processes, Fabric(accelerator="cpu", devices=count, strategy=processes.strategy()))
        over = ranks.from_lead(lambda: False)
        Path("met").touch()
        signal.setitimer(signal.ITIMER_REAL, fails_in)
        until = time.monotonic() + seconds
        while not over:
            own = torch.randn(1 + (ranks.rank < 2))[: len(range(ranks.rank, count + 1, count))]
            ranks.gather(own, count + 1)
            weight = torch.nn.Parameter(torch.randn(2000))
            weight.grad = torch.randn(2000)
            ranks.sum_gradients([weight])
            over = ranks.from_lead(lambda: time.monotonic() > until)
        ranks.leave()
    except (Exception, KeyboardInterrupt):
        traceback.print_exc()
        return 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if ranks is not None:
            ranks.abandon()
    return 0


def _fail(*_: object) -> NoReturn:
    raise MemoryError("a fault of one process")


def _awaited(kids: list[int]) -> list[int | None]:
    codes: dict[int, int | None] = {}
    end = time.monotonic() + _PATIENCE
    while len(codes) < len(kids):
        for kid in set(kids) - set(codes):
            ended, status = os.waitpid(kid, os.WNOHANG)
            if ended:
                codes[kid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                os.kill(kid, signal.SIGKILL)
                os.waitpid(kid, 0)
                codes[kid] = None
        time.sleep(0.02)
    return [codes[kid] for kid in kids]


if __name__ == "__main__":
    serve()
