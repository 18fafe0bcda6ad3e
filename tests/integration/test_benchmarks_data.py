"""The benchmarks of large bags measure what they say: on small files, in real processes."""

import os
import time
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import io_formats, memory, memory_members
from benchmarks.shared import AnonymousPeak, forget, resident_share, sparse_store
from tests.row_files import row_file

from midam.data.on_disk import RowFile
from midam.data.store import open_store

pytestmark = pytest.mark.drawn

MIB = 1 << 20


def test_sparse_store_opens_and_takes_no_room(tmp_path: Path) -> None:
    folder = sparse_store(tmp_path / "store", bags=4, size=10_000, width=256)
    bags = open_store(folder)
    assert bags.sizes.tolist() == [10_000] * 4
    assert bags.require_labels().tolist() == [0, 1, 0, 1]
    assert not np.asarray(bags[3]).any()
    assert sum(file.stat().st_blocks for file in folder.iterdir()) * 512 < MIB < bags.instances.nbytes


def test_forgotten_files_leave_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with path.open("wb") as file:
        file.write(np.random.default_rng(0).bytes(4 * MIB))
        file.flush()
        os.fdatasync(file.fileno())  # fsync waits for nothing in tests, see tests.quick
    path.read_bytes()
    before = resident_share([path])
    forget([path])
    assert before > 0.9
    assert resident_share([path]) < 0.1


def test_rows_on_the_disk_are_asked_for_before_they_are_read(tmp_path: Path) -> None:
    rows = row_file(tmp_path / "rows", np.arange(2**22, dtype=np.float32).reshape(-1, 1024), reads="pread")
    positions = np.arange(0, len(rows), 2)
    file = FileIO(rows.path)
    os.fdatasync(file.fileno())
    forget(rows.paths)
    rows._announce(file, positions)
    deadline = time.monotonic() + 20
    while resident_share(rows.paths) < 0.5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert resident_share(rows.paths) >= 0.5
    file.close()
    for reads in ("pread", "mmap"):
        forget(rows.paths)
        found = RowFile(rows.path, shape=rows.shape, dtype=rows.dtype, reads=reads).gather(positions)
        assert np.array_equal(found[:, 0], positions * 1024.0)


def test_anonymous_peak_sees_what_was_given_back() -> None:
    with AnonymousPeak() as idle:
        pass
    with AnonymousPeak() as peak:
        held = np.ones(64 * MIB, dtype=np.uint8)
        time.sleep(0.05)
        del held
        time.sleep(0.05)
    assert peak.mib > idle.mib + 50


@pytest.mark.long
def test_memory_counts_what_a_process_takes_and_stops_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory_members.make_files(tmp_path / "store", "store", 200)
    row = memory.measure("train", "midam", 200, store)
    assert "failed" not in row
    assert 5 < row["anon_mib"] < row["peak_mib"] + 5 < 500
    monkeypatch.setattr(memory, "LIMIT_MIB", 1)
    stopped = memory.measure("train", "midam", 200, store)
    assert (stopped["anon_mib"], stopped["failed"]) == (None, "passed 1 MiB")


def test_memory_says_what_is_flat() -> None:
    rows = [
        {"case": "score", "who": "midam", "bag_size": size, "anon_mib": anon, "peak_mib": 20.0}
        for size, anon in ((100, 1.0), (1000, 10.0), (10_000, 11.0))
    ]
    assert memory.flatness(rows, "score", "midam", "anon_mib") == pytest.approx(1.1)
    assert memory.flatness(rows[:2], "score", "midam", "anon_mib") is None
    anonymous, peak = memory.verdicts(rows)
    assert anonymous.endswith("Missed.")
    assert peak.endswith("Met.")


def test_all_formats_give_the_same_rows(tmp_path: Path) -> None:
    shape = io_formats.Shape(bags=16, rows=80, width=8)
    places, draws = io_formats.make_files(tmp_path, shape), io_formats.draw(shape, epochs=2)
    bags, slots = draws[1]
    want = np.stack([np.asarray(open_store(places["store"])[int(bag)])[own] for bag, own in zip(bags, slots)])
    for who, kind in io_formats.FORMATS.items():
        for cold in (False, True):
            batches = kind(places[who], draws, cold=cold)
            assert np.array_equal(batches[1].numpy(), want.reshape(-1, 8)), who
    for cold in (False, True):
        seen: list[torch.Tensor] = []
        run = io_formats.store_run(places["store"], draws, reads="pread", cold=cold, workers=2, on_batch=seen.append)
        run(3)
        assert len(seen) == 3
        assert np.array_equal(seen[1].numpy(), want.reshape(-1, 8))
