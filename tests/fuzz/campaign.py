"""A campaign: inputs of all formats, each damaged and read in a child process, judged and counted."""

import json
import shutil
import tempfile
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.bombs import BOMBS
from tests.fuzz.children import Server
from tests.fuzz.hostile import HOSTILE, Craft
from tests.fuzz.hostile_runs import HOSTILE_RUNS
from tests.fuzz.mutate import REFUSE, SUMMED, WARN, damage, fresh_copy
from tests.fuzz.reading import CANARY
from tests.fuzz.samples import Sample, samples

GOOD = ("same", "changed", "refused")  # accepted with the same content; with another that nobody can tell; refused
BAD = ("accepted wrongly", "traceback", "hang", "crash", "code", "outside", "escape")
OUTCOMES = (*GOOD, *BAD)
_CRAFTED = 0.4  # of the inputs of a format that has some made by hand
_RESERVED = ("LOG", "INPUT.json")


@dataclass(frozen=True)
class Input:
    """One input: of which sample, by which random numbers, what must come of it and what was done to it."""

    sample: str
    number: int
    expected: str
    way: str
    file: str = ""


@dataclass(frozen=True)
class Found:
    """What came of an input."""

    made: Input
    outcome: str
    answer: dict[str, Any]


def crafts_of(name: str) -> tuple[Craft, ...]:
    """Ways by hand to damage the input of a sample."""
    return (*HOSTILE.get(name, ()), *HOSTILE_RUNS.get(name, ()), *BOMBS.get(name, ()))


class Bench:
    """Sound inputs of some formats in a folder, and what is read of each."""

    def __init__(self, folder: Path, names: list[str] | None = None) -> None:
        self.folder = folder
        self.samples: dict[str, Sample] = samples()
        if names is not None:
            self.samples = {name: self.samples[name] for name in names}
        self.content: dict[str, str] = {}

    def prepare(self, name: str, server: Server) -> None:
        """Write the sound input of a sample and read it, unless that was done."""
        if name in self.content:
            return
        sample, sound = self.samples[name], self.folder / "sound" / name
        sound.mkdir(parents=True)
        sample.make(sound)
        found = server.attempt(fresh_copy(sound, self.folder / "check"), sample.how)
        if found["end"] != "accepted":
            raise RuntimeError(f"The sound input {name!r} was not read: {found}")
        self.content[name] = found["content"]

    def make(
        self, name: str, number: int, folder: Path, *, rng: Random | None = None, craft: Craft | None = None
    ) -> Input:
        """Write a damaged input of a sample into a folder, by `craft` if given; one number makes the same input."""
        sample = self.samples[name]
        rng = rng or Random(f"{name}/{number}")
        fresh_copy(self.folder / "sound" / name, folder)
        by_hand = crafts_of(name)
        if craft is None and by_hand and rng.random() < _CRAFTED:
            craft = rng.choice(by_hand)
        if craft is not None:
            return Input(name, number, craft(folder, rng), craft.__name__, "by hand")
        targets = sorted({file for form in sample.targets for file in folder.glob(form) if file.is_file()})
        target = rng.choice(targets)

        def among(forms: tuple[str, ...]) -> bool:
            return any(target.match(form) for form in forms)

        way = f"damage to {target.relative_to(folder)}"
        expected = damage(target, rng, text=among(sample.text), summed=among(sample.summed))
        return Input(name, number, expected, way, str(target.relative_to(folder)))

    def judge(self, made: Input, folder: Path, answer: dict[str, Any]) -> Found:
        """Say what an answer means for an input."""
        end = answer["end"]
        said = answer.get("text", "") if self.samples[made.sample].how["do"] == "command" else ""
        if any(unicodedata.category(sign) in ("Cc", "Cf") and sign not in "\n\t" for sign in said):
            return Found(made, "escape", answer)
        if (folder / CANARY).exists() or end == "foreign" or answer.get("imports"):
            return Found(made, "code", answer)
        if answer.get("outside"):
            return Found(made, "outside", answer)
        if end == "accepted":
            same = answer["content"] == self.content[made.sample]
            wrong = made.expected == REFUSE or (made.expected == SUMMED and not same)
            wrong |= made.expected == WARN and not any(self._names_a_file(text, made) for text in answer["warnings"])
            return Found(made, "accepted wrongly" if wrong else "same" if same else "changed", answer)
        if end == "refused" and not self._names_a_file(answer["text"], made):
            return Found(made, "traceback", answer | {"trace": "the message names no file"})
        return Found(made, end, answer)

    def _names_a_file(self, text: str, made: Input) -> bool:
        """Whether a message names a file or folder of the input, whatever blanks the console broke it at."""
        sound = self.folder / "sound" / made.sample
        names = {part for path in sound.rglob("*") for part in (path.name, path.stem)}
        flat = "".join(text.split())
        return any("".join(name.split()) in flat for name in names if name)


def run_one(bench: Bench, server: Server, name: str, number: int, folder: Path, **how: Any) -> Found:
    """Make an input as `Bench.make` does, read it and judge."""
    made = bench.make(name, number, folder, **how)
    return bench.judge(made, folder, server.attempt(folder, bench.samples[name].how))


@contextmanager
def bench_of(names: list[str] | None, jobs: int) -> Iterator[tuple[Bench, list[Server]]]:
    """A bench in a temporary folder, and warm servers."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="midam-fuzz-")))
        servers = [stack.enter_context(Server()) for _ in range(jobs)]
        bench = Bench(folder, names)
        for name in bench.samples:
            bench.prepare(name, servers[0])
        yield bench, servers


def campaign(
    *,
    seed: int,
    count: int | None,
    minutes: float | None,
    names: list[str] | None,
    jobs: int,
    keep: Path,
    on_found: Callable[[Found, int], None],
) -> dict[str, Counter[str]]:
    """Read so many inputs, or for so many minutes, of each format in turn; returns the counts by format and file.

    Inputs that fail are kept in `keep`, a folder each.
    """
    counts: dict[str, Counter[str]] = {}
    lock, number = threading.Lock(), 0
    with bench_of(names, jobs) as (bench, servers):
        order, end = list(bench.samples), None if minutes is None else time.monotonic() + 60 * minutes

        def work(worker: int) -> None:
            nonlocal number
            while True:
                with lock:
                    at, number = number, number + 1
                if (count is not None and at >= count) or (end is not None and time.monotonic() > end):
                    return
                name = order[at % len(order)]
                folder = bench.folder / f"input-{worker}"
                found = run_one(bench, servers[worker], name, seed * 10_000_000 + at // len(order), folder)
                with lock:
                    counts.setdefault(f"{name}: {found.made.file}", Counter())[found.outcome] += 1
                    if found.outcome in BAD:
                        _keep(found, folder, keep)
                    on_found(found, at)

        with ThreadPoolExecutor(jobs) as pool:
            for future in [pool.submit(work, worker) for worker in range(jobs)]:
                future.result()
        return dict(sorted(counts.items(), key=lambda row: (order.index(row[0].partition(": ")[0]), row[0])))


def _keep(found: Found, folder: Path, keep: Path) -> None:
    place = keep / f"{found.made.sample.replace(' ', '-')}-{found.made.number}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place, symlinks=True, ignore=shutil.ignore_patterns(*_RESERVED))
    note = {**vars(found.made), "outcome": found.outcome, "answer": found.answer}
    (place / "INPUT.json").write_text(json.dumps(note, indent=2) + "\n")


def replay(place: Path) -> Found:
    """Read an input that was kept again, as the code is now."""
    note = json.loads((place / "INPUT.json").read_text())
    made = Input(note["sample"], note["number"], note["expected"], note["way"])
    with bench_of([made.sample], 1) as (bench, (server,)):
        folder = bench.folder / "input"
        shutil.copytree(place, folder, symlinks=True, ignore=shutil.ignore_patterns(*_RESERVED, CANARY))
        return bench.judge(made, folder, server.attempt(folder, bench.samples[made.sample].how))
