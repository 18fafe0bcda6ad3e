"""Child processes that read one input each: forks of a warm server, with limits on time and memory."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 20  # of the processor: a machine that does much else at a time makes no hang
_WALL = 120.0  # seconds, for what waits for ever
MEMORY = 3 * 2**30  # bytes beyond those of the server
_ROOT = Path(__file__).resolve().parents[2]


class Server:
    """A process that has imported what reads inputs, and what runs `commands`; it forks a child for each input."""

    def __init__(self, *, commands: bool = True) -> None:
        # What a child imports and compiles is not kept: it would be a file outside its folder.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
        words = [sys.executable, "-m", "tests.fuzz.children", *(["commands"] if commands else [])]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, cwd=_ROOT, text=True)

    def attempt(self, folder: Path, how: dict[str, Any]) -> dict[str, Any]:
        """What came of an input: see `tests.fuzz.reading.attempt`; or that it hung or crashed."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the server has no pipes")
        stdin.write(json.dumps([str(folder), how]) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError("the server of child processes has ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the server."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def serve() -> None:
    """Answer each line of standard input, a folder and what to do with it, with a line of what came of it."""
    from tests.fuzz import reading

    reading.warm(commands="commands" in sys.argv)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        folder, how = json.loads(line)
        answers.write(json.dumps(_forked(Path(folder), how, reading.attempt)) + "\n")
        answers.flush()


def _forked(folder: Path, how: dict[str, Any], attempt: Any) -> dict[str, Any]:
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        os.setsid()
        log = os.open(folder / "LOG", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        limit = _virtual() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        with os.fdopen(theirs, "w") as answer:
            answer.write(json.dumps(attempt(folder, how)))
        os._exit(0)
    os.close(theirs)
    begun, content = time.monotonic(), b""
    with os.fdopen(ours, "rb", buffering=0) as answer:
        while (left := _WALL - (time.monotonic() - begun)) > 0:
            if not select.select([answer], [], [], left)[0]:
                continue
            part = answer.read(1 << 16)
            if not part:
                break
            content += part
        else:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"end": "hang"}
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return {"end": "hang", "log": _log(folder)}
    if status or not content:
        return {"end": "crash", "text": f"exit code {os.waitstatus_to_exitcode(status)}", "log": _log(folder)}
    found: dict[str, Any] = json.loads(content)
    return found


def _log(folder: Path) -> str:
    return (folder / "LOG").read_text(errors="replace")[-2000:]


def _virtual() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    serve()
