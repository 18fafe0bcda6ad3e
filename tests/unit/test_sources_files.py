"""The readers of single files, and many files as one array of rows."""

import gc
import multiprocessing
import os
import pickle
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import zarr
from tests.probing import probe_files, probed

from midam.data.sources.file_names import file_readers, known_suffixes
from midam.data.sources.file_rows import FileRows
from midam.data.sources.probe import probe
from midam.errors import BagDataError, DataNotFoundError, MidamError

N, D = 37, 6


def features(seed=0, n=N, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(n, D)).astype(dtype)


def places(n=N):
    return np.arange(2 * n).reshape(n, 2)


def write_h5(path, x, *, name="features", chunks=None, coords=True, **attributes):
    with h5py.File(path, "w") as file:
        options = {} if chunks is None else {"chunks": (chunks, *x.shape[1:]), "maxshape": (None, *x.shape[1:])}
        dataset = file.create_dataset(name, data=x, **options)
        if coords:
            file.create_dataset("coords", data=places(len(x))).attrs["patch_size_level0"] = np.int64(512)
        dataset.attrs["encoder"] = "conch"
        for key, value in attributes.items():
            file.attrs[key] = value


def write_zarr(path, x, version):
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    group.create_array("features", data=x, chunks=(8, D))
    group.create_array("coords", data=places())
    group.attrs["target_magnification"] = 20


def writers():
    x = features()
    return {
        "clam.h5": lambda path: write_h5(path, x),
        "trident.h5": lambda path: write_h5(path, x, chunks=1),
        "chunks.hdf5": lambda path: write_h5(path, x, chunks=8),
        "stamp.h5": lambda path: write_h5(path, x, name="feats"),
        "nested.h5": lambda path: write_h5(path, x[None], coords=False),
        "apart.h5": lambda path: write_h5(path, x[:, None]),
        "pooled.hdf5": lambda path: write_h5(path, x[..., None, None]),
        "tensor.pt": lambda path: torch.save(torch.from_numpy(x), path),
        "nested.pt": lambda path: torch.save(torch.from_numpy(x[None]), path),
        "apart.pt": lambda path: torch.save(torch.from_numpy(x[:, None]), path),
        "legacy.pt": lambda path: torch.save(torch.from_numpy(x), path, _use_new_zipfile_serialization=False),
        "dict.pt": lambda path: torch.save(
            {"feats": torch.from_numpy(x), "coords": torch.from_numpy(places()), "slide": "a"}, path
        ),
        "array.npy": lambda path: np.save(path, x),
        "big-endian.npy": lambda path: np.save(path, x.astype(">f4")),
        "apart.npy": lambda path: np.save(path, x[:, None]),
        "pooled.npy": lambda path: np.save(path, x[..., None, None]),
        "nested.npz": lambda path: np.savez(path, features=x[None], coords=places()[None]),
        "single.npz": lambda path: np.savez(path, anything=x),
        "keys.npz": lambda path: np.savez(path, features=x, coords=places(), other=1),
        "v2.zarr": lambda path: write_zarr(path, x, 2),
        "v3.zarr": lambda path: write_zarr(path, x, 3),
        "apart.zarr": lambda path: zarr.save_array(str(path), x[:, None]),
        "array.zarr": lambda path: zarr.save_array(str(path), x),
        "dsmil.csv": lambda path: np.savetxt(
            path, x, delimiter=",", header=",".join(map(str, range(D))), comments="", fmt="%.9g"
        ),
        "bare.csv": lambda path: np.savetxt(path, x, delimiter=",", fmt="%.9g"),
        "named.csv": lambda path: np.savetxt(path, x, delimiter=",", header="a,b,c,d,e,f", comments="", fmt="%.9g"),
    }


@pytest.mark.parametrize("name", writers())
def test_each_format_gives_the_same_rows(tmp_path, name):
    writers()[name](tmp_path / name)
    rows = FileRows(probed([tmp_path / name]))
    x = features()
    assert rows.shape == (N, D)
    assert rows.dtype == np.float32
    assert rows.dtype.isnative
    np.testing.assert_array_equal(rows[:], x)
    np.testing.assert_array_equal(rows[5:9], x[5:9])
    order = np.random.default_rng(1).integers(0, N, size=(3, 11))
    np.testing.assert_array_equal(rows[order], x[order])
    facts = rows.files.facts[0]
    if facts.coords_width is not None:
        np.testing.assert_array_equal(FileRows(rows.files, "coords")[:], places())
    rows.close()


def test_every_suffix_is_covered():
    known = [reader for reader in file_readers() if reader.what in ("features", "arrays")]
    assert {Path(name).suffix for name in writers()} == set(known_suffixes(known))


def test_attributes_are_kept(tmp_path):
    write_h5(tmp_path / "a.h5", features(), extractor="uni", tile_size_um=256.0, tags=np.array([b"x", b"y"]))
    assert probe(tmp_path / "a.h5").attributes == {
        "file": {"extractor": "uni", "tile_size_um": 256.0, "tags": ["x", "y"]},
        "features": {"encoder": "conch"},
        "coords": {"patch_size_level0": 512},
    }


def test_patches_and_half_precision_are_read_as_they_are(tmp_path):
    patches = np.random.default_rng(0).integers(0, 255, (5, 3, 8, 8), dtype=np.uint8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = patches
    rows = FileRows(probed([tmp_path / "a.h5"]))
    assert (rows.shape, rows.dtype) == ((5, 3, 8, 8), np.uint8)
    np.testing.assert_array_equal(rows[[4, 0]], patches[[4, 0]])
    torch.save(torch.from_numpy(features(dtype=np.float16)), tmp_path / "b.pt")
    assert FileRows(probed([tmp_path / "b.pt"])).dtype == np.float16
    wide = torch.from_numpy(features()).bfloat16()
    torch.save(wide, tmp_path / "c.pt")
    np.testing.assert_array_equal(FileRows(probed([tmp_path / "c.pt"]))[3:5], wide[3:5].float().numpy())


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return Path.touch, (Path(self.marker),)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")
def test_a_pickle_is_never_executed(tmp_path):
    marker = tmp_path / "marker"
    for name, old in (("a.pt", False), ("b.pt", True)):
        torch.save(
            {"features": torch.ones(3, 2), "x": Bomb(marker)}, tmp_path / name, _use_new_zipfile_serialization=not old
        )
    (tmp_path / "c.pt").write_bytes(pickle.dumps(Bomb(marker)))
    np.savez(tmp_path / "d.npz", features=np.array([Bomb(marker)], dtype=object))
    np.save(tmp_path / "e.npy", np.array([Bomb(marker)], dtype=object), allow_pickle=True)
    (tmp_path / "f.npy").write_bytes(pickle.dumps(Bomb(marker)))
    for path in sorted(tmp_path.glob("?.*")):
        with pytest.raises(BagDataError, match=path.name):
            probe(path)
        assert not marker.exists()
    with pytest.raises(BagDataError, match="which are not loaded"):
        probe(tmp_path / "a.pt")
    torch.load(tmp_path / "a.pt", weights_only=False)
    assert marker.exists(), "the bomb of this test must work"


def test_truncated_files_are_named(tmp_path):
    for name, write in writers().items():
        path = tmp_path / name
        write(path)
        if path.is_dir() or path.suffix == ".csv":
            continue
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(BagDataError, match=f"{name}.*(again)"):
            probe(path)
        path.write_bytes(b"")
        with pytest.raises(BagDataError, match=name):
            probe(path)


def test_damage_that_shows_on_reading_is_named(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=features(n=400), chunks=(400, D), compression="gzip")
        place = file["features"].id.get_chunk_info(0)
    rows = FileRows(probed([path]))
    content = bytearray(path.read_bytes())
    content[place.byte_offset : place.byte_offset + place.size] = bytes(place.size)
    path.write_bytes(content)
    with pytest.raises(BagDataError, match=r"a\.h5"):
        rows[:]
    rows.close()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: write_h5(p, features(), name="data"), "features or feats, got coords, data"),
        (lambda p: write_h5(p, features()[:, 0], coords=False), r"instances as an array.*got shape \(37,\) of float32"),
        (lambda p: write_h5(p, features()[:0], coords=False), "at least one instance"),
        (lambda p: h5py.File(p, "w").close(), "got none"),
        (lambda p: h5py.File(p, "w").create_group("features").file.close(), "features or feats, got none"),
        (lambda p: bad_coords(p, np.zeros((N - 1, 2))), r"\[37, C\].*got float64 \[36, 2\]"),
        (lambda p: bad_coords(p, np.zeros(N)), r"got float64 \[37\]"),
        (lambda p: p.write_text("no hdf5"), "whole HDF5 file"),
    ],
)
def test_bad_h5_files_are_named(tmp_path, write, message):
    write(tmp_path / "slide.h5")
    with pytest.raises(BagDataError, match=message) as caught:
        probe(tmp_path / "slide.h5")
    assert "slide.h5" in str(caught.value)


def bad_coords(path, coords):
    with h5py.File(path, "w") as file:
        file["features"], file["coords"] = features(), coords


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,x\n", "got 'x' in column 'b'"),
        ("1,2\n3,4,5\n", r"bag\.csv"),
        ("\n1,2\n3,x\n", "got 'x'"),
        ("0,1\n3,4,5\n6,7,8\n", "does not match length of data"),
        ("", r"bag\.csv"),
        ("0,1,2\n", "at least one instance"),
        ("x" * (2**24 + 1), "lines of a table, got: field larger"),
    ],
)
def test_bad_csv_bags_are_named(tmp_path, text, message):
    (tmp_path / "bag.csv").write_text(text)
    with pytest.raises(BagDataError, match=message):
        probe(tmp_path / "bag.csv")


def test_other_content_of_a_tensor_file_is_refused(tmp_path):
    torch.save({"weights": torch.ones(2, 2)}, tmp_path / "a.pt")
    torch.save([1, 2], tmp_path / "b.pt")
    torch.save(torch.ones(4, 4).to_sparse(), tmp_path / "c.pt")
    for name, message in (("a.pt", "got weights"), ("b.pt", "got list"), ("c.pt", "dense")):
        with pytest.raises(BagDataError, match=message):
            probe(tmp_path / name)
    with pytest.raises(DataNotFoundError, match="absent"):
        probe(tmp_path / "absent.pt")
    with pytest.raises(BagDataError, match=r"got '\.doc'"):
        probe(tmp_path / "a.doc")


def test_files_that_differ_are_both_named(tmp_path):
    write_h5(tmp_path / "a.h5", features())
    write_h5(tmp_path / "b.h5", np.ones((3, D + 1), np.float32))
    with pytest.raises(BagDataError, match=r"shape \(6,\) as in .*a\.h5, got \(7,\) .in .*b\.h5"):
        probe_files([tmp_path / "a.h5", tmp_path / "b.h5"])


@pytest.mark.parametrize(("suffix", "package", "extra"), [("h5", "h5py", "hdf5"), ("zarr", "zarr", "zarr")])
def test_a_missing_package_is_named(tmp_path, monkeypatch, suffix, package, extra):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    (tmp_path / f"a.{suffix}").write_text("x")
    with pytest.raises(MidamError, match=rf"run `python -m pip install \"midam\[{extra}\]\"`"):
        probe(tmp_path / f"a.{suffix}")


@pytest.fixture
def many(tmp_path):
    """Five files of row-chunked features, and all their rows."""
    sizes = [3, 1, 40, 7, 12]
    parts = [features(seed, n) for seed, n in enumerate(sizes)]
    paths = [tmp_path / f"{number}.h5" for number in range(len(sizes))]
    for path, part in zip(paths, parts):
        write_h5(path, part, chunks=1)
    return FileRows(probed(paths)), np.concatenate(parts)


def test_rows_cross_files(many):
    rows, x = many
    assert rows.shape == x.shape
    np.testing.assert_array_equal(rows[:], x)
    for low in range(0, len(x), 7):
        for high in range(low, len(x) + 1, 5):
            np.testing.assert_array_equal(rows[low:high], x[low:high])
    order = np.random.default_rng(0).integers(0, len(x), size=200)
    np.testing.assert_array_equal(rows[order], x[order])
    with pytest.raises(IndexError):
        rows[[len(x)]]


def test_a_nan_row_is_named_when_it_is_read(tmp_path):
    x = features()
    x[11, 2] = np.nan
    write_h5(tmp_path / "a.h5", features())
    write_h5(tmp_path / "b.h5", x)
    rows = FileRows(probed([tmp_path / "a.h5", tmp_path / "b.h5"]))
    np.testing.assert_array_equal(rows[: N + 11], np.concatenate([features(), x[:11]]))
    for read in (lambda: rows[:], lambda: rows[[N + 11, 0]], lambda: rows[N + 9 : N + 12]):
        with pytest.raises(BagDataError, match=r"instance 11, column 2 .in .*b\.h5"):
            read()


def num_open(files):
    """Files that this process holds open."""
    return len(files._open) if files._process == os.getpid() else 0


def open_files(folder):
    """Files of a folder that the process holds open; a test before may have left others."""
    links = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if exists(n)]
    return sum(link.startswith(f"{folder}/") for link in links)


def exists(number):
    return os.path.islink(f"/proc/self/fd/{number}")


def test_few_files_are_open_at_a_time(tmp_path):
    paths = [tmp_path / f"{number}.h5" for number in range(100)]
    for number, path in enumerate(paths):
        write_h5(path, features(number, 2), coords=False)
    rows = FileRows(probed(paths))
    assert open_files(tmp_path) == 0, "probing closes what it opens"
    np.testing.assert_array_equal(rows[:], np.concatenate([features(number, 2) for number in range(100)]))
    assert num_open(rows.files) == open_files(tmp_path) == 64
    rows.close()
    assert open_files(tmp_path) == 0
    np.testing.assert_array_equal(rows[[199]], features(99, 2)[1:])
    del rows
    gc.collect()
    assert open_files(tmp_path) == 0


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_files_that_are_held_in_memory_are_bounded(tmp_path, monkeypatch, suffix):
    paths = [tmp_path / f"{number}.{suffix}" for number in range(4)]
    for number, path in enumerate(paths):
        if suffix == "npz":
            np.savez(path, features(number))
        else:
            torch.save(torch.from_numpy(features(number)), path, _use_new_zipfile_serialization=False)
    monkeypatch.setattr("midam.data.sources.file_rows._HELD_BYTES", 2 * features().nbytes)
    rows = FileRows(probed(paths))
    assert len(rows[:]) == 4 * N
    assert num_open(rows.files) == 2


def test_a_store_of_zarr_is_named_as_the_folder_that_holds_its_chunks(tmp_path):
    write_zarr(tmp_path / "a.zarr", features(), 3)
    (named,) = FileRows(probed([tmp_path / "a.zarr"])).paths
    assert any("c" in path.parts for path in named.rglob("*") if path.is_file())


def test_threads_read_what_is_there(many):
    rows, x = many
    wrong = []

    def read(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            order = rng.integers(0, len(x), size=20)
            if not np.array_equal(rows[order], x[order]):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def in_child(rows, order, queue):
    values = rows[order]
    queue.put((values, num_open(rows.files), open_files(rows.paths[0].parent)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_opens_its_own_files(many):
    rows, x = many
    assert len(rows[:]) == len(x)
    held = num_open(rows.files)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=in_child, args=(rows, [0, 50], queue))
    process.start()
    values, opened, open_there = queue.get()
    process.join()
    np.testing.assert_array_equal(values, x[[0, 50]])
    assert opened == open_there == 2, "what was inherited is closed"
    assert num_open(rows.files) == held
    np.testing.assert_array_equal(rows[:], x)


def test_copies_carry_paths_alone(many):
    rows, x = many
    assert len(rows[:]) == len(x)
    again = pickle.loads(pickle.dumps(rows))
    assert num_open(again.files) == 0
    np.testing.assert_array_equal(again[3:9], x[3:9])
    assert len(pickle.dumps(rows)) < 5000


def test_probing_names_a_missing_file(many, tmp_path):
    rows, _ = many
    with pytest.raises(MidamError, match="absent"):
        probe_files([*rows.files.paths, tmp_path / "absent.h5"])
