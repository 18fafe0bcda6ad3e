"""A store gives back what was written, whatever stopped the writing; what is damaged is named."""

import errno
import hashlib
import json
import multiprocessing
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from tests.probing import probed
from tests.row_files import row_file

from midam.data.bags import Bags
from midam.data.covariates import Covariates
from midam.data.digests import bag_digests
from midam.data.on_disk import RowFile
from midam.data.sources import read_bags
from midam.data.sources.file_rows import FileRows
from midam.data.sources.request import ImageOptions
from midam.data.store import is_store, open_store, verify_store, write_store
from midam.data.store import write as store_rows
from midam.data.store.write import plan_digest, require_free, stamp
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, ConfigError, DataNotFoundError, RunStoppedError, StoreError
from midam.files import Journal

TEXTS = ("ids", "groups", "splits", "sources", "attributes")


def make(dtype="f4", shape=(6,), *, bags=7, seed=0, **columns):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, bags)
    values = rng.integers(0, 200, (sizes.sum(), *shape)).astype(dtype)
    return Bags(values, starts=np.cumsum(sizes) - sizes, sizes=sizes, **columns)


def full(**changes):
    return make(
        **{
            "labels": [0, 1, 0, 1, 1, 0, 0],
            "ids": ["bäg", "b", "c d", "e", "f", "g", "h"],
            "groups": ["p1", "p1", "p2", "p3", "p4", "p5", "p6"],
            "splits": ["train"] * 4 + ["val", "test", "test"],
            "sources": [f"/slides/{name}.h5" for name in "abcdefg"],
            "attributes": [json.dumps({f"{name}.h5": {"coords": {"patch_size": 256}}}) for name in "abcdefg"],
            "feature_names": list("uvwxyz"),
            "source": "slides",
            **changes,
        }
    )


def with_coords(bags):
    rows = np.arange(2 * len(bags.instances)).reshape(-1, 2)
    columns = {name: getattr(bags, name) for name in (*TEXTS, "labels", "starts", "sizes", "feature_names", "source")}
    return Bags(bags.instances, coords=rows, **columns)


def on_file(tmp_path, **changes):
    """Make bags whose instances lie in a file."""
    bags = full(**changes)
    rows = row_file(tmp_path / "rows", bags.instances)
    columns = {name: getattr(bags, name) for name in (*TEXTS, "labels", "starts", "sizes")}
    return Bags(rows, **columns, source=str(tmp_path / "rows"))


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same(found, expected):
    for index in range(len(expected)):
        np.testing.assert_array_equal(found[index], expected[index])
    assert found.instances.dtype == expected.instances.dtype.newbyteorder("<")
    for name in ("sizes", "labels", *TEXTS):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.feature_names == expected.feature_names


@pytest.fixture
def stored(tmp_path):
    return write_store(with_coords(full()), tmp_path / "store")


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("reads", ["mmap", "pread"])
@pytest.mark.parametrize(
    ("dtype", "shape"), [("f2", (6,)), ("f4", (6,)), ("f8", (6,)), (">f4", (6,)), ("u1", (3, 32, 32)), ("?", (6,))]
)
def test_what_is_written_is_read(tmp_path, dtype, shape, reads):
    names = list("uvwxyz") if len(shape) == 1 else None
    bags = full(dtype=dtype, shape=shape, feature_names=names)
    assert write_store(bags, tmp_path / "store") == tmp_path / "store"
    found = open_store(tmp_path / "store", reads=reads)
    assert_same(found, bags)
    if not dtype.startswith(">"):
        assert bag_digests(found) == bag_digests(bags)
        assert found.fingerprint() == bags.fingerprint()
    assert found.source == str(tmp_path / "store")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    assert verify_store(tmp_path / "store") == []


def test_what_is_not_known_stays_unknown(tmp_path):
    found = open_store(write_store(make(), tmp_path / "store"))
    columns = ("labels", "groups", "splits", "sources", "coords", "feature_names")
    assert [getattr(found, name) for name in columns] == [None] * 6
    assert found.ids.tolist() == [str(number) for number in range(7)]


def test_coordinates_go_with_their_instances(tmp_path):
    bags = with_coords(full()).subset([5, 0, 3])
    found = open_store(write_store(bags, tmp_path / "store"))
    assert_same(found, bags)
    for index in range(3):
        np.testing.assert_array_equal(found.places(index), bags.places(index))
    assert os.path.getsize(tmp_path / "store" / "instances.npy") == 128 + bags.num_instances * 6 * 4


def test_instance_labels_go_with_their_instances(tmp_path):
    bags = full()
    bags = bags.replace(instance_labels=np.arange(len(bags.instances)) % 3 == 1).subset([5, 0, 3])
    found = open_store(write_store(bags, tmp_path / "store"))
    for index in range(3):
        start, own = bags.starts[index], found.starts[index]
        size = bags.sizes[index]
        assert found.instance_labels[own : own + size].tolist() == bags.instance_labels[start : start + size].tolist()
    assert found.fingerprint() == bags.replace(instance_labels=None).fingerprint()
    assert open_store(write_store(full(), tmp_path / "plain")).instance_labels is None
    assert plan_digest(bags) != plan_digest(bags.replace(instance_labels=1 - bags.instance_labels)), "another import"


def test_the_bytes_do_not_depend_on_the_jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(store_rows, "_LARGE", 1)
    bags = with_coords(make(bags=60, groups=[f"g{i}" for i in range(60)]))
    for jobs in (1, 2):
        write_store(bags, tmp_path / str(jobs), jobs=jobs)
    assert content(tmp_path / "1") == content(tmp_path / "2")


def test_the_files_are_read_with_numpy_and_pandas(stored):
    rows, table = np.load(stored / "instances.npy", mmap_mode="r"), pd.read_csv(stored / "bags.csv")
    ends = table["size"].cumsum()
    np.testing.assert_array_equal(rows[ends[2] : ends[3]], full()[3])
    assert table["id"][0] == "bäg"
    assert table["group"].tolist() == full().groups.tolist()
    assert len(np.load(stored / "coords.npy")) == len(rows)
    first = hashlib.sha256(json.dumps(["<f4", 6]).encode() + rows[: ends[0]].tobytes()).hexdigest()
    assert table["digest"][0] == first


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a\rb", "a\nb", "=1+1", "007", "1e3", " a", "a;b", "\u2028x"])
def test_names_of_any_kind_come_back(tmp_path, name):
    bags = Bags.from_list([[[1.0]], [[2.0]]], labels=[0, 1]).replace(groups=[name, "b"], sources=[name, ""])
    found = open_store(write_store(bags, tmp_path / "store"))
    assert found.groups.tolist() == bags.groups.tolist()
    assert found.sources.tolist() == bags.sources.tolist()


def test_numbers_come_back_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(0)
    times = np.array([0.1 + 0.2, 1.3e-38, 1.6e19, *rng.lognormal(size=37)])
    covariates = Covariates.of({"age": [None, *(rng.normal(size=39) * 1e5)], "sex": ["", *["f"] * 39]})
    outcome = TargetLabels.of("survival", np.stack([times, np.arange(40) % 2], axis=1), names=["time", "event"])
    bags = Bags.from_list([[[float(i)]] for i in range(40)], outcome=outcome).replace(covariates=covariates)
    found = open_store(write_store(bags, tmp_path / "store"))
    np.testing.assert_array_equal(found.outcome.values, bags.outcome.values)
    assert found.covariates.values() == bags.covariates.values()
    assert found.fingerprint() == bags.fingerprint()


def test_one_long_text_does_not_widen_the_others(tmp_path):
    long = json.dumps({"a.h5": {"coords": {"name": "ü" * 200_000}}})
    bags = make(bags=500, attributes=[long, *["{}"] * 499], sources=["/ä.h5"] * 500)
    found = open_store(write_store(bags, tmp_path / "store"))
    assert (tmp_path / "store" / "bags.csv").stat().st_size < 2 * len(long.encode()) + 100_000
    assert found.attributes.nbytes == 500 * 8
    assert found.attributes[1] is found.attributes[499]
    assert found.described(0) == json.loads(long)
    chosen = found.subset([3, 0])
    assert chosen.attributes.tolist() == ["{}", long]
    assert chosen.sources.tolist() == ["/ä.h5"] * 2


@pytest.mark.parametrize("done", [1, 4, 7])
def test_a_stopped_import_writes_only_what_is_left(tmp_path, monkeypatch, done):
    bags = on_file(tmp_path)
    whole = content(write_store(bags, tmp_path / "whole"))
    seen, reads = [], []

    def stop(number):
        seen.append(number)
        if len(seen) == done:
            raise KeyboardInterrupt

    with pytest.raises(RunStoppedError, match=r"of 7 bags are written .* repeat the command to continue"):
        write_store(bags, tmp_path / "out", on_bag=stop)
    assert not (tmp_path / "out").exists()
    assert not is_store(tmp_path / ".out.part")
    journaled = (tmp_path / ".out.journal").read_text().count("\n") - 1
    assert journaled >= done
    read = RowFile.read
    monkeypatch.setattr(RowFile, "read", lambda rows, low, high: reads.append(low) or read(rows, low, high))
    again = []
    write_store(bags, tmp_path / "out", on_bag=again.append)
    assert sorted(again) == list(range(7))
    assert len(reads) == 7 - journaled
    assert content(tmp_path / "out") == whole
    assert not list(tmp_path.glob(".out*"))


def stopped(bags, out):
    def stop(number):
        raise KeyboardInterrupt

    with pytest.raises(RunStoppedError):
        write_store(bags, out, on_bag=stop)


def test_an_import_with_other_reading_options_starts_anew(tmp_path):
    volumes = np.random.default_rng(0).uniform(1, 2, (3, 4, 5, 6)).astype(np.float32)
    paths = [tmp_path / f"{name}.npy" for name in "abc"]
    for path, volume in zip(paths, volumes, strict=True):
        np.save(path, volume)

    def cut(window):
        rows = FileRows(probed(paths, ImageOptions(window=window)))
        return Bags(rows, starts=[0, 4, 8], sizes=[4, 4, 4])

    stopped(cut((0.0, 2.0)), tmp_path / "out")
    with pytest.warns(UserWarning, match="it starts again"):
        write_store(cut((1.0, 2.0)), tmp_path / "out")
    for found, volume in zip(open_store(tmp_path / "out"), volumes):
        np.testing.assert_allclose(found[:, 0], volume - 1, atol=1e-6)


def test_a_changed_file_in_a_folder_makes_another_plan(tmp_path):
    chunk = tmp_path / "a.zarr" / "features" / "c0"
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(b"1234")
    before, again = stamp(tmp_path / "a.zarr"), stamp(tmp_path / "a.zarr")
    assert before == again
    folder = (tmp_path / "a.zarr").stat()
    os.utime(chunk, (1, 1))
    os.utime(tmp_path / "a.zarr", ns=(folder.st_atime_ns, folder.st_mtime_ns))
    assert stamp(tmp_path / "a.zarr") != before


@pytest.mark.parametrize("change", ["file", "labels", "content"])
def test_an_import_of_other_data_starts_anew(tmp_path, change):
    bags = full() if change == "content" else on_file(tmp_path)

    stopped(bags, tmp_path / "out")
    if change == "file":
        other = on_file(tmp_path)
    else:
        other = full(seed=0, **({"dtype": "f8"} if change == "content" else {"labels": [1, 1, 0, 1, 1, 0, 0]}))
    with pytest.warns(UserWarning, match="it starts again"):
        write_store(other, tmp_path / "out")
    assert_same(open_store(tmp_path / "out"), other)
    assert verify_store(tmp_path / "out") == []


@pytest.mark.parametrize("line", ['[0, "d"]', "5", "{}", '["0", "d", null]'])
def test_a_journal_with_a_strange_line_starts_anew(tmp_path, line):
    bags, journal = on_file(tmp_path), tmp_path / ".out.journal"
    stopped(bags, tmp_path / "out")
    plan, *_ = journal.read_text().splitlines()
    journal.write_text(f"{plan}\n{line}\n")
    with pytest.warns(UserWarning, match="it starts again"):
        write_store(bags, tmp_path / "out")
    assert_same(open_store(tmp_path / "out"), bags)
    assert verify_store(tmp_path / "out") == []


@pytest.mark.parametrize("tail", [b'[4, "c', b"\0\0\n", b"\xff\n[6]\n"])
def test_a_journal_with_a_damaged_end_is_used_up_to_there(tmp_path, monkeypatch, tail):
    bags, journal, seen = on_file(tmp_path), tmp_path / ".out.journal", []
    whole = content(write_store(bags, tmp_path / "whole"))

    def stop(number):
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(RunStoppedError):
        write_store(bags, tmp_path / "out", on_bag=stop)
    good = journal.read_bytes()
    assert good.count(b"\n") == 4
    journal.write_bytes(good + tail)
    monkeypatch.setattr(
        store_rows, "_write_bag", lambda *args, f=store_rows._write_bag: seen.append(args[1]) or f(*args)
    )
    write_store(bags, tmp_path / "out")
    assert seen == [3, 4, 5, 6]
    assert content(tmp_path / "out") == whole


def test_an_import_that_was_killed_after_its_last_step_leaves_nothing(tmp_path):
    write_store(full(), tmp_path / "out")
    for name in (".out.journal", ".out.journal.lock"):
        (tmp_path / name).write_text("")
    with pytest.raises(StoreError, match="which exists"):
        require_free(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_commit_that_failed_is_not_tried_again(tmp_path, monkeypatch):
    tries = []

    def full_disk(journal, bags):
        tries.append(len(bags))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "journal")

    monkeypatch.setattr(Journal, "add", full_disk)
    monkeypatch.setattr(store_rows, "_COMMIT_SECONDS", -1)
    with pytest.raises(StoreError, match="Expected free space for the store"):
        write_store(full(), tmp_path / "out")
    assert len(tries) == 1
    monkeypatch.undo()
    assert_same(open_store(write_store(full(), tmp_path / "out")), full())


def test_a_link_to_an_empty_folder_is_a_free_place(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    require_free(tmp_path / "link")
    assert_same(open_store(write_store(full(), tmp_path / "link")), full())
    assert (tmp_path / "link").is_symlink()
    assert is_store(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="which exists"):
        require_free(tmp_path / "link")


def test_a_taken_place_is_refused(tmp_path, stored):
    before = content(stored)
    for place in (stored, stored / "store.json"):
        with pytest.raises(StoreError, match="which exists; remove it"):
            write_store(make(), place)
    assert content(stored) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    (tmp_path / "empty").mkdir()
    assert is_store(write_store(make(), tmp_path / "empty"))


def test_a_second_import_to_one_place_is_refused(tmp_path):
    with (
        Journal(tmp_path / ".out.journal", busy=StoreError("busy")),
        pytest.raises(StoreError, match=r"Expected no other import to .*out, got one that is running"),
    ):
        write_store(make(), tmp_path / "out")
    assert is_store(write_store(make(), tmp_path / "out"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_named(tmp_path, value):
    bags = full(dtype="f2")
    bags.instances[bags.starts[4], 3] = value
    with pytest.raises(BagDataError, match=rf"got {value} at instance 0, column 3 \(in /slides/e.h5, bag f\)"):
        write_store(bags, tmp_path / "out", jobs=2)
    assert not (tmp_path / "out").exists()


def test_a_file_system_that_allocates_nothing_is_written_all_the_same(tmp_path, monkeypatch):
    def unsupported(handle, start, size):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(store_rows.os, "posix_fallocate", unsupported)
    assert_same(open_store(write_store(full(), tmp_path / "out")), full())


def test_a_flipped_byte_is_found(stored):
    bags = open_store(stored)
    width = bags.instances.row_bytes
    for number in (0, 3, 6):
        for file, size in (("instances.npy", width), ("coords.npy", 16)):
            shutil.copytree(stored, stored.parent / "copy")
            flip(stored.parent / "copy" / file, 128 + (bags.starts[number] + bags.sizes[number]) * size - 1)
            assert verify_store(stored.parent / "copy", jobs=2) == [(bags.ids[number], file)]
            shutil.rmtree(stored.parent / "copy")


def test_no_byte_of_the_description_or_the_table_can_change(stored):
    for file, step in (("store.json", 7), ("bags.csv", 19), ("instances.npy", 0), ("coords.npy", 0)):
        good = (stored / file).read_bytes()
        for offset in range(0, len(good), step) if step else range(128):
            flip(stored / file, offset)
            with pytest.raises(BagDataError):
                open_store(stored)
            (stored / file).write_bytes(good)
    assert len(open_store(stored)) == 7


def test_half_a_store_is_no_store(stored):
    good = (stored / "store.json").read_bytes()
    for length in range(0, len(good) - 2, 7):
        (stored / "store.json").write_bytes(good[:length])
        assert not is_store(stored)
        with pytest.raises(BagDataError, match=r"no complete store.json"):
            open_store(stored)
    (stored / "store.json").write_bytes(good)
    assert is_store(stored)


@pytest.mark.parametrize("file", ["instances.npy", "coords.npy"])
@pytest.mark.parametrize("cut", ["short", "long", "gone"])
def test_a_file_of_another_size_is_refused(stored, file, cut):
    path = stored / file
    size = path.stat().st_size
    if cut == "gone":
        path.unlink()
    else:
        os.truncate(path, size - 1 if cut == "short" else size + 1)
    with pytest.raises(BagDataError, match=rf"Expected {size} bytes, got \d+ \(in .*{file}\)"):
        open_store(stored)


def test_a_missing_table_is_refused(stored):
    (stored / "bags.csv").unlink()
    with pytest.raises(BagDataError, match=r"bags\.csv"):
        open_store(stored)


def test_a_newer_store_is_refused(stored):
    facts = json.loads((stored / "store.json").read_text())
    (stored / "store.json").write_text(json.dumps({**facts, "version": 6, "novelty": 1}))
    assert is_store(stored)
    with pytest.raises(BagDataError, match=r"Expected a store of version 5, got 6 \(in .*store.json\)"):
        open_store(stored)


def test_what_is_no_store(tmp_path):
    assert not is_store(tmp_path / "none")
    with pytest.raises(DataNotFoundError, match="none"):
        open_store(tmp_path / "none")
    (tmp_path / "store.json").write_text('{"format": "another"}')
    assert not is_store(tmp_path)
    assert not is_store(tmp_path / "store.json")


def _digests(bags):
    return bag_digests(Bags(bags.instances, starts=bags.starts, sizes=bags.sizes))


@pytest.mark.long  # starts processes
def test_processes_read_one_store_at_once(stored):
    bags = open_store(stored, reads="pread")
    np.asarray(bags[0])  # the file is open here, and must not travel
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["midam"])
    with context.Pool(2) as pool:
        for found in pool.map(_digests, [bags] * 4, chunksize=1):
            assert found == bag_digests(bags)


@pytest.mark.parametrize("parameter", ["groups", "label_column"])
def test_what_a_table_of_labels_would_bring_to_a_store_is_said(parameter, tmp_path):
    bags = Bags.from_list([[[1.0]], [[2.0]]], labels=[0, 1])
    store = write_store(bags, tmp_path / "store")
    message = rf"Expected no `{parameter}` .*; leave it out, or give a table with it as `labels`\."
    with pytest.raises(ConfigError, match=message):
        read_bags(store, **{parameter: "patient"})
