"""Features far from zero, of every type that holds them, score as the same features near zero do."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.pairs import each

from midam.cli.app import main
from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.errors import BagDataError
from midam.export.reader import Model
from midam.sklearn.inputs import bags_of

pytestmark = pytest.mark.filterwarnings("ignore::midam.errors.Note")
COUNT, SIZE = 24, 5
LABELS = np.arange(COUNT) % 2
IDS = [f"b{number:02}" for number in range(COUNT)]
TOLERANCE = 2e-6


def rows(offset: float = 0.0, dtype: str = "f8") -> list[np.ndarray]:
    found = []
    for number in range(COUNT):
        x = np.round(np.random.default_rng(number).normal(size=(SIZE, 2)) * 10)
        x[0] += number % 2 * 40
        found.append((x + offset).astype(dtype))
    return found


def write(folder: Path, parts: list[np.ndarray]) -> Path:
    """A folder of a file a bag, and a table of labels beside it."""
    folder.mkdir()
    for name, x in zip(IDS, parts, strict=True):
        np.save(folder / f"{name}.npy", x)
    pd.DataFrame({"bag": IDS, "label": LABELS}).to_csv(f"{folder}.csv", index=False)
    return folder


def fit(folder: Path, *words: str) -> np.ndarray:
    out = folder.with_name(f"{folder.name}-run")
    assert main(["fit", str(folder), "--labels", f"{folder}.csv", "--out", str(out), *words]) == 0
    return pd.read_csv(out / "predictions.csv").sort_values("bag")["score"].to_numpy()


BRIEF = ("--epochs", "2", "--no-baseline", "--test-fraction", "0.2")
ONE = (*BRIEF, "--members", "1")


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return fit(write(tmp_path_factory.mktemp("near") / "plain", rows()), *ONE)


@pytest.mark.parametrize(
    "words",
    [("--members", "2"), ("--estimator", "exact", "--members", "1"), ("--estimator", "minibatch", "--members", "1")],
)
def test_far_features_train_as_near_ones_by_every_estimator(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = [
        fit(write(tmp_path / name, rows(*how)), *BRIEF, *words)
        for name, how in {"near": (), "far": (1.7e9, "i8")}.items()
    ]
    np.testing.assert_allclose(found[1], found[0], atol=TOLERANCE)


@pytest.mark.parametrize(
    "method",
    [
        "bag-statistics-extratrees",
        "bag-statistics-logistic",
        pytest.param("auto", marks=pytest.mark.long),  # a search
    ],
)
def test_far_features_train_as_near_ones_by_other_methods(tmp_path: Path, method: str) -> None:
    found = [
        fit(write(tmp_path / name, rows(*how)), "--method", method)
        for name, how in {"near": (), "far": (1.7e9, "i8")}.items()
    ]
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)


@pytest.mark.traced
@pytest.mark.long  # a shorter test scores an export with such a feature as `midam predict` does
@pytest.mark.parametrize("form", ["torch", "onnx"])
def test_exports_score_far_features_as_near_ones(tmp_path: Path, near: np.ndarray, form: str) -> None:
    parts = rows(1.7e9, "i8")
    np.testing.assert_allclose(fit(write(tmp_path / "far", parts), *ONE), near, atol=TOLERANCE)
    assert main(["export", str(tmp_path / "far-run"), "--out", str(tmp_path / "e"), "--format", form]) == 0
    model = Model(tmp_path / "e")  # its programs take half a second to open
    scored = [model.score(x)["score"] for x in parts]
    np.testing.assert_allclose(scored, near, atol=TOLERANCE)


COLUMNS: dict[str, Callable[[pd.Series], Any]] = {
    "Int64": lambda x: x.astype("Int64"),
    "Float64": lambda x: x.astype("Float64"),
    "objects": lambda x: pd.Series([int(value) for value in x], dtype=object),
    "Decimal": lambda x: pd.Series([Decimal(int(value)) for value in x], dtype=object),
    "arrow": lambda x: x.astype("int64[pyarrow]"),
    "arrow decimal": lambda x: x.astype("int64[pyarrow]").astype(pd.ArrowDtype(pa.decimal128(30, 2))),
}


@pytest.mark.parametrize(("kind", "how"), each(COLUMNS, ["frame", "parquet", "indexed", "list"]))
def test_columns_of_every_type_hold_the_same_numbers(tmp_path: Path, kind: str, how: str) -> None:
    frame = pd.DataFrame(np.concatenate(rows(1.7e9, "i8")), columns=["a", "b"]).apply(COLUMNS[kind])
    frame.insert(0, "bag", np.repeat(IDS, SIZE))
    if how == "parquet":
        frame.to_parquet(tmp_path / "t.parquet")
        bags = read_bags(tmp_path / "t.parquet", require_labels=False)
    elif how == "frame":
        bags = Bags.from_dataframe(frame)
    else:
        parts = [part.drop(columns="bag") for _, part in frame.groupby("bag")]
        numbered = frame.assign(row=np.tile(range(SIZE), COUNT)).set_index(["bag", "row"])
        bags = bags_of(parts if how == "list" else numbered, estimator=None)
    np.testing.assert_array_equal(bags.instances, np.concatenate(rows(1.7e9, "f8")))


@pytest.mark.parametrize("how", ["csv", "parquet", "frame"])
def test_whole_numbers_that_a_table_would_merge_are_refused(tmp_path: Path, how: str) -> None:
    values = 2**62 + np.random.default_rng(0).integers(0, 10, COUNT)
    frame = pd.DataFrame({"bag": IDS, "label": LABELS, "when": values, "a": 1.5})
    path = tmp_path / f"t.{how}"
    if how != "frame":
        (frame.to_csv if how == "csv" else frame.to_parquet)(path, index=False)
    with pytest.raises(BagDataError, match=r"whole numbers .* float64, got 4611686018427387904 .*when"):
        Bags.from_dataframe(frame) if how == "frame" else read_bags(path)
