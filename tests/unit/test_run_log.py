import re
import warnings

import pytest

from midam.cli import main
from midam.errors import ConfigError, Note, RunStoppedError
from midam.runs.folder import RunFolder, RunLog

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")


def lines(folder):
    found = folder.log.read_text("utf-8").splitlines()
    assert all(STAMP.match(line) for line in found)
    return [STAMP.sub("", line, count=1) for line in found]


def begun(root):
    folder = RunFolder(root)
    with folder.held():
        folder.config.write_text("data: digits\n")
    return folder


def test_lines_are_kept_back_until_the_folder_is_held_and_has_settings(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with RunLog(folder) as log:
        log.add("early")
        assert not folder.root.exists()
        with folder.held():
            log.add("held")
            assert not folder.log.exists()
            folder.config.write_text("data: digits\n")
            log.add("two\nlines")
    assert lines(folder)[2:] == ["early", "held", "two", "lines"]


def test_a_refused_start_writes_into_no_log(tmp_path):
    folder = begun(tmp_path)
    other = RunFolder(tmp_path)
    with pytest.raises(ConfigError), RunLog(other):
        raise ConfigError("Expected a free folder.")
    assert not folder.log.exists()


@pytest.mark.parametrize(
    ("error", "last"),
    [(ConfigError("wrong"), "error: wrong"), (RunStoppedError("stopped; go on"), "stopped; go on")],
)
def test_errors_and_warnings_end_in_the_log(error, last, tmp_path):
    folder = begun(tmp_path)

    def run():
        with RunLog(folder):
            warnings.warn("beware", UserWarning, stacklevel=1)
            warnings.warn("chosen", Note, stacklevel=1)
            raise error

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(type(error)):
            run()
    assert lines(folder)[2:] == ["warning: beware", "note: chosen", last]
    assert len(shown) == 2


def test_an_unexpected_error_has_its_traceback_and_the_log_grows(tmp_path):
    folder = begun(tmp_path)
    with pytest.raises(ZeroDivisionError), RunLog(folder):
        raise ZeroDivisionError("division by zero")
    with RunLog(folder) as log:
        log.add("again")
    found = lines(folder)
    assert found[2] == "Traceback (most recent call last):"
    assert "ZeroDivisionError: division by zero" in found
    assert found[-1] == "again"


def test_a_log_of_others_is_a_file(tmp_path):
    folder = begun(tmp_path)
    with RunLog(folder):
        pass
    assert folder.is_begun()
    folder.clear()
    assert folder.contents() == []
    folder.require_free()
    folder.log.write_text("my own notes\n")
    assert folder.contents() == [folder.log]


def test_the_command_logs_what_it_says(tmp_path, capsys):
    out = tmp_path / "run"
    options = ["--epochs", "2", "--members", "1", "--num-instances", "4", "--no-baseline"]
    assert main(["fit", "digits", *options, "--out", str(out)]) == 0
    said = capsys.readouterr()
    folder = RunFolder(out)
    found = lines(folder)
    assert found[1] == f"midam fit digits {' '.join(options)} --out {out}"
    assert found[2].startswith("python ")
    assert found[2].endswith(" cores")
    assert found[3] == "training attention x vrsp x minmax-auc on digits"
    assert found[4].startswith("settings: ")
    assert " --epochs 2 " in found[4]
    assert any(line.startswith("data: digits, 360 bags, ") for line in found)
    assert found[-1].startswith("seconds: reading ")
    assert [line.split("  ")[0] for line in found if line.startswith("epoch ")] == ["epoch 1/2", "epoch 2/2"]
    assert f"run folder: {out}" in found
    for line in said.err.splitlines():
        assert any(line.strip() in one or "0/" in line or "bags" in line for one in found), line
    before = len(found)
    assert main(["fit", "--resume", str(out)]) == 0
    assert lines(folder)[:before] == found
    assert lines(folder)[before + 3] == "continues attention x vrsp x minmax-auc"


def test_control_characters_are_escapes_in_the_log(tmp_path):
    folder = begun(tmp_path)
    with folder.held(), RunLog(folder) as log:
        log.add("class b\x1b[2J\r\x85\udcff\nnext\ttab")
    assert lines(folder)[-2:] == [r"class b\x1b[2J\r\x85\udcff", "next\ttab"]
