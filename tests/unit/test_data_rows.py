"""Instances on disk: the same numbers as in memory, read by position."""

import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tests.row_files import row_file

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.digests import bag_digests
from midam.data.on_disk import RowFile
from midam.errors import BagDataError


@pytest.fixture
def array():
    return np.random.default_rng(0).normal(size=(500, 3, 2)).astype(np.float16)


@pytest.fixture(params=["mmap", "pread", "auto"])
def rows(request, array, tmp_path):
    return row_file(tmp_path / "rows", array, reads=request.param)


@pytest.mark.parametrize(
    "positions",
    [[3], [7, 2, 499, 2], [[0, 1], [5, 4]], np.arange(40, 300), np.r_[np.arange(100), np.arange(300, 420)], []],
)
def test_take_is_the_index_of_the_array(rows, array, positions):
    index = np.asarray(positions, dtype=np.int64)
    np.testing.assert_array_equal(rows.take(index), array[index])
    np.testing.assert_array_equal(rows[index], array[index])


def test_slices(rows, array):
    for chosen in (slice(None), slice(3, 9), slice(9, 3), slice(0, 100, 7)):
        np.testing.assert_array_equal(rows[chosen], array[chosen])


@pytest.mark.parametrize("position", [-1, 500])
def test_positions_outside(rows, position):
    with pytest.raises(IndexError):
        rows.take([position])


def test_a_pickle_carries_the_path_alone(rows, array):
    text = pickle.dumps(rows)
    assert len(text) < 1000
    np.testing.assert_array_equal(pickle.loads(text).take([4, 2]), array[[4, 2]])


def test_threads_read_the_same(rows, array):
    wanted = [np.random.default_rng(n).integers(0, 500, 64) for n in range(64)]
    with ThreadPoolExecutor(8) as pool:
        for index, found in zip(wanted, pool.map(rows.take, wanted), strict=True):
            np.testing.assert_array_equal(found, array[index])


def test_closed_rows_open_again(rows, array):
    rows.take([1])
    rows.close()
    np.testing.assert_array_equal(rows.take([1]), array[[1]])


def test_never_an_array_by_accident(rows):
    with pytest.raises(BagDataError, match="all 500"):
        np.asarray(rows)


def test_a_short_file(tmp_path):
    (tmp_path / "rows").write_bytes(b"123")
    with pytest.raises(BagDataError, match="Expected more bytes at 3, got the end"):
        RowFile(tmp_path / "rows", shape=(1, 1), dtype="<f4", reads="pread").take([0])


def test_bags_on_disk_are_the_bags_in_memory(rows, array):
    parts = {"starts": [0, 200], "sizes": [200, 300], "labels": [0, 1]}
    memory, disk = Bags(array, **parts), Bags(rows, **parts)
    assert bag_digests(disk) == bag_digests(memory)
    assert disk.fingerprint() == memory.fingerprint()
    np.testing.assert_array_equal(disk[1], memory[1])
    index = np.array([5, 499, 0])
    found = [InstanceReader(bags).rows(torch.from_numpy(index)) for bags in (disk, memory)]
    assert (found[0] == found[1]).all()
    disk.check()


def test_a_mask_selects(rows, array):
    mask = np.arange(500) % 3 == 0
    np.testing.assert_array_equal(rows[mask], array[mask])
    np.testing.assert_array_equal(rows.take(mask.tolist()), array[mask])
    for instances in (rows, array):
        bags = Bags(instances, starts=[0], sizes=[500])
        np.testing.assert_array_equal(bags.gather(mask), array[mask])
        with pytest.raises(IndexError, match=r"mask of 500 values, got shape \(3,\)"):
            bags.gather([True, False, True])


@pytest.mark.parametrize("change", ["truncate", "overwrite"])
def test_a_file_that_changes_while_it_is_read_is_refused(rows, tmp_path, change):
    path, copy = tmp_path / "rows", pickle.dumps(rows)
    rows.take([1, 2])
    if change == "truncate":
        os.truncate(path, 600)
    else:
        path.write_bytes(bytes(path.stat().st_size))
        os.utime(path, ns=(1, 1))  # a clock of the file system may be coarse
    for read in (lambda: rows.take([400, 3]), lambda: rows.read(0, 500), lambda: pickle.loads(copy).take([400])):
        with pytest.raises(BagDataError, match="a changed one"):
            read()


def test_a_file_that_another_replaces_stays_as_it_was(rows, array, tmp_path):
    rows.read(0, 1)
    (tmp_path / "other").write_bytes(bytes(array.nbytes))
    copy = pickle.dumps(rows)
    (tmp_path / "other").replace(tmp_path / "rows")
    np.testing.assert_array_equal(rows.take([400, 3]), array[[400, 3]])
    with pytest.raises(BagDataError, match="a changed one"):
        pickle.loads(copy).take([400])
