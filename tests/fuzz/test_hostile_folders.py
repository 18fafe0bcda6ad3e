"""Folders of strangers: nothing outside changes, no module of theirs is imported, nothing is waited for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.hostile_folders import COMMANDS, FOLDERS, SECONDS, Canaries, in_time, make_sound

from midam.cli import main

# All of them are many commands: a seventh, and the targets, are tried each time, the rest with the long tests.
TRICKS = [
    pytest.param((kind, name), id=f"{kind}-{name}", marks=[] if at % 7 == 0 or "target" in name else pytest.mark.long)
    for kind, tricks in FOLDERS.items()
    for at, name in enumerate(tricks)
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    pytest.importorskip("safetensors")
    folder = tmp_path_factory.mktemp("sound")
    make_sound(folder)
    return folder


def test_each_folder_has_thirty_tricks():
    assert all(len(tricks) >= 30 for tricks in FOLDERS.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trick", TRICKS)
def test_a_folder_of_a_stranger(sound, tmp_path, monkeypatch, capsys, trick):
    kind, name = trick
    folder, canaries = tmp_path / "here", Canaries(tmp_path / "outside")
    shutil.copytree(sound, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(canaries.place))
    if kind == "export":
        FOLDERS[kind][name](folder, canaries.place)
        scored = [sys.executable, "export/score_bags.py", "bags.csv", "--out", "scores.csv"]
        if not name.endswith(("part", "lock")):
            done = subprocess.run(scored, capture_output=True, timeout=SECONDS, check=False)
            assert done.returncode in (0, 1, 2), done.stderr
            canaries.check()
            shutil.rmtree(folder / "export")
    else:
        FOLDERS[kind][name](folder, canaries.place)
    # What a hard link or a link may show is the trick's, what is written elsewhere is not.
    for words in COMMANDS[kind]:
        with in_time():
            code = main(words)
        said = capsys.readouterr().err
        assert code in (0, 2), said
        assert "Traceback" not in said
        assert code == 0 or "midam: error:" in said, words
        canaries.check()
    assert not Path("canary_module.py").exists()
