"""torchmil datasets as bags."""

import pickle

import numpy as np
import pytest
import torch

from midam.errors import BagDataError
from studies.sets.torchmil import from_torchmil

SIZES = [3, 1, 6]


class Items:
    """A dataset without torchmil, which counts what is read."""

    def __init__(self, *changes, **more):
        rng = np.random.default_rng(0)
        self.items = [
            {"X": torch.from_numpy(rng.normal(size=(n, 4))), "Y": torch.tensor([float(n > 2)]), "y_inst": torch.ones(n)}
            | {key: value(n) for key, value in more.items()}
            for n in SIZES
        ]
        for number, change in changes:
            self.items[number] |= change
        self.reads = []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.reads.append(index)
        return self.items[index]


def test_items_become_bags_that_are_read_on_demand():
    items = Items(coords=lambda n: np.arange(2 * n).reshape(n, 2))
    bags = from_torchmil(items)
    assert bags.sizes.tolist() == SIZES
    assert bags.labels.tolist() == [1, 0, 1]
    assert bags.ids.tolist() == ["0", "1", "2"]
    x = np.concatenate([item["X"].numpy() for item in items.items])
    np.testing.assert_array_equal(bags.gather([9, 0, 3, 2, 3]), x[[9, 0, 3, 2, 3]])
    np.testing.assert_array_equal(bags.instances[1:8], x[1:8])
    assert bags.places(2).tolist() == np.arange(12).reshape(6, 2).tolist()
    items.reads.clear()
    for low in range(4, 10):
        bags.instances[low : low + 1]
    assert items.reads == [], "the last item is kept"
    bags.instances.close()
    bags.gather([0, 9, 1])
    assert items.reads == [0, 2]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(bags.instances))[2:5], x[2:5])


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (1, {"X": torch.ones(1, 5, dtype=torch.float64)}, r"shape \(4,\) as in torchmil, bag 0, got \(5,\) .*bag 1"),
        (1, {"Y": torch.ones(3)}, "one label, got 3 .*bag 1"),
        (1, {"coords": torch.ones(2, 2)}, r"coordinates \[1, C\].*got float32 \[2, 2\] .*bag 1"),
        (1, {"X": torch.full((1, 4), torch.nan, dtype=torch.float64)}, "finite .*bag 1"),
    ],
)
def test_bad_items_are_named(number, change, message):
    with pytest.raises(BagDataError, match=message):
        from_torchmil(Items((number, change)))


def test_items_without_instances_and_without_labels():
    unlabeled = Items()
    del unlabeled.items[1]["Y"]
    assert from_torchmil(unlabeled).labels is None
    del unlabeled.items[1]["X"]
    with pytest.raises(BagDataError, match=r"key X, got y_inst .*bag 1"):
        from_torchmil(unlabeled)
    with pytest.raises(BagDataError, match="at least one item"):
        from_torchmil([])


def test_a_real_torchmil_dataset(tmp_path):
    torchmil = pytest.importorskip("torchmil.datasets", reason="needs torchmil (midam[peers])")
    rng = np.random.default_rng(0)
    arrays = {}
    for number, n in enumerate(SIZES):
        arrays[f"s{number}"] = rng.normal(size=(n, 4)).astype(np.float32)
        values = {"x": arrays[f"s{number}"], "y": np.array([number % 2]), "c": rng.integers(0, 9, (n, 2)).astype(float)}
        for folder, value in values.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            np.save(tmp_path / folder / f"s{number}.npy", value)
    folders = {
        f"{name}_path": str(tmp_path / key) for name, key in (("features", "x"), ("labels", "y"), ("coords", "c"))
    }
    dataset = torchmil.ProcessedMILDataset(**folders, bag_keys=["X", "Y", "coords"], verbose=False)
    bags = from_torchmil(dataset)
    assert bags.ids.tolist() == ["s0", "s1", "s2"]
    assert bags.labels.tolist() == [0, 1, 0]
    assert bags.coords.shape == (10, 2)
    for number, name in enumerate(bags.ids):
        np.testing.assert_array_equal(bags[number], arrays[name])
    assert dataset.loaded_bags == {}, "what was read is released"
    toy = torchmil.ToyDataset(rng.normal(size=(50, 4)), np.arange(50) % 10, num_bags=6, obj_labels=[1], bag_size=5)
    assert sorted(from_torchmil(toy).labels.tolist()) == [0, 0, 0, 1, 1, 1]
