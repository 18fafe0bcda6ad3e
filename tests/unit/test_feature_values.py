"""Features of every type, size and spread: standardized as float64 is, or refused by name."""

import warnings
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
import zarr
from tests.pairs import each

import midam
from midam.data.bags import Bags
from midam.data.batch import instance_tensor
from midam.data.statistics import bag_statistics
from midam.data.store import open_store, write_store
from midam.errors import BagDataError, Note
from midam.methods.baselines import BagStatisticsTrees, summary_rows
from midam.nn.pooling.summary import ChannelSummary, FeatureSummary
from midam.nn.standardizer import Standardizer
from midam.train.side import Trial

LABELS = np.arange(16) % 2
# Offset and spread of whole numbers, and the types that hold them.
WHOLE = [
    (0, 20, "i1"),
    (100, 20, "u1"),
    (1000, 50, "i2 u2"),
    (1.5e9, 10, "i4"),
    (3e9, 20, "u4"),
    (1.7e9, 10, "u4 i8 u8"),
    (-1.7e9, 10, "i4 i8"),
    (1.7e12, 5000, "i8 u8"),
    (4e15, 3, "i8 u8"),
    (1.7e18, 1e9, "i8 u8"),
    (9e18, 1e12, "i8 u8"),
]
CASES = [(offset, spread, kind) for offset, spread, kinds in WHOLE for kind in kinds.split()]


def whole_bags(offset: float, spread: float, dtype: str = "f8") -> list[np.ndarray]:
    found = []
    for number, label in enumerate(LABELS):
        x = np.round(np.random.default_rng(number).normal(size=(5, 2)) * spread)
        x[0] += label * np.round(4 * spread)
        found.append((x + offset).astype(dtype))
    return found


def scores_of(bags: object, **how: object) -> np.ndarray:
    options = {"epochs": 2, "members": 1, "val_fraction": 0.0, **how}
    return midam.MIDAMClassifier(**options).fit(bags, LABELS).bag_scores(bags)


@pytest.mark.parametrize(("offset", "spread", "dtype"), CASES)
def test_whole_numbers_train_as_float64_does(offset: float, spread: float, dtype: str) -> None:
    np.testing.assert_allclose(
        scores_of(whole_bags(offset, spread, dtype)), scores_of(whole_bags(offset, spread)), rtol=1e-5
    )


@pytest.mark.parametrize("scaling", ["linear", "blend"])
@pytest.mark.parametrize(("offset", "spread", "dtype"), [(1.7e9, 10, "u4"), (1.7e12, 5000, "u8"), (4e15, 3, "i8")])
def test_the_standardizer_sees_whole_numbers_as_they_are(
    offset: float, spread: float, dtype: str, scaling: str
) -> None:
    plain, far = (np.concatenate(whole_bags(base, spread)) for base in (0.0, offset))
    fitted = [Standardizer((2,), clip=10.0, scaling=scaling).fit(torch.from_numpy(x)) for x in (plain, far)]
    found = fitted[1](instance_tensor(far.astype(dtype)))
    assert torch.allclose(fitted[0](torch.from_numpy(plain)), found, atol=1e-3 if offset < 1e15 else 0.05)
    again = Standardizer((2,), clip=10.0, scaling=scaling)
    again.load_state_dict(fitted[1].state_dict())
    assert torch.equal(again(torch.from_numpy(far.astype("i8"))), found)


def _written(folder: Path, form: str, dtype: str, bags: list[np.ndarray]) -> Bags:
    """The bags, read from files of a form."""
    if form in ("csv", "tsv", "xlsx", "parquet", "frame"):
        frame = pd.DataFrame(np.concatenate(bags), columns=["a", "b"])
        frame.insert(0, "bag", np.repeat([f"b{i:02}" for i in range(len(bags))], 5))
        frame.insert(1, "label", np.repeat(LABELS, 5))
        path = folder / f"bags.{form}"
        if form == "frame":
            return Bags.from_dataframe(frame)
        if form in ("csv", "tsv"):
            frame.to_csv(path, index=False, sep="," if form == "csv" else "\t")
        else:
            (frame.to_excel if form == "xlsx" else frame.to_parquet)(path, index=False)
        return midam.read_bags(path)
    if form == "npz":
        numbers = np.repeat(np.arange(len(bags)), 5)
        ids = [f"b{i:02}" for i in range(len(bags))]
        np.savez(folder / "bags.npz", X=np.concatenate(bags), bag=numbers, y=LABELS, ids=ids)
        return midam.read_bags(folder / "bags.npz")
    files = folder / "files"
    files.mkdir()
    for number, x in enumerate(bags):
        if form == "npy":
            np.save(files / f"b{number:02}.npy", x)
        elif form == "pt":
            torch.save(torch.from_numpy(x), files / f"b{number:02}.pt")
        elif form == "zarr":
            zarr.open_group(str(files / f"b{number:02}.zarr"), mode="w").create_array("features", data=x)
        elif form == "file csv":
            pd.DataFrame(x).to_csv(files / f"b{number:02}.csv", index=False, header=False)
        else:
            with h5py.File(files / f"b{number:02}.h5", "w") as file:
                file["features"] = x
    table = pd.DataFrame({"bag": [f"b{i:02}" for i in range(len(bags))], "label": LABELS})
    table.to_csv(folder / "labels.csv", index=False)
    found = midam.read_bags(files, labels=folder / "labels.csv")
    if form == "store":
        write_store(found, folder / "store")
        return open_store(folder / "store")
    return found


ROWS = {"csv": "line 19", "tsv": "line 19", "xlsx": "row 19", "parquet": "row 18", "frame": "row 18"}
FORMS = [*ROWS, "npz", "list", "npy", "h5", "pt", "zarr", "file csv", "store"]


@pytest.mark.parametrize(
    ("form", "dtype"),
    each([form for form in FORMS if form not in ("tsv", "xlsx", "frame", "list")], ["f8", "i8", "u4"]),
)
def test_whole_numbers_of_every_format_train_alike(tmp_path: Path, form: str, dtype: str) -> None:
    bags = _written(tmp_path, form, dtype, whole_bags(1.7e9, 10, dtype))
    np.testing.assert_allclose(scores_of(bags), scores_of(whole_bags(1.7e9, 10)), rtol=1e-5)


def _listed(folder: Path, form: str, dtype: str, bags: list[np.ndarray]) -> Bags:
    """The bags, from arrays in memory."""
    return Bags.from_list(bags, LABELS, ids=[f"b{i:02}" for i in range(len(bags))])


@pytest.mark.parametrize(
    ("form", "dtype", "value"), each(FORMS, ["f4", "f8"], [1e20, 9.96921e36, -3.4028235e38, -1e31, 1e20])
)
def test_a_mark_of_no_data_is_refused_with_its_place(tmp_path: Path, form: str, dtype: str, value: float) -> None:
    bags = whole_bags(0.0, 10, dtype)
    bags[3][2, 1] = value
    read = _listed if form == "list" else _written
    with pytest.raises(BagDataError, match=r"of at most 1.8e19 \(larger ones mark missing data\), got ") as caught:
        scores_of(read(tmp_path, form, dtype, bags))
    assert "b03" in str(caught.value)
    assert (ROWS[form] + ", column b" if form in ROWS else "instance 2, column 1") in str(caught.value)
    assert "impute" not in str(caught.value)  # which fills gaps alone


@pytest.mark.parametrize("value", [1.7e18, 9e18, -1e19])
def test_numbers_as_large_as_integers_are_data(value: float) -> None:
    assert Bags.from_list([[[value], [1.0]]], [1])[0][0, 0] == value


@pytest.mark.parametrize("scaling", ["linear", "blend"])
@pytest.mark.parametrize(("dtype", "value"), [("f4", 1e7), ("f4", 1e10), ("f4", -1e19), ("f8", 1e15), ("f8", 1e19)])
def test_one_value_far_from_the_others_leaves_their_scale(dtype: str, value: float, scaling: str) -> None:
    x = np.random.default_rng(0).normal(size=(600, 1)).astype(dtype)
    wanted = Standardizer((1,), clip=3.0, scaling=scaling).fit(torch.from_numpy(x))(torch.from_numpy(x))
    changed = x.copy()
    changed[7] = value
    seen = torch.from_numpy(changed)
    found = Standardizer((1,), clip=3.0, scaling=scaling).fit(seen)(seen)
    assert (found - wanted).abs().quantile(0.98) < 0.05  # the ranks of the ends move


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array([0, 30]) + 2**60, "whole numbers that stay distinct in float64"),
        (np.array([0.0, 1024.0]) + 2.0**60, "whole numbers that stay distinct in float64"),
        (np.array([0.0, 8.0], dtype="f4") + np.float32(2**25), "whole numbers that stay distinct in float32"),
        (np.array([1e-45, 3e-45], dtype="f4"), "differ by at least 1.2e-38"),
        (np.array([1e-300, 3e-300]), "differ by at least 1.2e-38"),
        (np.array([-3e38, 3e38]), "of at most 1.8e19"),
        (np.array([0, 2**64 - 1], dtype="u8"), r"whole numbers below 2\^63"),
    ],
)
def test_what_cannot_be_standardized_is_refused_by_name(values: np.ndarray, said: str) -> None:
    x = np.stack([np.arange(len(values) * 8).astype(values.dtype), np.repeat(values, 8)], axis=1)
    numbers = np.arange(16)
    with pytest.raises(BagDataError, match=said) as caught:
        scores_of(Bags.from_arrays(x, numbers, LABELS, feature_names=["good", "strange"]))
    assert "strange" in str(caught.value) or "column 1" in str(caught.value)


def test_small_and_large_values_are_standardized() -> None:
    x = np.random.default_rng(0).normal(size=(64, 1))
    wanted = Standardizer((1,), clip=3.0, scaling="linear").fit(torch.from_numpy(x))(torch.from_numpy(x))
    for factor in (1e-36, 1e-20, 1e20, 1e36):
        for dtype in ("f4", "f8"):
            scaled = torch.from_numpy((x * factor).astype(dtype))
            found = Standardizer((1,), clip=3.0, scaling="linear").fit(scaled)(scaled)
            assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6), (factor, dtype)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1, -7e30])
def test_a_constant_feature_becomes_zero(value: float) -> None:
    x = torch.full((7, 2), value, dtype=torch.float64)
    x[:, 1] = torch.arange(7)
    fitted = Standardizer((2,), clip=3.0, scaling="blend").fit(x)
    for seen in (x, x.float(), torch.full((2, 2), 3e38), torch.full((2, 2), -3e38)):
        assert (fitted(seen)[:, 0] == 0).all()
    assert (fitted(x)[:, 1] != 0).any()


def test_rounding_alone_is_no_signal_and_is_noted() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.stack([1e5 + rng.normal(size=50) * 3e-11, rng.normal(size=50)], axis=1))
    with pytest.warns(Note, match="area: values that differ only by rounding"):
        fitted = Standardizer((2,), clip=3.0, scaling="linear").fit(x, names=["area", "depth"])
    assert (fitted(x)[:, 0] == 0).all()
    assert fitted(x)[:, 1].std() > 0.5
    # Rare values beside such a heap count by how far they are.
    heap = torch.cat([x[:, :1].repeat(4, 1), torch.tensor([[2e5]], dtype=torch.float64)])
    found = Standardizer((1,), clip=3.0, scaling="linear").fit(heap)(heap)
    assert found[:-1].abs().max() < 0.2
    assert found[-1] == 3


@pytest.mark.parametrize(
    "pooling", ["attention", "gated-attention", "embedding-attention", "mean", "smoothed-max", "noisy-and"]
)
@pytest.mark.parametrize("rounding", [False, True])
def test_bags_of_constant_features_tie(pooling: str, rounding: bool) -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 20, size=16)
    bags = [np.full((n, 5), 1e5 + 0.1) + rounding * 3e-11 * rng.normal(size=(n, 5)) for n in sizes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        model = midam.MIDAMClassifier(epochs=1, members=2, val_fraction=0.0, pooling=pooling).fit(bags, LABELS)
    alone = [model.bag_scores([x])[0] for x in bags]
    assert len({*model.bag_scores(bags), *alone}) == 1


def test_the_baselines_see_what_float64_sees() -> None:
    bags = [Bags.from_list(whole_bags(offset, 3), LABELS) for offset in (0, 4e12)]
    trial = Trial(np.arange(12), np.arange(16), 0)
    found = [BagStatisticsTrees().score(own, trial) for own in bags]
    np.testing.assert_array_equal(found[0][:12], found[1][:12])
    model = BagStatisticsTrees().scorer(bags[1], seed=0)
    wanted = BagStatisticsTrees().score(bags[1], Trial(np.arange(16), np.arange(16), 0))
    np.testing.assert_allclose(midam.predict(model, bags[1]), wanted, atol=1e-12)


def test_statistics_of_equal_numbers_are_exact() -> None:
    bags = Bags.from_list([np.full((n, 1), 0.1) for n in (1, 3, 7)] + [np.full((9, 1), 1e5) + 1e-10 * np.eye(9)[:, :1]])
    assert np.unique(bag_statistics(bags, np.arange(3)), axis=0).tolist() == [[0.1, 0.1, 0.1, 0.0]]
    assert bag_statistics(bags, np.array([3]), ["std"]) == 0
    rows = FeatureSummary(1, lambda _: torch.nn.Identity()).rows(torch.tensor([[0.1 + 1e-17, 0.1, 0.1, 1e-34]]))
    assert rows[0, 3] == 0
    images = [np.full((2, 1, 4, 4), 1.7e9) + np.arange(16).reshape(4, 4), np.full((2, 1, 4, 4), 0.1)]
    found = summary_rows(ChannelSummary, Bags.from_list(images), np.arange(2))[:, 1]
    np.testing.assert_allclose(found, [np.arange(16).std(), 0.0], rtol=1e-9)
