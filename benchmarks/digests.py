"""Show that a change of the code changed no result: compare digests of some hundred small runs of two checkouts.

    python benchmarks/digests.py --write old.json --source ../old/src     (the checkout before)
    python benchmarks/digests.py --write new.json --source src            (the checkout after)
    python benchmarks/digests.py --compare old.json new.json

The script uses only the command line, so that one script runs both checkouts, and it makes all its inputs itself.
Digests are comparable only on one machine with one set of libraries: write both files there, directly after each other,
and delete them afterwards.
"""

import argparse
import contextlib
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.digest_cases import CASES, STOPPED, Commands
from benchmarks.digest_files import Column, difference, read_artefacts
from benchmarks.digest_inputs import make_inputs

# Words in options and files that have another spelling in later versions; `--rename` adds to them.
RENAMED = {"generalised-mean": "generalized-mean", "colour": "color"}

_LIMIT = 300.0  # seconds until the first epoch is done

Artefacts = dict[str, dict[str, Column]]


def main(argv: list[str] | None = None) -> int:
    """Write a file of digests, or compare two files; returns the exit code."""
    options = _options().parse_args(argv)
    if options.compare:
        old, new = (json.loads(Path(path).read_text()) for path in options.compare)
        renamed = RENAMED | dict(words.split("=", 1) for words in options.rename)
        return compare(old, new, expected=options.expect, renamed=renamed)
    only = options.only or ["*"]
    cases = {name: CASES[name] for name in CASES if any(fnmatch.fnmatchcase(name, pattern) for pattern in only)}
    if not cases:
        raise SystemExit(f"Expected --only to name a case, got {', '.join(only)}; take one of {', '.join(CASES)}.")
    with tempfile.TemporaryDirectory(prefix="midam-digests-") as work:
        found = write(cases, Path(work).resolve(), python=options.python, source=options.source, jobs=options.jobs)
    Path(options.write).write_text(json.dumps(found))
    broken = [name for name in found if "error" in found[name]]
    for name in broken:
        print(f"{name}: {found[name]['error']}", file=sys.stderr)
    print(f"{len(found)} cases, {len(broken)} broken: {options.write}")
    return 1 if broken else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", metavar="FILE", help="run the cases and write their digests")
    what.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="exit code 1 if anything differs")
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs midam")
    parser.add_argument("--source", default=None, help="folder that is put first on PYTHONPATH, such as CHECKOUT/src")
    parser.add_argument(
        "--only", action="append", default=[], metavar="CASE", help="a case, or a pattern such as 'max-*'"
    )
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument(
        "--expect", action="append", default=[], metavar="PATTERN", help="CASE:ARTEFACT:COLUMN that may differ, with *"
    )
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="a word that is spelled anew")
    return parser


# --- running


def write(
    cases: dict[str, Commands], work: Path, *, python: str = sys.executable, source: str | None = None, jobs: int = 2
) -> dict[str, Any]:
    """Run cases in the folder `work`, and return what each case made, or its error."""
    make_inputs(work / "inputs")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MIDAM_")}
    paths = [str(Path(source).resolve())] if source else []
    paths += [str(work / "inputs"), *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "MIDAM_CACHE": str(work / "cache")}
    servers: Queue[Server] = Queue()
    for _ in range(jobs):
        servers.put(Server(python, environment, compiled=work / "compiled"))

    def one(name: str) -> dict[str, Any]:
        server = servers.get()
        began = time.monotonic()
        try:
            error = _run(cases[name], work / name, server)
        finally:
            servers.put(server)
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
        return {"error": error.replace(str(work), "WORK")} if error else dict(read_artefacts(work / name, work))

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return dict(zip(cases, pool.map(one, cases), strict=True))
    finally:
        while not servers.empty():
            servers.get().close()


# Forks for each command, so that the dependencies of midam are imported only once, but midam itself each time.
_SERVER = """
import contextlib, importlib, json, os, runpy, sys
for name in sys.argv[2:]:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
sys.dont_write_bytecode, sys.pycache_prefix = False, sys.argv[1]
for line in iter(sys.stdin.readline, ""):
    folder, log, arguments = json.loads(line)
    child = os.fork()
    if not child:
        os.chdir(folder)
        for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
            os.dup2(os.open(path, flags), number)
        os.dup2(1, 2)
        sys.argv[1:] = arguments
        runpy.run_module("midam.cli", run_name="__main__", alter_sys=True)
        sys.exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
_UNDER = ("torch", "torch.utils.data", "lightning_fabric", "scipy.stats", "sklearn.linear_model", "sklearn.datasets")
_UNDER += ("sklearn.ensemble", "sklearn.svm", "pandas", "matplotlib.figure", "matplotlib.backends.backend_agg", "h5py")
_UNDER += ("joblib", "rich.console", "rich.progress", "yaml", "nibabel", "PIL.Image")


class Server:
    """A process that runs `python -m midam.cli`, one command at a time."""

    def __init__(self, python: str, environment: dict[str, str], *, compiled: Path) -> None:
        command = [python, "-c", _SERVER, str(compiled), *_UNDER]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def start(self, arguments: list[str], folder: Path, log: Path) -> int:
        """Start a command, and return its process."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([str(folder), str(log), arguments]) + "\n")
        return self._answer()

    def wait(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> int:
        assert self._process.stdout
        return int(self._process.stdout.readline())


def _run(commands: Commands, folder: Path, server: Server) -> str:
    """Run the commands of a case in a new folder; returns the fault, or an empty text."""
    folder.mkdir()
    log = folder / "log"
    for command in commands:
        words = _spelling(server, log) if any(_word(old).search(word) for old in RENAMED for word in command) else {}
        stopped = command[0] == STOPPED
        arguments = [rename(word, words) for word in (["fit", *command[1:]] if stopped else command)]
        child = server.start(arguments, folder, log)
        if stopped:
            _stop_after_an_epoch(child, folder / "run" / "metrics.csv")
        code = server.wait()
        if code != (130 if stopped else 0):
            return f"midam {' '.join(arguments)}: exit code {code}: {log.read_text().strip()[-500:]}"
        log.unlink()
    return ""


def _spelling(server: Server, log: Path) -> dict[str, str]:
    """Return the words that have a new spelling in this checkout, as its help shows."""
    server.start(["fit", "--help"], log.parent, log)
    server.wait()
    return {old: new for old, new in RENAMED.items() if _word(new).search(log.read_text())}


def _stop_after_an_epoch(child: int, metrics: Path) -> None:
    deadline = time.monotonic() + _LIMIT
    while time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") > 1):
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)


# --- comparing


def _word(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(text)}(?![\w-])")


def rename(text: str, words: dict[str, str]) -> str:
    """Return the text with whole words replaced."""
    for old, new in words.items():
        text = _word(old).sub(new, text)
    return text


def _pairs(old: dict[str, Column], new: dict[str, Column]) -> Iterator[tuple[str, Column | None, Column | None]]:
    """Yield pairs of columns with one name; renamed tensors are found by their digest, or by shape and order."""
    pairs = {name: name for name in new if name in old}
    lost = [name for name in old if name not in new]
    for key in ("sha256", "shape"):
        for name in (name for name in new if name not in pairs and new[name].get("shape")):
            same = next((other for other in lost if old[other].get(key) == new[name][key]), None)
            if same is not None:
                lost.remove(same)
                pairs[name] = same
    for name, column in new.items():
        was = pairs.get(name, name)
        yield name if was == name else f"{name} (was {was})", old.get(was), column
    for name in lost:
        yield name, old[name], None


def compare(old: dict[str, Any], new: dict[str, Any], *, expected: list[str], renamed: dict[str, str]) -> int:
    """Print the differences between two files of digests; returns 1 for an unexpected difference."""
    seen, failed, named, used = 0, 0, 0, set()
    for case in old | new:
        if case not in old or case not in new:
            failed += 1
            print(f"{case}: only in the {'old' if case in old else 'new'} file")
            continue
        before, after = _renamed(old[case], renamed), _renamed(new[case], renamed)
        if "error" in old[case] or "error" in new[case]:
            failed += 1
            print(f"{case}: broken: {old[case].get('error') or new[case].get('error')}")
        lines = []
        for artefact in before | after:
            for name, a, b in _pairs(before.get(artefact, {}), after.get(artefact, {})):
                seen += 1
                apart = difference(a, b)
                if not apart:
                    continue
                pattern = next((p for p in expected if fnmatch.fnmatchcase(f"{case}:{artefact}:{name}", p)), None)
                used.add(pattern)
                named, failed = named + (pattern is not None), failed + (pattern is None)
                lines.append(f"  {artefact}:{name}  {apart}{'  (expected)' if pattern else ''}")
        print(f"{case}: {'identical' if not lines else f'{len(lines)} differ'}")
        print(*lines, sep="\n", end="\n" if lines else "")
    print(f"{seen} columns of {len(old | new)} cases: {failed} differ, {named} more were expected to")
    for pattern in set(expected) - used:
        print(f"--expect {pattern}: nothing differs there")
    return 1 if failed else 0


def _renamed(artefacts: dict[str, Any], words: dict[str, str]) -> Artefacts:
    """Return the artefacts of a case with words replaced in all names and texts."""
    made: Artefacts = {}
    for artefact, columns in artefacts.items():
        if artefact != "error":
            made[rename(artefact, words)] = {rename(name, words): column for name, column in columns.items()}
    for columns in made.values():
        for name, column in columns.items():
            if "text" in column:
                columns[name] = {"text": [rename(text, words) for text in column["text"]]}
    return made


if __name__ == "__main__":
    sys.exit(main())
