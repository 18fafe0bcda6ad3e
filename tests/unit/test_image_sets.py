"""The paper's image sets: where they are found, how they are read and verified, and the baselines of their images."""

import dataclasses
import hashlib

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

from midam.data.bags import Bags
from midam.data.on_disk import Rows
from midam.data.sources import read_bags
from midam.data.sources.request import ImageOptions
from midam.data.statistics import bag_statistics
from midam.data.store import open_store, write_store
from midam.errors import BagDataError, ConfigError, DataNotFoundError
from midam.evaluate.ranking import auroc
from midam.methods.baselines import summary_rows
from midam.nn.encoders import PatchStatistics
from midam.nn.pooling.summary import ChannelSummary, PatchSummary
from midam.registry import BASELINES
from midam.train.side import Trial
from studies.images.voxels import voxel_counts
from studies.sets import catalog
from studies.sets.catalog import ImageSet, listing_digest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Empty data folders."""
    monkeypatch.setenv("MIDAM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MIDAM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path


def replace_entry(monkeypatch, name, **changes):
    monkeypatch.setitem(catalog.CATALOG, name, dataclasses.replace(catalog.CATALOG[name], **changes))


def tissue(seed, red, shape=(64, 96)):
    array = np.random.default_rng(seed).integers(0, 120, (*shape, 3), dtype=np.uint8)
    array[..., 0] += np.uint8(red)
    return Image.fromarray(array)


def write_breast(folder, count=6):
    folder.mkdir()
    for number in range(count):
        kind = "malignant" if number % 2 else "benign"
        image = tissue(number, 100 * (number % 2))
        image.save(folder / f"ytma{10 + number // 2}_010704_{kind}1_ccd.tif", compression="jpeg")
    (folder / "Thumbs.db").write_bytes(b"")


def write_pdgm(folder):
    """Patients of grade 2, 3 and 4 as the archive lays them out; the table has three digits, the folders four."""
    rows = ["ID,Sex,Age at MRI,WHO CNS Grade,Final pathologic diagnosis (WHO 2021)"]
    for number, grade in ((4, 4), (5, 2), (7, 3), (12, 4), (123, 2)):
        rows.append(f"UCSF-PDGM-{number:03d},M,40,{grade},some tumour")
        inside = folder / f"UCSF-PDGM-{number:04d}_nifti"
        inside.mkdir(parents=True)
        for sequence in ("FLAIR", "T1c"):
            data = np.zeros((6, 5, 4), dtype=np.int16)
            data[1:5, 1:4, 1:3] = 100 * number + len(sequence)
            nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), inside / f"UCSF-PDGM-{number:04d}_{sequence}.nii.gz")
    rows.append("UCSF-PDGM-429_FU003d,F,50,4,some tumour")
    inside = folder / "UCSF-PDGM-0429_FU003d_nifti"
    inside.mkdir()
    nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), inside / "UCSF-PDGM-0429_FU003d_FLAIR.nii.gz")
    (folder / "UCSF-PDGM-metadata_v2.csv").write_text("\n".join(rows))


def test_breast_takes_labels_and_groups_from_the_names(home, monkeypatch):
    write_breast(home / "data" / "breast")
    with pytest.raises(BagDataError, match="Expected the files of breast"):
        catalog.load("breast")
    replace_entry(monkeypatch, "breast", digest="")
    bags = catalog.load("breast")
    assert bags.labels.tolist() == [0, 1] * 3
    assert bags.groups.tolist() == [f"ytma{n}_010704" for n in (10, 10, 11, 11, 12, 12)]
    assert bags.ids[1] == "ytma10_010704_malignant1_ccd"
    assert bags.sizes.tolist() == [6] * 6
    assert bags.source == "breast"
    replace_entry(monkeypatch, "breast", digest=listing_digest(bags))
    assert catalog.load("breast", images=ImageOptions(patch_size=16)).sizes.tolist() == [24] * 6
    assert catalog.describe("breast")["location"] == str(home / "data" / "breast")
    (home / "data" / "breast" / "ytma12_010704_malignant1_ccd.tif").unlink()
    with pytest.raises(BagDataError, match="got others"):
        catalog.load("breast")


def test_colon_needs_to_know_which_images_show_one_tile(home):
    folder = home / "data" / "colon"
    folder.mkdir()
    with pytest.raises(BagDataError, match=r"labels\.csv with the columns bag_id, path, label, group"):
        catalog.load("colon")
    rows = ["bag_id,path,label,group"]
    for number in range(4):
        tissue(number, 0, (64, 64)).save(folder / f"c{number}.jpeg")
        rows.append(f"c{number},c{number}.jpeg,{number % 2},tile:{number // 2}")
    (folder / "labels.csv").write_text("\n".join(rows))
    with pytest.warns(UserWarning, match="counts and results may differ"):
        bags = catalog.load("colon")
    assert bags.sizes.tolist() == [4] * 4
    assert bags.groups.tolist() == ["tile:0", "tile:0", "tile:1", "tile:1"]


def masks(n, seed):
    volumes = np.zeros((n, 8, 6, 6), dtype=np.uint8)
    for number, volume in enumerate(volumes):
        volume[2 : 4 + number % 3, 1:4, 2:5] = 255
    return volumes, (np.arange(n) % 2)[:, None].astype(np.uint8)


def test_adrenal_keeps_its_splits_and_drops_empty_slices(home, monkeypatch):
    arrays = {}
    for split, n in (("train", 6), ("val", 2), ("test", 4)):
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = masks(n, n)
    path = home / "data" / "adrenalmnist3d_64.npz"
    np.savez_compressed(path, **arrays)
    with pytest.raises(BagDataError, match="got others"):
        catalog.load("adrenal")
    replace_entry(monkeypatch, "adrenal", digest=hashlib.md5(path.read_bytes()).hexdigest())
    bags = catalog.load("adrenal")
    assert bags.splits.tolist() == ["train"] * 6 + ["val"] * 2 + ["test"] * 4
    assert bags.sizes.tolist() == [2, 3, 4, 2, 3, 4, 2, 3, 2, 3, 4, 2]
    assert bags.places(1).tolist() == [[2], [3], [4]]
    np.testing.assert_array_equal(bags[8][:, 0], arrays["test_images"][0, 2:4])
    every = catalog.load("adrenal", images=ImageOptions(drop_empty=False, axis=1))
    np.testing.assert_array_equal(every[7][:, 0], arrays["val_images"][1].swapaxes(0, 1))
    whole = catalog.load("adrenal", images=ImageOptions(volume=True, volume_size=(4, 4, 4)))
    assert whole.instance_shape == (1, 4, 4, 4)
    assert whole.sizes.tolist() == [1] * 12
    assert whole.coords is None
    with pytest.raises(ConfigError, match="`patch_size`"):
        catalog.load("adrenal", images=ImageOptions(patch_size=16))
    with pytest.raises(ConfigError, match="`spacing`"):
        catalog.load("adrenal", images=ImageOptions(spacing=1.0))


def test_adrenal_is_fetched_and_verified(home, monkeypatch):
    arrays = {}
    for split, n in (("train", 4), ("val", 2), ("test", 2)):
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = masks(n, n)
    (home / "served").mkdir()
    path = home / "served" / "adrenalmnist3d_64.npz"
    np.savez_compressed(path, **arrays)
    with pytest.raises(BagDataError, match="got others"):
        catalog.fetch("adrenal", url=path.as_uri())
    assert list((home / "cache").iterdir()) == []
    replace_entry(monkeypatch, "adrenal", digest=hashlib.md5(path.read_bytes()).hexdigest())
    target = catalog.fetch("adrenal", url=path.as_uri())
    path.unlink()
    assert target == home / "cache" / "adrenalmnist3d_64.npz"
    assert len(catalog.load("adrenal")) == 8
    with pytest.raises(DataNotFoundError, match="To use adrenal offline"):
        catalog.fetch("adrenal", url=path.as_uri())


def test_pdgm_finds_grades_and_sequences(home):
    write_pdgm(home / "data" / "UCSF-PDGM-v3")
    bags = catalog.load("pdgm")
    assert bags.ids.tolist() == [f"UCSF-PDGM-{n}" for n in ("0004", "0005", "0012", "0123", "0429_FU003d")]
    assert bags.labels.tolist() == [1, 0, 1, 0, 1]
    assert bags.groups.tolist() == [f"UCSF-PDGM-{n}" for n in ("0004", "0005", "0012", "0123", "0429")]
    assert bags.sizes.tolist() == [2] * 5  # four axial slices, of which two show something
    assert bags.instance_shape == (1, 5, 6)
    assert [int(bags[i].max()) for i in range(4)] == [405, 505, 1205, 12305]
    with pytest.warns(UserWarning, match=r"UCSF-PDGM-0429_FU003d_T1c\.nii\.gz"):
        other = catalog.load("pdgm:T1c")
    assert [int(other[i].max()) for i in range(4)] == [403, 503, 1203, 12303]
    assert other.source == "pdgm:T1c"
    with pytest.raises(BagDataError, match=r"'T2', got FLAIR, T1c .*pdgm:FLAIR"):
        catalog.load("pdgm:T2")
    with pytest.raises(ConfigError):
        catalog.load("breast:T1")


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_oct_is_arrays_of_ones_own(home, form):
    volumes, labels = masks(6, 0)
    if form == "npz":
        np.savez(home / "data" / "oct.npz", volumes=volumes, labels=labels, groups=np.array(list("aabbcc")))
    else:
        (home / "data" / "oct").mkdir()
        for name, array in (("volumes", volumes), ("labels", labels), ("groups", np.array(list("aabbcc")))):
            np.save(home / "data" / "oct" / f"{name}.npy", array)
    bags = catalog.load("oct")
    assert isinstance(bags.instances, Rows) == (form == "folder")
    assert bags.sizes.tolist() == [2, 3, 4] * 2
    assert bags.groups.tolist() == list("aabbcc")
    np.testing.assert_array_equal(bags[4][:, 0], volumes[4, 2:5])
    write_store(bags, home / "store")
    assert open_store(home / "store").fingerprint() == bags.fingerprint()


def test_arrays_that_do_not_fit_are_refused(home):
    volumes, labels = masks(6, 0)
    for arrays, words in (
        ({"volumes": volumes[:4], "labels": labels}, "Expected volumes"),
        ({"images": volumes, "labels": labels}, "got images, labels"),
        ({"volumes": volumes * np.array([1, 1, 0, 1, 1, 1])[:, None, None, None], "labels": labels}, "bag oct-0002"),
    ):
        np.savez(home / "data" / "oct.npz", **arrays)
        with pytest.raises(BagDataError, match=words):
            catalog.load("oct")


def test_what_is_not_here_says_how_to_get_it(home):
    for entry in (entry for entry in catalog.CATALOG.values() if isinstance(entry, ImageSet)):
        found = catalog.describe(entry.name)
        assert found["location"] is None
        assert found["obtain"]
        assert found["license"]
        if entry.archive is None:
            for act in (catalog.load, catalog.fetch):
                with pytest.raises(DataNotFoundError) as caught:
                    act(entry.name)
                assert entry.obtain in str(caught.value)
    with pytest.raises(ConfigError, match="`patch_size`"):
        read_bags("digits", images=ImageOptions(patch_size=16))


@pytest.mark.data
def test_the_real_sets_have_the_counts_of_the_paper(data_root):
    breast, colon = catalog.load("breast"), catalog.load("colon")
    assert (len(breast), breast.labels.sum(), len(set(breast.groups.tolist()))) == (58, 26, 10)
    assert set(breast.sizes.tolist()) == {672}
    assert (len(colon), colon.labels.sum()) == (1100, 100)
    assert set(colon.sizes.tolist()) == {49}
    for entry, bags in ((catalog.CATALOG["breast"], breast), (catalog.CATALOG["colon"], colon)):
        assert (entry.bags, entry.positives, entry.instances) == (len(bags), bags.labels.sum(), bags.num_instances)


def image_bags(n=40, patches=5):
    """Positive images are redder and larger than negative ones."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(n):
        bag = rng.integers(0, 100, (patches, 3, 4, 4), dtype=np.uint8)
        bag[: 2 + number % 2, 0] += np.uint8(120)
        found.append(bag)
    return Bags.from_list(found, np.arange(n) % 2)


class OneByOne(Rows):
    """Rows that count how many of them are read at a time."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.most = array, array.shape, array.dtype, 0

    def gather(self, positions):
        self.most = max(self.most, len(positions))
        return self.array[positions]

    def read(self, low, high):
        return self.gather(np.arange(low, high))

    def close(self):
        pass


def test_statistics_of_images_and_that_they_are_streamed(monkeypatch):
    bags = image_bags()
    monkeypatch.setattr("midam.evaluate.predict.usual_chunk", lambda shape: 2)
    rows = OneByOne(bags.instances)
    found = summary_rows(ChannelSummary, bags.replace(instances=rows), np.array([7, 0]))
    assert rows.most == 2
    pixels = bags[7].swapaxes(0, 1).reshape(3, -1)
    np.testing.assert_allclose(found[0], [*pixels.mean(axis=1), *pixels.std(axis=1)], rtol=1e-12)
    volume = np.random.default_rng(0).integers(3, 6, (9, 1, 4, 4))
    # The least intensity comes last, so that what went before is content after all.
    volume[:5] += 1
    counts = voxel_counts(Bags.from_list([volume.astype(np.float32)]), np.array([0]))
    assert counts.tolist() == [[float((volume > volume.min()).sum())]]
    with pytest.raises(ConfigError, match="Expected images"):
        summary_rows(ChannelSummary, Bags.from_list([[[1.0, 2.0]]]), np.array([0]))


def test_statistics_of_patches_are_those_of_features_made_of_them_and_streamed(monkeypatch):
    bags = image_bags()
    made = PatchStatistics(bags.instance_shape)(torch.from_numpy(bags.instances)).numpy()
    wanted = bag_statistics(bags.replace(instances=made), np.array([7, 0]))
    rows = OneByOne(bags.instances)
    monkeypatch.setattr("midam.evaluate.predict.usual_chunk", lambda shape: 2)
    found = summary_rows(PatchSummary, bags.replace(instances=rows), np.array([7, 0]))
    assert rows.most == 2
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_texture_tells_apart_what_color_cannot():
    """Patches of the same colors, smooth in positive bags."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (40, 5, 1, 8, 8), dtype=np.uint8)
    bags = Bags.from_list([np.sort(bag, axis=3) if n % 2 else bag for n, bag in enumerate(noise)], np.arange(40) % 2)
    trial = Trial(np.arange(24), np.arange(24, 40), 0)
    area = {
        name: auroc(bags.labels[24:], BASELINES.find(name)().score(bags, trial))
        for name in ("rgb-trees", "patch-statistics-extratrees")
    }
    assert area["patch-statistics-extratrees"] == 1
    assert area["rgb-trees"] < 0.8


@pytest.mark.parametrize("name", ["rgb-logistic", "rgb-trees", "patch-statistics-extratrees", "voxel-logistic"])
def test_baselines_of_images_beat_chance_and_repeat(name, monkeypatch):
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 500)  # as users get
    bags = image_bags()
    if name == "voxel-logistic":
        volumes = (bags.instances[:, :1] > 99).astype(np.uint8)
        bags = bags.replace(instances=volumes)
    trial = Trial(np.arange(24), np.arange(24, 40), 0)
    baseline = BASELINES.find(name)()
    scores = baseline.score(bags, trial)
    assert auroc(bags.labels[24:], scores) > 0.9
    assert scores.tolist() == baseline.score(bags, trial).tolist()
