"""Ctrl-C at a terminal: the bar goes, and the message stands alone."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.commands import PATIENCE, rows, table
from tests.unit.test_terminal import screen

import midam
from midam.cli import main


@pytest.mark.slow
@pytest.mark.long  # `test_resume.py` interrupts runs too, but not at a terminal
def test_ctrl_c_leaves_no_bar(tmp_path):
    data, run = table(tmp_path / "bags.csv"), tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": str(Path(midam.__file__).parents[1]), "COLUMNS": "60", "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "midam.cli", "fit", str(data), "--epochs", "100000", "--out", "run"]
    master, slave = pty.openpty()
    how = {"stdin": slave, "stdout": slave, "stderr": slave, "start_new_session": True}
    # The terminal is that of the new session, so that the key reaches the command, which a shell may have told to
    # ignore it: tests that run in the background inherit that.
    take = (
        "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen([sys.executable, "-c", take, *command], cwd=tmp_path, env=environment, **how)
    os.close(slave)
    os.set_blocking(master, False)
    shown, sent, deadline = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            shown += os.read(master, 65536)
        except BlockingIOError:
            if process.poll() is not None:
                break
        except OSError:  # the other side is closed
            break
        if not sent and rows(run / "metrics.csv") > 1:
            sent = bool(os.write(master, b"\x03"))
        time.sleep(0.02)
    assert process.wait(PATIENCE) == 130
    os.close(master)
    lines = screen(shown.decode(), width=60)
    assert lines[0].startswith("training attention x vrsp x minmax-auc on ")
    assert "\u2501" not in "".join(lines), "a bar was left behind"
    assert any(line.startswith("midam: stopped") for line in lines)


def test_ctrl_c_after_the_last_line_changes_nothing(capsys):
    code = (
        "import atexit, os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); sys.argv[1:] = ['fitt']; "
        "from midam.cli import main; sys.exit(main())"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(midam.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert main(["fitt"]) == 2
    assert (done.returncode, done.stderr.split()) == (2, capsys.readouterr().err.split())
