"""Dates as covariates are days since 1970, or refused; categories that nearly name the bags are warned of."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest

from midam.data.bags import Bags
from midam.data.column_codes import ColumnCoder, CovariateCoder
from midam.data.covariates import Covariates
from midam.data.sources import read_bags
from midam.data.store import write_store
from midam.errors import BagDataError, ConfigError, Note
from midam.settings.data import DataSettings

DAYS = [f"2023-01-{day:02}" for day in range(1, 25)]
NUMBERS = [19358.0 + number for number in range(24)]


@pytest.mark.parametrize(
    "values",
    [
        DAYS,
        [f"{day} 00:00:00" for day in DAYS],
        [f"{day}T00:00:00Z" for day in DAYS],
        [f"{day}T02:00:00+02:00" for day in DAYS],
        [f" {day}\u00a0" for day in DAYS],
        ["2023-1-1", *DAYS[1:]],
        np.array(DAYS, dtype="datetime64[D]"),
        pd.to_datetime(DAYS).to_numpy(),
        [datetime.date.fromisoformat(day) for day in DAYS],
        np.array([day.encode() for day in DAYS]),
    ],
)
def test_dates_are_days_since_1970(values):
    with pytest.warns(Note, match="the covariate seen holds dates, which are read as days since 1970-01-01") as said:
        found = Covariates.of({"seen": values})
    assert len(said) == 1
    assert found.kinds == ("number",)
    assert found.values() == {"seen": NUMBERS}


def test_a_date_that_is_missing_stays_so_and_one_bag_is_read_as_many():
    for values in (["2023-01-01", "", None, "NaT"], np.array(["2023-01-01", *["NaT"] * 3], dtype="datetime64[s]")):
        with pytest.warns(Note, match="holds dates"):
            assert Covariates.of({"seen": values}).values() == {"seen": [19358.0, None, None, None]}
    with pytest.warns(Note, match="holds dates"):
        coder = CovariateCoder.fit(Covariates.of({"seen": DAYS}))
    with pytest.warns(Note, match="holds dates"):
        one = coder.matrix(Covariates.of({"seen": DAYS[3:4]}))
    with pytest.warns(Note, match="holds dates"):
        assert one[0] == pytest.approx(coder.matrix(Covariates.of({"seen": DAYS}))[3])


@pytest.mark.parametrize(
    "wrong", ["31.12.2023", "12/31/2023", "2023-02-30", "2023-13-01", "2023/01/31", "01-31-23", "soon"]
)
def test_other_dates_are_refused_with_advice(wrong):
    advice = r"(write all dates|correct this day).* train with"
    with pytest.raises(BagDataError, match=rf"dates as 2023-01-31 in the covariate 'seen', got .*; {advice}"):
        Covariates.of({"seen": [wrong, *DAYS[:3]]})
    if wrong != "soon":
        with pytest.raises(BagDataError, match="dates as 2023-01-31"):
            Covariates.of({"seen": [wrong] * 3})


@pytest.mark.parametrize("suffix", ["csv", "xlsx", "parquet", "npz"])
def test_every_reader_takes_dates(tmp_path, suffix):
    table = pd.DataFrame({"bag": [f"b{n}" for n in range(24)], "label": [0, 1] * 12, "seen": DAYS, "a": 1.0})
    path = tmp_path / f"t.{suffix}"
    if suffix == "npz":
        seen = np.array(DAYS, dtype="datetime64[D]")
        np.savez(path, X=np.ones((24, 1)), bag=np.arange(24), y=[0, 1] * 12, seen=seen)
    elif suffix == "csv":
        table.to_csv(path, index=False)
    else:
        table = table.assign(seen=pd.to_datetime(table.seen))
        (table.to_excel if suffix == "xlsx" else table.to_parquet)(path, index=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        bags = read_bags(path, covariates=["seen"])
    assert sum("holds dates" in str(one.message) for one in said) == 1
    assert bags.covariates.values() == {"seen": NUMBERS}


def test_numbers_that_may_be_dates_are_noted_and_words_stay_categories():
    with pytest.warns(Note, match="is read as a plain number, but 20230101 may be a date: write dates as 2023-01-01"):
        assert Covariates.of({"seen": [20230101, 20230102, 20230131]}).kinds == ("number",)
    for digits in (10**4, 10**6):  # with hours and minutes, and seconds
        with pytest.warns(Note, match="202301010+ may be a date: write dates as 2023-01-01 to count days"):
            Covariates.of({"seen": [20230101 * digits, 20230102 * digits + 59, 20230131 * digits]})
    assert Covariates.of({"dose": [20230199, 20230102, 20230131]}).kinds == ("number",)
    assert Covariates.of({"version": ["1.2.3", "a", "b"]}).kinds == ("category",)


def test_whole_numbers_that_float64_cannot_tell_apart_are_categories():
    large = [2**53, 2**53 + 1, 2**53]
    for values in (large, np.array(large), [str(number) for number in large]):
        assert Covariates.of({"code": values}).values() == {"code": [str(number) for number in large]}


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["2023-01", "2023-03"], [19358, 19417]),
        (["2023-W05", "2023-W06"], [19387, 19394]),
        (["2023-Q1", "2023Q3"], [19358, 19539]),
        (["14:05", "9:30:36"], [14 + 5 / 60, 9.51]),
        (pd.period_range("2023-01", periods=2, freq="M"), [19358, 19389]),
        ([datetime.time(14, 5), datetime.time(0, 0)], [14 + 5 / 60, 0]),
    ],
)
def test_months_quarters_weeks_and_times_of_day_keep_their_order_in_each_role(words, numbers, tmp_path):
    with pytest.warns(Note, match="holds (dates|times of day), which are read as (days|hours)"):
        assert Covariates.of({"seen": words}).columns[0] == pytest.approx(np.array(numbers, dtype=np.float64))
    # A bag holds both values, in the other order.
    frame = pd.DataFrame({"bag": np.arange(24) // 2, "a": [0.5, 1.5] * 12, "seen": [*words[::-1]] * 12})
    with pytest.warns(Note, match="columns that are not plain numbers"):
        bags = Bags.from_dataframe(frame)
    hours = ":" in str(words[0])
    if not hours:
        assert bags.columns[1].kind == "time"
        coder = ColumnCoder.fit(bags, DataSettings())
        assert coder.features == ("a", "seen since-first", "seen until-last"), "no weekday of the first day of a month"
    assert bags.instances[:2, 1] == pytest.approx(np.array(numbers[::-1]))
    frame.assign(seen=frame["seen"].astype(str), label=frame.bag % 2).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(Note, match="columns that are not plain numbers"):
        assert read_bags(tmp_path / "t.csv").instances[:2, 1] == pytest.approx(np.array(numbers[::-1]))


@pytest.mark.parametrize(
    "words", [["2.1.0", "2.1.1"], ["1-2-1", "1-1-1"], ["12/5/3", "10/5/2"], ["2023-13", "2023-57"]]
)
def test_versions_and_ratios_are_categories(words):
    assert Covariates.of({"version": words}).kinds == ("category",)
    frame = pd.DataFrame({"bag": np.arange(24) // 2, "a": 1.0, "version": words * 12})
    with pytest.warns(Note, match=r"version \(2 categories\)"):
        assert Bags.from_dataframe(frame).columns[1].words == tuple(sorted(words))


@pytest.mark.parametrize("words", [["1.2.23", "2.2.23"], ["1,5", "2,5"]])
def test_words_that_are_refused_as_dates_or_numbers_can_be_made_categories(words):
    with pytest.raises(BagDataError, match=r"if these are categories, train with `categories=\['code'\]`"):
        Covariates.of({"code": words})
    frame = pd.DataFrame({"bag": np.arange(4), "a": 1.0, "code": words * 2})
    bags = Bags.from_dataframe(frame, covariates=["code"], categories=["code"])
    assert bags.covariates.columns[0].tolist() == words * 2
    assert bags.feature_names == ("a",)


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet", "npz", "store", "folder"])
def test_codes_of_a_covariate_can_be_made_categories_by_each_reader(kind, tmp_path):
    stage = [1, 2, 3] * 8
    bags = Bags(np.ones((24, 1)), sizes=np.ones(24, dtype=int), labels=[0, 1] * 12, covariates={"stage": stage})
    table = pd.DataFrame({"bag": bags.ids, "label": [0, 1] * 12, "stage": stage, "a": 1.0})
    path, more = tmp_path / f"t.{kind}", {}
    if kind == "npz":
        np.savez(path, X=np.ones((24, 1)), bag=np.arange(24), y=[0, 1] * 12, stage=stage)
    elif kind == "store":
        write_store(bags, path)
    elif kind == "folder":
        path.mkdir()
        for name in bags.ids:
            np.save(path / f"{name}.npy", np.ones((1, 2)))
        table.to_csv(tmp_path / "labels.csv", index=False)
        more = {"labels": tmp_path / "labels.csv"}
    else:
        {"csv": table.to_csv, "xlsx": table.to_excel, "parquet": table.to_parquet}[kind](path, index=False)
    with pytest.warns(Note, match=r"covariates: stage \(category: 1, 2, 3\)"):
        read = read_bags(path, covariates=["stage"], categories=["stage"], **more)
    assert sorted(read.covariates.columns[0].tolist()) == sorted(map(str, stage))
    if kind in ("npz", "store", "folder"):
        with pytest.raises(ConfigError, match=r"`categories` among the `covariates` with .*, got 'other'"):
            read_bags(path, covariates=["stage"], categories=["other"], **more)
