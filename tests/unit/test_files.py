"""Files that survive a crash: atomic writes, locks, and the journal."""

import multiprocessing
import os

import pytest

from midam.errors import ConfigError
from midam.files import Journal, held, write_bytes, write_json, write_text

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
