"""The script of `midam completion` completes in a real bash; the other shells' scripts are made."""

import shutil
import subprocess

import pytest
from tests.integration.commands import finish, start

from midam.cli import main

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
$(complete -p midam | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    path = tmp_path_factory.mktemp("completion") / "midam.bash"
    assert finish(start("completion", "bash", log=path)) == 0
    return path


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["ex"], {"explain", "export"}),
        (["fit", "--num-"], {"--num-positive", "--num-negative", "--num-instances", "--num-nodes"}),
        (["fit", "digits", "--pooling", "smoo"], {"smoothed-max"}),
        (["fit", "digits", "--select", "b"], {"best"}),
        (["fit", "dig"], {"digits"}),
        (["data", "imp"], {"import"}),
        (["completion", "z"], {"zsh"}),
        (["export", "--fo"], {"--format"}),
    ],
    ids=lambda value: " ".join(sorted(value)),
)
def test_bash_completes(script, tmp_path, words, wanted):
    command = ["bash", "--norc", "-c", COMPLETE, "bash", script, "midam", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == wanted


def test_bash_completes_files(script, tmp_path):
    (tmp_path / "slides.store").mkdir()
    command = ["bash", "--norc", "-c", COMPLETE, "bash", script, "midam", "fit", "sli"]
    assert subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.split() == [
        "slides.store"
    ]


@pytest.mark.parametrize(("shell", "start"), [("zsh", "#compdef midam"), ("tcsh", "# AUTOMATICALLY GENERATED")])
def test_the_other_shells(capsys, shell, start):
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text.startswith(start)
    assert "--num-instances" in text or shell == "tcsh"


def test_an_unknown_shell_is_refused(capsys):
    assert main(["completion", "fish"]) == 2
    assert "invalid choice: 'fish'" in capsys.readouterr().err
