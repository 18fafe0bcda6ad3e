"""Columns of a table that are read as features and are likely none."""

import warnings

import numpy as np
import pandas as pd
import pytest

from midam.data import Bags, read_bags
from midam.errors import BagDataError, ConfigError

BAGS, ROWS = 24, 4


def table(**columns):
    """A table of 24 bags of 4 rows, every third one positive, with one value a bag of each of these columns."""
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(BAGS), ROWS)
    frame = pd.DataFrame({"bag": [f"b{n}" for n in number], "label": (number % 3 == 0).astype(int)})
    frame["x"] = rng.normal(size=len(frame))
    return frame.assign(**{name: np.asarray(values)[number] for name, values in columns.items()})


def told(frame):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Bags.from_dataframe(frame)
    return [str(warning.message) for warning in caught]


def written(folder, frame):
    frame.to_csv(folder / "bags.csv", index=False)
    return folder / "bags.csv"


def ages():
    return np.random.default_rng(1).integers(30, 80, BAGS)


def test_plain_features_are_no_matter():
    assert told(table()) == []


@pytest.mark.parametrize("name", ["time", "event", "label_er", "Grade", "status"])
def test_a_column_called_as_labels_are_is_named_if_it_is_one_a_bag(name):
    (text,) = told(table(**{name: ages()}))
    assert f"features with one value in each bag, as labels have: {name}" in text
    assert f"leave it out with `ignore=['{name}']`" in text
    frame = table()
    frame[name] = np.random.default_rng(2).normal(size=len(frame))
    assert told(frame) == []


def test_bags_of_one_row_may_have_such_columns():
    frame = table(age=ages(), time=ages()).groupby("bag", sort=False).first().reset_index()
    (text,) = told(frame)
    assert "as labels have: time" in text


def test_what_is_known_of_the_bag_is_offered_as_a_covariate():
    (text,) = told(table(age=ages(), site=np.arange(BAGS) % 2))
    assert "features with one value in each bag: age, site" in text
    assert "`covariates=['age', 'site']`" in text
    assert told(table(scale=np.ones(BAGS))) == []


def test_columns_of_words_are_left_out_at_once(tmp_path):
    frame = table(stain=[f"he {number}" for number in range(BAGS)], site=[f"a {number}" for number in range(BAGS)])
    with pytest.raises(BagDataError) as error:
        read_bags(written(tmp_path, frame))
    assert "leave out columns that are not features with `ignore=['stain', 'site']`" in str(error.value)


def test_gaps_of_a_label_are_not_offered_to_be_filled(tmp_path):
    frame = table(label_er=np.where(np.arange(BAGS) == 2, np.nan, 1.0))
    with pytest.raises(BagDataError, match="leave the column out with `ignore=\\['label_er'\\]`"):
        read_bags(written(tmp_path, frame))


def test_grades_need_no_target(tmp_path):
    words = np.array(["low", "mid", "high"])[np.arange(BAGS) % 3]
    frame = table(grading=words)
    path = written(tmp_path, frame.drop(columns="label"))
    how = {"label_column": "grading", "grades": ("low", "mid", "high")}
    found = read_bags(path, **how)
    assert found.outcome.target == "ordinal"
    assert found.outcome.names == ("low", "mid", "high")
    with pytest.raises(ConfigError, match="Expected `grades` with `target='ordinal'`, got 'multiclass'"):
        read_bags(path, target="multiclass", **how)


def test_a_number_that_is_missing_is_named(tmp_path):
    times = np.where(np.arange(BAGS) == 5, np.nan, 1.0 + np.arange(BAGS) ** 2)
    frame = table(time=times, event=np.ones(BAGS, dtype=int)).drop(columns="label")
    with pytest.raises(BagDataError, match=r"Expected numbers in column time, got none \(in .*, bag b5\)"):
        read_bags(written(tmp_path, frame), target="survival")
    frame = table(number=np.arange(BAGS)).drop(columns="label")
    with pytest.raises(BagDataError, match="Expected grades in column number"):
        read_bags(written(tmp_path, frame), label_column="number", target="ordinal")


@pytest.mark.parametrize("name", ["transaction_id", "id", "EventID", "rowId"])
def test_an_id_of_the_rows_is_named(name):
    frame = table()
    frame[name] = np.random.default_rng(0).permutation(len(frame)) + 1_000_000
    (text,) = told(frame)
    assert f"{name} (an id of each row, left out)" in text
    assert "ignore" not in text
    assert told(frame.rename(columns={name: "humid"})) == []
    frame[name] //= 2
    assert told(frame) == []
