"""Files that would run code, read other files or lie about what they hold: refused, by name, with nothing run."""

import gzip
import io
import json
import math
import os
import pickle
import zipfile

import h5py
import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
import zarr
from PIL import Image
from tests.fuzz.hostile import Bomb
from tests.fuzz.hostile_folders import in_time
from tests.probing import probe_files
from tests.unit.test_sources_slides import scene
from tests.unit.test_sources_volumes import body, save_nifti, save_series

from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.data.sources.file_names import file_readers
from midam.data.sources.probe import probe
from midam.data.sources.request import ImageOptions
from midam.data.store import open_store, write_store
from midam.errors import BagDataError, MidamError
from midam.explain.page import _data
from midam.runs.instance_files import file_names

ROWS = np.arange(30.0, dtype=np.float32).reshape(6, 5)


def refused(path, words, **options):
    with pytest.raises(BagDataError, match=words) as caught:
        probe_files([path], ImageOptions(**options))
    assert path.name in str(caught.value)


def flipped(path, at=None):
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 16
    path.write_bytes(content)


# HDF5


def linked(path, link):
    with h5py.File(path, "w") as file:
        file["features"] = link


def test_features_of_another_hdf5_file_are_not_read(tmp_path):
    other, path = tmp_path / "other.h5", tmp_path / "a.h5"
    with h5py.File(other, "w") as file:
        file["features"] = ROWS
    linked(path, h5py.ExternalLink(str(other), "/features"))
    refused(path, "'features' in the file itself, got a link")
    linked(path, h5py.ExternalLink("a.h5", "/features"))  # this one ended the process
    refused(path, "got a link")
    with h5py.File(path, "w") as file:
        file["way"] = h5py.ExternalLink(str(other), "/")
        file["features"] = h5py.SoftLink("/way/features")
    refused(path, "got a link")
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((6, 5), "f4")
        layout[:] = h5py.VirtualSource(str(other), "features", (6, 5))
        file.create_virtual_dataset("features", layout)
    refused(path, "got data of another file")


def test_bytes_of_any_file_are_no_features(tmp_path):
    ROWS.tofile(tmp_path / "secret")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("features", (6, 5), "f4", external=[(str(tmp_path / "secret"), 0, 120)])
    refused(tmp_path / "a.h5", "got data of another file")


def test_links_inside_a_file_are_not_followed(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["run/feats"] = ROWS
        file["features"] = h5py.SoftLink("/run/feats")
    refused(path, "got a link")
    with h5py.File(path, "w") as file:
        file["features"], file["x"] = h5py.SoftLink("/x"), h5py.SoftLink("/features")
    refused(path, "a.h5")


@pytest.mark.parametrize("shape", [(6, 5), (10**9, 1024)])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_dataset_that_was_not_written_in_full_is_refused(tmp_path, shape, chunked):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("features", shape, "f4", chunks=(2, shape[1]) if chunked else None)
        if chunked:
            data[:2] = 1
    refused(tmp_path / "a.h5", "in full, got a part of it")


def test_a_dataset_without_a_shape_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = h5py.Empty("f4")
    refused(tmp_path / "a.h5", "HDF5")


# Zarr


def zarr_array(path, version, **how):
    zarr.create_array(str(path), data=ROWS, chunks=(3, 5), zarr_format=version, **how)
    return path / (".zarray" if version == 2 else "zarr.json")


@pytest.mark.parametrize("where", ["filters", "compressor"])
def test_a_codec_that_runs_code_is_refused_before_it_is_opened(tmp_path, where):
    path, made = tmp_path / "a.zarr", tmp_path / "made"
    meta = zarr_array(path, 2)
    said = json.loads(meta.read_text()) | {"dtype": "|O", "filters": None, "compressor": None}
    said[where] = [{"id": "pickle"}] if where == "filters" else {"id": "pickle"}
    meta.write_text(json.dumps(said))
    for chunk in (path / "0.0", path / "1.0"):
        chunk.write_bytes(pickle.dumps(Bomb(made)))
    refused(path, "known codecs .*, got the codec 'pickle'")
    assert not made.exists()


def test_a_codec_inside_a_shard_is_checked_too(tmp_path):
    meta = zarr_array(tmp_path / "a.zarr", 3, shards=(6, 5))
    assert probe(tmp_path / "a.zarr").rows == 6
    said = json.loads(meta.read_text())
    said["codecs"][0]["configuration"]["codecs"].append({"name": "numcodecs.pickle", "configuration": {}})
    meta.write_text(json.dumps(said))
    refused(tmp_path / "a.zarr", r"got the codec 'numcodecs\.pickle'")


@pytest.mark.parametrize("version", [2, 3])
def test_missing_chunks_of_zarr_are_warned_of(tmp_path, version):
    zarr_array(tmp_path / "a.zarr", version)
    chunk = tmp_path / "a.zarr" / ("1.0" if version == 2 else "c/1/0")
    chunk.unlink()
    (tmp_path / "labels.csv").write_text("bag,label\na,0\n")
    with pytest.warns(UserWarning, match=r"1 of 1 files are doubtful, .*a\.zarr: chunks of features are missing"):
        read_bags(tmp_path, labels=tmp_path / "labels.csv")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("change", [{"shape": "x"}, {"shape": None}, {"zarr_format": []}, {"fill_value": {}}])
def test_metadata_of_zarr_that_is_wrong(tmp_path, version, change):
    meta = zarr_array(tmp_path / "a.zarr", version)
    meta.write_text(json.dumps(json.loads(meta.read_text()) | change))
    refused(tmp_path / "a.zarr", "Zarr|array|features")


# NumPy


def write_member(path, name, content):
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, content)


def test_an_npy_that_holds_more_than_its_header_says(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    with (tmp_path / "a.npy").open("ab") as file:
        file.write(bytes(20))
    refused(tmp_path / "a.npy", "268 bytes|248 bytes")


BAGS = {"X": np.ones((4, 2)), "bag": [0, 0, 1, 1], "y": [0, 1]}


@pytest.mark.parametrize(
    ("key", "meant"), [("groups", "group"), ("splits", "split"), ("patient_id", "group"), ("Group", "group")]
)
def test_groups_and_splits_under_another_key_are_not_passed_over(tmp_path, key, meant):
    np.savez(tmp_path / "b.npz", **BAGS, **{key: ["train", "test"]})
    with pytest.raises(BagDataError, match=f"Expected the key '{meant}', got '{key}'"):
        read_bags(tmp_path / "b.npz")


def test_other_members_of_an_npz_are_left_alone(tmp_path):
    np.savez(tmp_path / "b.npz", **BAGS, scanner=[1, 2])
    write_member(tmp_path / "b.npz", "notes.txt", "by hand")
    assert len(read_bags(tmp_path / "b.npz")) == 2


def header(shape):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@pytest.mark.parametrize("shape", [(10**13, 4), (2**62, 8), (1, 2)])
def test_an_array_of_another_size_than_its_header_says(tmp_path, shape):
    np.savez(tmp_path / "b.npz", **{key: BAGS[key] for key in ("bag", "y")})
    write_member(tmp_path / "b.npz", "X.npy", header(shape) + bytes(64))
    with pytest.raises(BagDataError, match=r"b\.npz"):
        read_bags(tmp_path / "b.npz")


def test_an_encrypted_npz(tmp_path):
    np.savez(tmp_path / "b.npz", **BAGS)
    content = bytearray((tmp_path / "b.npz").read_bytes())
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(sign)
        while at >= 0:
            content[at + offset] |= 1
            at = content.find(sign, at + 1)
    (tmp_path / "b.npz").write_bytes(content)
    with pytest.raises(BagDataError, match=r"encrypted.*b\.npz"):
        read_bags(tmp_path / "b.npz")


def test_ids_that_are_no_text(tmp_path):
    np.savez(tmp_path / "b.npz", **BAGS, ids=[b"\xff\xfea", b"b"])
    with pytest.raises(BagDataError, match=r"b\.npz"):
        read_bags(tmp_path / "b.npz")


# torch


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(6, 5).to(torch.float8_e4m3fn),
        torch.ones(6, 5, device="meta"),
        torch.ones(6, 5).to(torch.complex64),
        torch.ones(6, 5).to_sparse(),
    ],
    ids=str,
)
def test_tensors_that_are_no_plain_numbers(tmp_path, tensor):
    torch.save(tensor, tmp_path / "a.pt")
    refused(tmp_path / "a.pt", "plain numbers|whole")


@pytest.mark.filterwarnings("ignore:.*prototype", "ignore:.*deprecated")
def test_quantized_and_nested_tensors(tmp_path):
    nested = torch.nested.nested_tensor([torch.ones(2, 5), torch.ones(3, 5)])
    for tensor in (torch.quantize_per_tensor(torch.ones(6, 5), 0.1, 0, torch.qint8), nested):
        torch.save(tensor, tmp_path / "a.pt")
        refused(tmp_path / "a.pt", "plain numbers|whole|other Python objects")


def test_a_flipped_bit_of_a_tensor_is_seen(tmp_path):
    torch.save(torch.from_numpy(ROWS), tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    flipped(tmp_path / "a.pt", content.index(ROWS.tobytes()) + 40)
    refused(tmp_path / "a.pt", "checksum of .* is wrong")


# Scans and pictures


def test_a_scan_whose_stream_is_damaged_is_refused(tmp_path):
    path = save_nifti(tmp_path / "a.nii.gz", body((40, 40, 40)))
    content = bytearray(path.read_bytes())
    content[-8:-4] = bytes(4)  # the checksum: what came before it may be anything
    path.write_bytes(content)
    refused(path, "CRC check failed")


def test_a_scan_that_goes_on_and_on_behind_its_numbers_is_refused(tmp_path):
    path = save_nifti(tmp_path / "a.nii.gz", body())
    with gzip.open(path, "ab", compresslevel=9) as file:
        for _ in range(65):
            file.write(bytes(2**20))
    refused(path, "more than 64 MiB after them")


def test_a_scan_that_says_less_than_it_holds_is_warned_of(tmp_path):
    path = save_nifti(tmp_path / "a.nii", body())
    content = bytearray(path.read_bytes())
    content[46:48] = (5).to_bytes(2, "little")  # slices
    path.write_bytes(content)
    (tmp_path / "labels.csv").write_text("bag,label\na,0\n")
    with pytest.warns(UserWarning, match="bytes more than its header says"):
        read_bags(tmp_path, labels=tmp_path / "labels.csv")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("at", "content"),
    [
        (42, b"\xff\x7f" * 3),
        (42, b"\x00\x80"),
        (70, b"\x07\x00"),
        (108, b"\x00\x00\xc0\x7f"),
        (108, b"\x28\x6b\x6e\x4e"),
    ],
    ids=["vast", "negative", "no type", "nan offset", "far offset"],
)
def test_headers_of_scans_that_are_wrong(tmp_path, packed, at, content):
    path = save_nifti(tmp_path / "a.nii", body())
    raw = bytearray(path.read_bytes())
    raw[at : at + len(content)] = content
    path.unlink()
    path = tmp_path / ("a.nii.gz" if packed else "a.nii")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    refused(path, "NIfTI|volume|grows at most")


@pytest.mark.parametrize(
    "changes", [{"PixelSpacing": (math.nan, 1)}, {"ImagePositionPatient": (math.nan, 0, 0)}, {"PixelSpacing": (0, 1)}]
)
@pytest.mark.filterwarnings("ignore:.*[Ii]nvalid value")
def test_places_of_slices_that_are_no_numbers(tmp_path, changes):
    changes = {name: [list(value)] * 5 for name, value in changes.items()}
    folder = save_series(tmp_path / "a", body(), **changes)
    with pytest.raises(BagDataError, match=r"got no usable (PixelSpacing|ImagePositionPatient)"):
        probe(folder)


def test_a_flipped_bit_of_a_png_is_seen(tmp_path):
    Image.fromarray(scene()[:64, :64]).save(tmp_path / "a.png", compress_level=0)
    flipped(tmp_path / "a.png")
    refused(tmp_path / "a.png", "whole image", patch_size=16)


def test_ome_tiffs_are_named_with_or_without_their_suffixes(tmp_path):
    (tmp_path / "slides").mkdir()
    for name in ("s0", "s1"):
        path = tmp_path / "slides" / f"{name}.ome.tif"
        tifffile.imwrite(path, scene()[:64, :64], photometric="rgb", tile=(32, 32), ome=True)
    images = ImageOptions(patch_size=16, tissue=0)
    for names in (("s0", "s1"), ("s0.ome.tif", "s1.ome.tif"), ("s0.ome", "s1.ome")):
        (tmp_path / "labels.csv").write_text(f"slide,label\n{names[0]},0\n{names[1]},1\n")
        bags = read_bags(tmp_path / "slides", labels=tmp_path / "labels.csv", images=images)
        assert bags.ids.tolist() == ["s0", "s1"]


# Tables


@pytest.mark.parametrize("number", ["1e39", "-1e300"])
def test_numbers_too_large_are_named_where_they_stand(tmp_path, number):
    (tmp_path / "t.csv").write_text(f"bag,label,x,y\na,0,1,2\nb,1,3,{number}\n")
    with pytest.raises(BagDataError, match=r"mark missing data.?, got -?1e\+\d+ .*t\.csv, line 3, column y, bag b"):
        read_bags(tmp_path / "t.csv")
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f/a.npy", np.array([[1.0, 2.0], [3.0, float(number)]]))
    (tmp_path / "labels.csv").write_text("bag,label\na,0\n")
    bags = read_bags(tmp_path / "f", labels=tmp_path / "labels.csv")
    with pytest.raises(BagDataError, match=r"mark missing data.?, got .* at instance 1, column 1 .*a\.npy"):
        bags[0]
    with pytest.raises(BagDataError, match=r"mark missing data.?, got .*column 1 .*a\.npy"):
        write_store(bags, tmp_path / "store")


def test_the_names_of_many_columns_are_compared_in_linear_time(tmp_path):
    names = [f"f{i}" for i in range(100_000)]  # each with each took hours
    (tmp_path / "t.csv").write_text(",".join(["bag", "label", *names, "f7"]) + "\n")
    with pytest.raises(BagDataError, match="unique names of columns, got 'f7' twice"):
        read_bags(tmp_path / "t.csv")


def test_a_field_that_is_too_long(tmp_path):
    (tmp_path / "t.csv").write_text(f"bag,label,{'x' * (2**24 + 1)}\na,0,1\nb,1,2\n")
    with pytest.raises(BagDataError, match=r"field larger.*t\.csv"):
        read_bags(tmp_path / "t.csv")


def test_lists_in_a_parquet_table(tmp_path):
    pd.DataFrame({"bag": ["a", "b"], "label": [0, 1], "x": [[1, 2], [3]]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(BagDataError, match=r"one value in each field, got \w+ .*t\.parquet, row 1, column x"):
        read_bags(tmp_path / "t.parquet")


def test_checksums_of_parquet_are_compared(tmp_path):
    values = np.random.default_rng(0).normal(size=2000)
    frame = pd.DataFrame({"bag": ["a", "b"] * 1000, "label": [0, 1] * 1000, "x": values})
    frame.to_parquet(tmp_path / "t.parquet", write_page_checksum=True, compression="none", use_dictionary=False)
    at = (tmp_path / "t.parquet").read_bytes().index(values[500:510].tobytes())
    flipped(tmp_path / "t.parquet", at)
    with pytest.raises(BagDataError, match=r"t\.parquet"):
        read_bags(tmp_path / "t.parquet")


def test_ids_that_differ_by_blanks_alone_are_one(tmp_path):
    (tmp_path / "t.csv").write_text("bag,label,x\nb1,0,1\nb1 ,1,2\n")
    with pytest.raises(BagDataError, match=r"one label in a bag, got 0 and 1 .*t\.csv"):
        read_bags(tmp_path / "t.csv")


def test_names_of_files_differ_on_every_system():
    names = file_names(Bags(np.ones((6, 1)), sizes=[1] * 6, ids=["a", "A", "con", "b", "Con.svs", "lpt1.x"]))
    assert len({name.lower() for name in names}) == 6
    assert names[3] == "b"
    reserved = {"con", "lpt1"}
    assert not {name.partition(".")[0].lower() for name in names} & reserved


# Stores


def restated(store, change):
    """Change what a store says of itself, under a checksum that is right."""
    from midam.data.store.format import _checksum

    path = store / "store.json"
    content = json.loads(path.read_text())
    content.pop("checksum")
    change(content)
    path.write_text(json.dumps({**content, "checksum": _checksum(content)}))


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["rows"]["instances"].update(dtype=">f8"),
        lambda said: said["rows"]["instances"].update(dtype="|O"),
        lambda said: said["rows"]["instances"].update(shape=["a"]),
        lambda said: said["rows"]["instances"].update(shape=[-2, 5]),
        lambda said: said["rows"].update(instances=None),
        lambda said: said["rows"].pop("instances"),
        lambda said: said["rows"].update(others=said["rows"]["instances"]),
        lambda said: said.update(table=[]),
        lambda said: said.update(feature_names=3),
        lambda said: said.pop("source"),
    ],
)
def test_a_store_of_the_right_sum_and_the_wrong_types(tmp_path, change):
    store = write_store(Bags.from_list([ROWS, ROWS + 1], labels=[0, 1]), tmp_path / "s")
    restated(store, change)
    with pytest.raises(BagDataError, match=r"s/(store\.json|instances\.npy)|in .*/s\)"):
        open_store(store)


SUFFIXES = sorted({suffix for reader in file_readers() for suffix in reader.suffixes if suffix != ".zarr"})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pipe_among_the_data_is_refused_and_not_waited_for(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    os.mkfifo(path)
    (tmp_path / "labels.csv").write_text("bag,label\na,0\n")
    with in_time(), pytest.raises(MidamError):
        read_bags(tmp_path, labels=tmp_path / "labels.csv")
    with in_time(), pytest.raises(MidamError):
        probe(path)
    with in_time(), pytest.raises(MidamError):
        read_bags(path)


@pytest.mark.parametrize("name", ["0.0", "c/0/0"])
def test_a_pipe_in_an_array_of_a_folder_is_refused(tmp_path, name):
    version = 2 if name == "0.0" else 3
    zarr_array(tmp_path / "a.zarr", version)
    (tmp_path / "a.zarr" / name).unlink()
    os.mkfifo(tmp_path / "a.zarr" / name)
    with in_time(), pytest.raises(MidamError, match="a pipe"):
        probe(tmp_path / "a.zarr")


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "link.png"])
def test_a_page_of_explanations_shows_no_other_file(tmp_path, name):
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "why").mkdir()
    (tmp_path / "why/link.png").symlink_to(tmp_path / "outside")
    with pytest.raises(MidamError, match="which lies elsewhere"):
        _data(tmp_path / "why", name)
