"""Files that survive a crash: atomic writes, locks, and the journal."""

import multiprocessing
import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

import midam
from midam.errors import ConfigError, MidamError
from midam.files import (
    Journal,
    held,
    open_own,
    open_plain,
    replacing,
    require_plain,
    require_plain_folder,
    sweep,
    write_bytes,
    write_json,
    write_text,
)

BUSY = ConfigError("busy")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert os.listdir(tmp_path) == ["a.json"]


def test_text_replaces_the_old_file_whole(tmp_path):
    path = tmp_path / "new" / "a.txt"
    write_text(path, "one\n")
    write_text(path, "zwei ä\n")
    assert path.read_bytes() == "zwei ä\n".encode()
    assert os.listdir(path.parent) == ["a.txt"]


def test_an_error_names_the_file_that_was_meant(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OSError) as error:
        write_bytes(tmp_path / "taken" / "file", b"")
    assert error.value.filename == str(tmp_path / "taken" / "file")


def test_a_link_stays_and_its_file_is_written(tmp_path):
    target, link, chain = tmp_path / "deep" / "target", tmp_path / "link", tmp_path / "chain"
    link.symlink_to("deep/target")
    chain.symlink_to(link)
    for text in ("one\n", "two\n"):
        write_text(chain, text, typed=True)
        assert target.read_text() == text
    assert (os.readlink(link), chain.is_symlink(), os.listdir(target.parent)) == ("deep/target", True, ["target"])


def test_links_in_a_circle_are_kept(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    with pytest.raises(OSError, match="symbolic links"):
        write_text(one, "text", typed=True)
    assert one.is_symlink()
    assert two.is_symlink()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "scores\n", typed=True)
    reader.join(30)
    assert found == ["scores\n"]
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_stays_a_device(tmp_path):
    before = os.stat("/dev/null")
    write_text(Path("/dev/null"), "scores\n", typed=True)
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    write_text(link, "scores\n", typed=True)
    assert link.is_symlink()
    assert os.stat("/dev/null").st_rdev == before.st_rdev
    assert not [name for name in os.listdir("/dev") if "midam" in name]


@pytest.mark.parametrize("to_file", [True, False])
def test_output_is_written_to_where_it_goes(to_file, tmp_path):
    names = [name for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1") if os.path.exists(name)]
    if not names:
        pytest.skip("no /dev/stdout here")
    text = "from pathlib import Path; from midam.files import write_text; print('before'); "
    for name in names:
        text += f"write_text(Path({name!r}), 'scores\\n', typed=True); print('after', {name!r}); "
    environment = os.environ | {"PYTHONPATH": str(Path(midam.__file__).parents[1])}
    out = tmp_path / "out"
    with out.open("w") as file:
        output = file if to_file else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", text], stdout=output, env=environment, check=True)
    expected = "before\n" + "".join(f"scores\nafter {name}\n" for name in names)
    assert (out.read_text() if to_file else done.stdout.decode()) == expected
    assert os.listdir(tmp_path) == ["out"]


LEFT = ".a.0123456789abcdef.midam-partial"


def test_what_a_killed_process_left_half_written_is_swept(tmp_path):
    kept = [tmp_path / "a.tmp", tmp_path / "deep/b.midam-partial", tmp_path / ".c", tmp_path / ".a.midam-partial"]
    outside, link = tmp_path / "outside", tmp_path / ".b.0123456789abcdef.midam-partial"
    (tmp_path / "deep").mkdir()
    for path in (*kept, outside, tmp_path / LEFT, tmp_path / "deep" / LEFT):
        path.write_text("")
    link.symlink_to(outside)
    with replacing(tmp_path / "a") as written:
        sweep(tmp_path)
        assert Path(written.name).exists(), "it is being written"
    found = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert found == sorted([*kept, outside, link, tmp_path / "a"])


def test_a_writer_sweeps_what_another_left_in_its_folder(tmp_path):
    code = "import os; from pathlib import Path; from midam.files import write_parts\n"
    code += f"def parts():\n    yield b'half'\n    os._exit(1)\nwrite_parts(Path({str(tmp_path / 'a')!r}), parts())"
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".a.")
    write_text(tmp_path / "b", "text")
    assert os.listdir(tmp_path) == ["b"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_that_replaces_another_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(mode)
    write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_follows_the_umask(tmp_path):
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            write_text(tmp_path / f"{mask}", "text")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"{mask}").stat().st_mode) == 0o666 & ~mask


def strange(path, kind, outside):
    """Put something under a name that leads elsewhere, or that nobody should wait for."""
    {
        "link": lambda: path.symlink_to(outside),
        "hard link": lambda: path.hardlink_to(outside),
        "dangling link": lambda: path.symlink_to(outside.with_name("missing")),
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "socket": lambda: socket.socket(socket.AF_UNIX).bind(str(path)),
    }[kind]()


STRANGE = ("link", "hard link", "dangling link", "pipe", "device", "socket")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_written_in_a_folder_goes_nowhere_else(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, outside = Path("folder"), tmp_path / "outside"
    folder.mkdir()
    outside.write_text("1\n")
    for name in ("whole", "log", "done.jsonl", ".lock"):
        strange(folder / name, kind, outside)
    write_text(folder / "whole", "new")
    replaced = nullcontext() if kind == "hard link" else pytest.warns(UserWarning, match="was removed")
    with replaced:
        with open_own(folder / "log") as file:
            file.write(b"new")
        with Journal(folder / "done.jsonl", busy=BUSY) as journal:
            journal.add([2])
        with held(folder, busy=BUSY):
            pass
    assert outside.read_text() == "1\n"
    assert sorted(os.listdir(tmp_path)) == ["folder", "outside"]
    assert [(folder / name).is_symlink() for name in ("whole", "log", "done.jsonl")] == [False] * 3
    assert (folder / "done.jsonl").read_text() == ("1\n2\n" if kind == "hard link" else "2\n")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_what_is_no_file_is_not_read(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("folder/a.json")
    path.parent.mkdir()
    strange(path, kind, tmp_path / "outside")
    with pytest.raises(MidamError, match=rf"Expected a file, got a {kind} \(in folder/a\.json\)"):
        open_plain(path)
    with pytest.raises(MidamError, match=kind):
        require_plain_folder(path.parent)


def test_a_folder_that_is_a_link_is_not_written_to(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(tmp_path / "elsewhere")
    require_plain_folder(tmp_path / "run")
    with pytest.raises(MidamError, match=r"Expected only folders .*run/checkpoints"):
        require_plain_folder(tmp_path / "run", writes=True)


def test_a_device_that_somebody_typed_is_meant(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    require_plain(Path("/dev/stdin"))
    require_plain(Path("/dev/null"))
    with pytest.raises(MidamError, match="a pipe"):
        require_plain(pipe)


def test_who_holds_a_folder_holds_it_alone_and_leaves_nothing(tmp_path):
    with held(tmp_path, busy=BUSY), pytest.raises(ConfigError, match="busy"), held(tmp_path, busy=BUSY):
        pass
    assert os.listdir(tmp_path) == []
    with held(tmp_path, busy=BUSY):
        pass


def _hold(path, ready):
    with held(path, busy=BUSY):
        ready.set()
        os._exit(1)


def test_a_lock_that_a_killed_process_left_holds_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, ready))
    process.start()
    process.join()
    assert os.listdir(tmp_path) == [".lock"]
    with held(tmp_path, busy=BUSY):
        pass
    assert os.listdir(tmp_path) == []


def test_a_journal_keeps_rows_and_drops_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "new" / "done.jsonl"
    with Journal(path, busy=BUSY) as journal:
        journal.add([1, {"b": 0.1}])
    with path.open("ab") as file:
        file.write(b'{"cut')
    with Journal(path, busy=BUSY) as journal:
        assert journal.rows == [1, {"b": 0.1}]
        journal.add([2])
    assert path.read_bytes() == b'1\n{"b": 0.1}\n2\n'


def test_a_journal_says_which_line_is_damaged_and_leaves_it(tmp_path):
    path = tmp_path / "done.jsonl"
    path.write_bytes(b"1\nno\n3\n")
    with Journal(path, busy=BUSY) as journal:
        assert (journal.rows, journal.damaged) == ([1], 2)
    assert path.read_bytes() == b"1\nno\n3\n"
    with Journal(path, busy=BUSY) as journal:
        journal.keep(1)
    assert path.read_bytes() == b"1\n"


@pytest.mark.parametrize(("content", "damaged"), [(b"my download", 1), (b'["cut', None), (b"", None)])
def test_a_file_of_others_in_the_place_of_a_journal_is_not_emptied(content, damaged, tmp_path):
    path = tmp_path / "scores.csv.part"
    path.write_bytes(content)
    with Journal(path, busy=BUSY) as journal:
        assert (journal.rows, journal.damaged) == ([], damaged)
    assert path.read_bytes() == (content if damaged else b"")


@pytest.mark.filterwarnings("ignore:.*was not a file but a link")
def test_a_journal_leaves_nothing_in_a_folder_that_a_link_in_its_place_leads_to(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "j").symlink_to(tmp_path / "outside")
    with Journal(tmp_path / "j", busy=ConfigError("busy")) as journal:
        journal.add([1])
    assert list((tmp_path / "outside").iterdir()) == []
    assert not (tmp_path / "j").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["j", "outside"]


def test_a_journal_is_held_by_one(tmp_path):
    path = tmp_path / "done.jsonl"
    with Journal(path, busy=BUSY), pytest.raises(ConfigError, match="busy"):
        Journal(path, busy=BUSY)
    with Journal(path, busy=BUSY) as journal:
        journal.add([1])
        journal.remove()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_no_part_of_a_row(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no device here that is always full")
    path = tmp_path / "done.jsonl"
    with Journal(path, busy=BUSY) as journal:
        journal.add([1])
        real, journal._file = journal._file, open("/dev/full", "ab", buffering=0)  # noqa: SIM115
        with pytest.raises(OSError, match="No space left"):
            journal.add([2])
        journal._file.close()
        journal._file = real
        assert journal.rows == [1]
