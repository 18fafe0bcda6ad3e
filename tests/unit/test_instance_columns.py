"""Categories, dates, truth values, ids and gaps in the columns of instances: read, learned from training bags, kept."""

import json
import re
import warnings
from datetime import timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from tests.pairs import all_pairs

from midam import Bags, MIDAMClassifier, MIDAMRanker, PerInstance, read_bags
from midam.cli import main
from midam.compare import Grid
from midam.compare.folds import Fold
from midam.compare.methods import find_method
from midam.compare.plan import Task, run_task
from midam.compare.run import run_comparison
from midam.data.column_codes import ColumnCoder, note_of_filled, prepare
from midam.data.covariates import Column, Covariates
from midam.data.store import write_store
from midam.errors import BagDataError, CheckpointError, ConfigError, ExportError, Note
from midam.evaluate.predict import prepared
from midam.export import export_run
from midam.runs.apply import read_for
from midam.runs.data import split_data
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run, predict_run
from midam.settings import DataSettings, Settings
from midam.train.checkpoint import ModelContent, load_checkpoint, save_checkpoint
from midam.train.trainer import Trainer

pytestmark = pytest.mark.filterwarnings("ignore:columns that are not plain numbers:UserWarning")
SMALL = {"epochs": 2, "members": 1, "num_instances": 2, "threads": 1}


def table(bags=24, rows=5, *, seed=0, **columns):
    """Rows of bags b0, b1, ...; of a positive bag the first is paid to games."""
    rng = np.random.default_rng(seed)
    count, place = bags * rows, np.arange(bags * rows)
    merchant = rng.choice(["cafe", "fuel", "books"], count).astype(object)
    merchant[(place % rows == 0) & (place // rows % 2 == 1)] = "games"
    frame = pd.DataFrame(
        {
            "bag": [f"b{number}" for number in place // rows],
            "label": place // rows % 2,
            "amount": rng.normal(size=count),
            "merchant": merchant,
            "time": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 9000, count), unit="h"),
        }
    )
    return frame.assign(**columns)


def written(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return str(path)


def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return found, [str(warning.message) for warning in caught]


# Reading.


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.xlsx", "t.parquet", ""])
def test_columns_are_found_by_themselves_in_each_format(tmp_path, name):
    frame = table(ok=np.resize(["yes", "no", "no", "yes", None], 120))
    if name == "":
        bags, said = told(lambda: Bags.from_dataframe(frame, impute=True))
    else:
        path = tmp_path / name
        if ".tsv" in name:
            frame.to_csv(path, sep="\t", index=False)
        else:
            written(frame, path)
        bags, said = told(lambda: read_bags(path, impute=True))
    kinds = {column.name: column.kind for column in bags.columns}
    assert kinds == {"amount": "number", "merchant": "category", "time": "time", "ok": "number"}
    assert bags.columns[1].words == ("books", "cafe", "fuel", "games")
    assert [bags.columns[1].words[int(place)] for place in bags.instances[:, 1]] == frame["merchant"].tolist()
    days = (frame["time"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    np.testing.assert_allclose(bags.instances[:, 2], days, rtol=1e-12)
    np.testing.assert_array_equal(bags.instances[:5, 3], [1, 0, 0, 1, np.nan])
    (line,) = said
    assert "merchant (4 categories), time (dates), ok (1 for yes, 0 for no)" in line


def test_text_of_many_values_and_patients_is_refused_as_before(tmp_path):
    words = [f"shop {number}" for number in range(120)]
    with pytest.raises(BagDataError, match="Expected numbers in column shop, got 'shop 0'"):
        read_bags(written(table(shop=words), tmp_path / "t.csv"))
    bags = read_bags(str(tmp_path / "t.csv"), categories=["shop"])
    assert len(bags.columns[-1].words) == 120
    patients = table(patient=[f"P{number // 10}" for number in range(120)])
    with pytest.raises(BagDataError, match="groups='patient'"):
        read_bags(written(patients, tmp_path / "t.csv"))


@pytest.mark.parametrize("name", ["t.csv", "t.xlsx", "t.parquet", ""])
def test_text_with_one_value_in_each_bag_is_categories_with_a_note(tmp_path, name):
    frame = table(
        region=np.repeat(["east", "north", None] * 8, 5),
        born=np.repeat(pd.Timestamp("1970-03-01") + pd.to_timedelta(np.arange(24) * 400, "D"), 5),
        member=np.repeat(["yes", "no", "no", "yes", "yes", "no"] * 4, 5),
    )
    bags, notes = told(lambda: read_bags(written(frame, tmp_path / name)) if name else bags_of(frame))
    assert [column.kind for column in bags.columns[3:]] == ["category", "time", "number"]
    assert any("features with one value in each bag: region, born, member" in x for x in notes)
    assert {"region=east", "region missing"} <= set(ColumnCoder.fit(bags, DataSettings()).features)


def test_text_with_one_value_in_each_bag_that_tells_the_label_is_refused():
    sick = np.arange(120) // 5 % 2 == 1
    finding, town = np.where(sick, "tumor", "scar"), np.array([f"town {number // 5}" for number in range(120)])
    finding[:5] = "clean"
    message = r"name facts about a bag with `covariates=\['NAME'\]`, or text .* with `categories=\['NAME'\]`"
    for values in (finding, town):
        with pytest.raises(BagDataError, match=message.replace("NAME", "seen")):
            bags_of(table(seen=values))
    with pytest.raises(BagDataError, match=message.replace("NAME", "grade")):
        bags_of(table(grade=np.repeat(["high", "low", "low"] * 8, 5)))
    assert told(lambda: bags_of(table(seen=finding), categories=["seen"]))[0].columns[-1].kind == "category"


def test_new_bags_without_labels_hold_each_category_once():
    bags = bags_of(table())
    coder = ColumnCoder.fit(bags, DataSettings())
    new = table().groupby("bag").head(1)[:2].drop(columns="label")
    for part in (new, pd.concat([new, new])):  # a row of each bag, and two that are the same
        read, _ = told(lambda part=part: bags_of(part.assign(merchant=["games", "cafe"] * (len(part) // 2))))
        np.testing.assert_array_equal(coder.encode(read)[1][0, 1:5], [0, 1, 0, 0])


def test_a_number_with_a_slip_is_no_category(tmp_path):
    values = np.resize(["1.5", "2.5", "3.5", "1,5"], 120)
    with pytest.raises(BagDataError, match="Expected numbers in column x, got '1,5'"):
        read_bags(written(table(x=values), tmp_path / "t.csv"))


def test_a_column_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BagDataError, match=r"'merchnt' of `categories`, got none .*did you mean 'merchant'"):
        read_bags(written(table(), tmp_path / "t.csv"), categories=["merchnt"])


def test_dates_in_two_forms_are_refused(tmp_path):
    times = np.resize(["2024-01-31 10:00", "2024-02-01", "31.01.2024"], 120)
    with pytest.raises(BagDataError, match=r"Expected dates as 2023-01-31 in the column 'time', got '31\.01"):
        read_bags(written(table(time=times), tmp_path / "t.csv"))


def test_ids_are_left_out_and_codes_warned_of(tmp_path):
    frame = table(transaction_id=np.random.default_rng(0).permutation(120), mcc_code=np.resize([5411, 5812, 7995], 120))
    bags, said = told(lambda: read_bags(written(frame, tmp_path / "t.csv")))
    assert bags.feature_names == ("amount", "merchant", "time", "mcc_code")
    assert "transaction_id (an id of each row, left out)" in said[0]
    assert "numbers in mcc_code are read as amounts: if they are codes" in said[1]
    bags, said = told(lambda: read_bags(str(tmp_path / "t.csv"), categories=["mcc_code"]))
    assert bags.columns[-1] == Column("mcc_code", "category", ("5411", "5812", "7995"))
    assert len(said) == 1


# Learning.


def bags_of(frame, **how):
    return Bags.from_dataframe(frame, **how)


def test_categories_are_those_of_the_training_bags_that_are_in_three():
    frame = table()
    frame.loc[frame["bag"] == "b0", "merchant"] = "rare"  # five rows of one bag
    frame.loc[frame["bag"].isin(["b20", "b21", "b22"]), "merchant"] = "late"
    bags = bags_of(frame)
    coder = ColumnCoder.fit(bags.subset(np.arange(20)), DataSettings())
    names = [f"merchant={word}" for word in ("books", "cafe", "fuel", "games")]
    parts = ("since-first", "until-last", "hour", "weekday")
    assert coder.features == ("amount", *names, "merchant other", *(f"time {part}" for part in parts))
    found, said = told(lambda: coder.encode(bags))
    assert found.columns is None
    assert found.feature_names == coder.features
    assert "15 of 120 instances have a merchant that no training bag had: late" in said[0]
    one_hot = found.instances[:, 1:6]
    np.testing.assert_array_equal(one_hot.sum(axis=1), 1)
    np.testing.assert_array_equal(one_hot[:, 4] == 1, frame["merchant"].isin(["rare", "late"]))
    again = ColumnCoder.from_json(coder.to_json())
    assert again == coder


def test_times_are_features_within_their_bag():
    frame = table(bags=4, rows=3, time=pd.to_datetime(["2024-01-01 06:00", "2024-01-03 12:00", None] * 4))
    frame = frame.drop(columns="merchant")
    coder = ColumnCoder.fit(bags_of(frame, impute=True), DataSettings(time_features=("until-last", "hour", "days")))
    made = coder.encode(bags_of(frame, impute=True).subset([3, 1]))
    names = list(coder.features)
    rows = made[1]
    np.testing.assert_array_equal(rows[:, names.index("time until-last")], [2.25, 0, np.nan])
    np.testing.assert_array_equal(rows[:, names.index("time hour")], [6, 12, np.nan])
    monday = ColumnCoder.fit(bags_of(frame, impute=True), DataSettings()).encode(bags_of(frame, impute=True))
    np.testing.assert_array_equal(monday[0][:, -1], [0, 2, np.nan])  # 2024-01-01 was a Monday


def test_a_date_without_hours_has_no_hour():
    frame = table(time=pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(120) % 17, unit="D"))
    assert not any("hour" in name for name in ColumnCoder.fit(bags_of(frame), DataSettings()).features)


def test_gaps_of_categories_need_no_impute_and_have_a_feature():
    frame = table()
    frame.loc[::7, "merchant"] = None
    frame.loc[frame["bag"] == "b3", "merchant"] = None
    coder = ColumnCoder.fit(bags_of(frame), DataSettings())
    found = coder.encode(bags_of(frame))
    gaps = found.instances[:, coder.features.index("merchant missing")]
    np.testing.assert_array_equal(gaps, frame["merchant"].isna())
    whole = ColumnCoder.fit(bags_of(table()), DataSettings())
    _, said = told(lambda: whole.encode(bags_of(frame)))
    assert "the column merchant is missing in 23 of 120 instances, but in no training bag" in said[-1]


def test_what_has_no_value_in_training_is_left_out_or_filled_with_0():
    frame = table(merchant=None, amount=np.nan)
    frame.loc[101:, ["merchant", "amount"]] = ["cafe", 1.0]
    bags = bags_of(frame, impute=True, categories=["merchant"])
    coder, said = told(lambda: ColumnCoder.fit(bags.subset(np.arange(20)), DataSettings()))
    assert said == ["the column merchant is left out: the training bags have no value (in a DataFrame)"]
    assert not any("merchant" in name for name in coder.features)
    settings = DataSettings(impute="median", indicators=True)
    made, notes = told(lambda: prepare(bags, settings, train=np.arange(20)))
    assert any("no training bag has a value of amount: gaps are filled with 0" in note for note in notes)
    np.testing.assert_array_equal(made.bags.instances[:, 0], np.where(np.isnan(frame["amount"]), 0, 1))


@pytest.mark.filterwarnings("ignore:.*missing values are filled")
@pytest.mark.parametrize("method", ["midam", "bag-statistics-logistic"])
def test_a_column_that_is_filled_in_one_bag_trains_with_any_seed(method):
    frame = table(60).assign(lab=np.nan)
    frame.loc[:4, "lab"] = 7.0
    bags = bags_of(frame, impute=True)
    y = np.arange(60) % 2
    model = MIDAMClassifier(**(SMALL if method == "midam" else {}), method=method, impute="median")
    scores, notes = told(lambda: cross_val_score(model, bags, y, cv=3, scoring="roc_auc", error_score="raise"))
    assert any("no training bag has a value of lab" in note for note in notes)
    assert np.isfinite(scores).all()


def test_indicators_say_where_numbers_were_missing():
    frame = table()
    frame.loc[::5, "amount"] = np.nan
    bags = bags_of(frame, impute=True)
    made = prepare(bags, DataSettings(impute="median", indicators=True), train=np.arange(12))
    names = made.bags.feature_names
    assert names[:2] == ("amount", "amount missing")
    assert "time missing" not in names
    np.testing.assert_array_equal(made.bags.instances[:, 1], frame["amount"].isna())
    median = np.nanmedian(frame["amount"][: 12 * 5])
    np.testing.assert_allclose(made.bags.instances[0, 0], median)
    numbers = bags_of(frame[["bag", "label", "amount"]], impute=True)
    assert prepare(numbers, DataSettings(impute="zero", indicators=True), train=range(24)).bags.instance_shape == (2,)
    with pytest.raises(ConfigError, match="Expected `impute` with `indicators`"):
        prepare(bags, DataSettings(indicators=True), train=range(24))


def test_a_note_counts_missing_values_by_column_and_those_of_categories_too():
    frame = table()
    frame.loc[::5, "amount"], frame.loc[::10, "time"], frame.loc[::7, "merchant"] = np.nan, pd.NaT, None
    bags, settings = bags_of(frame, impute=True), DataSettings(impute="median")
    made, [note] = told(lambda: prepare(bags, settings, train=np.arange(20), note=True))
    assert note == (
        "36 missing values are filled with the median of the training bags: amount 24, time 12; 18 missing values of "
        "categories are marked by a feature: merchant 18 (in a DataFrame)"
    )
    assert made.missing == {"amount": 24, "time": 12, "merchant": 18}
    assert told(lambda: note_of_filled(bags, "median"))[1] == [note]  # before a coder is fitted, as in comparisons
    assert made.imputed["missing"] == 36


def test_values_of_another_kind_than_in_training_are_refused():
    coder = ColumnCoder.fit(bags_of(table()), DataSettings())
    other = table(amount=np.resize(["much", "little"], 120))
    with pytest.raises(BagDataError, match="Expected numbers in the column 'amount' as in training, got 'much'"):
        coder.encode(bags_of(other))
    numbers = table(merchant=np.arange(120) % 3)
    found, said = told(lambda: coder.encode(bags_of(numbers)))
    assert "120 of 120 instances have a merchant that no training bag had: 0, 1, 2" in said[-1]
    assert found.instances[:, 5].all()


def test_raw_columns_are_refused_where_numbers_are_needed(tmp_path):
    bags = bags_of(table())
    advice = "Expected numbers for .*, got categories or dates in merchant, time"
    with pytest.raises(BagDataError, match=advice):
        write_store(bags, tmp_path / "store")
    with pytest.raises(BagDataError, match=advice):
        Trainer(Settings(**SMALL), bags)


# Runs.


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    frame = table(40)
    frame.loc[::9, "amount"] = np.nan
    frame.loc[frame["bag"] == "b5", ["amount", "merchant"]] = np.nan
    frame["split"] = np.where(frame["bag"].isin(["b36", "b37", "b38", "b39"]), "test", "train")
    frame.loc[frame["split"] == "test", "merchant"] = "late"
    path = written(frame, folder / "t.csv")
    settings = Settings(**SMALL, split="split", impute="median", baseline=False)
    with warnings.catch_warnings(action="ignore"):
        fit_run(path, settings, RunFolder(folder / "run"))
    return frame, path, folder / "run"


@pytest.mark.filterwarnings("ignore")
def test_a_run_takes_raw_columns_again(run, tmp_path):
    _, path, folder = run
    loaded = load_run(folder)
    assert "merchant=late" not in loaded.data["feature_names"]
    assert "merchant missing" in loaded.data["feature_names"]
    assert all("=late" not in name for name in loaded.columns.features)
    scores, _ = predict_run(loaded, read_for(loaded, path))
    kept = pd.read_csv(folder / "predictions.csv").set_index("bag")["score"]
    np.testing.assert_allclose(scores, kept[read_for(loaded, path).ids], rtol=1e-6)
    # Two bags in another order of columns, with others beside, in another format.
    rows = pd.read_csv(path).query("bag in ['b1', 'b2']").drop(columns=["label", "split"]).assign(note="x")
    bags = read_for(loaded, written(rows[rows.columns[::-1]], tmp_path / "new.parquet"))
    np.testing.assert_allclose(predict_run(loaded, bags)[0], kept[["b1", "b2"]], rtol=1e-6)


def test_a_category_that_was_never_seen_is_flagged_and_scored(run, tmp_path):
    _, path, folder = run
    loaded = load_run(folder)
    rows = pd.read_csv(path).query("bag == 'b1'").assign(merchant="zoo", amount=1.0)
    bags, said = told(lambda: read_for(loaded, written(rows, tmp_path / "new.csv")))
    assert any("5 of 5 instances have a merchant that no training bag had: zoo" in line for line in said)
    assert bags.instances[:, bags.feature_names.index("merchant other")].all()
    assert len(told(lambda: predict_run(loaded, bags)[0])[0]) == 1


@pytest.mark.filterwarnings("ignore")
def test_a_bag_with_gaps_alone_is_scored(run, tmp_path):
    _, path, folder = run
    loaded = load_run(folder)
    rows = pd.read_csv(path).query("bag == 'b1'").assign(merchant=None, amount=np.nan, time=None)
    bags = read_for(loaded, written(rows, tmp_path / "new.csv"))
    assert np.isfinite(bags.instances).all()
    with pytest.raises(BagDataError, match=r"Expected numbers in column amount, got 'much' .*; correct it\.$"):
        read_for(loaded, written(rows.assign(amount="much"), tmp_path / "new.csv"))
    rows = rows.drop(columns="merchant")
    with pytest.raises(BagDataError, match="merchant"):
        read_for(loaded, written(rows, tmp_path / "new.csv"))


@pytest.mark.filterwarnings("ignore")
def test_columns_that_do_not_fit_a_model_are_refused(run, tmp_path):
    content = load_checkpoint(run[2] / "model.pt", ModelContent)
    codes = json.loads(content["data"]["columns"])
    for text in ("no json", json.dumps(codes[1:]), json.dumps([{**codes[0], "kind": "code"}])):
        content["data"]["columns"] = text
        save_checkpoint(tmp_path / "model.pt", {key: value for key, value in content.items() if key != "format"})
        with pytest.raises(CheckpointError):
            load_run(tmp_path)
    with pytest.raises(ExportError, match="takes covariates or encodes columns: merchant, time"):
        export_run(run[2], tmp_path / "export")


@pytest.mark.filterwarnings("ignore")
def test_each_fold_learns_of_its_training_bags():
    frame = table(40)
    frame.loc[frame["bag"].isin(["b0", "b1", "b2", "b3"]), "merchant"] = "late"
    bags, method = bags_of(frame), find_method("bag-statistics-logistic")
    fold = Fold(0, 0, np.arange(8, 40), np.arange(8))
    data = DataSettings()
    made = prepare(bags, data, train=fold.train)
    assert not any("late" in name for name in made.bags.feature_names)
    parts = [(fold.train, np.array([], dtype=np.int64))]
    [own], _ = run_task(bags, Task(method, None, [fold], parts), data_settings=data)
    [by_hand], _ = run_task(made.bags, Task(method, None, [fold], parts))
    assert own.columns["scores"] == by_hand.columns["scores"]


@pytest.mark.filterwarnings("ignore")
def test_a_comparison_takes_raw_columns(tmp_path):
    bags = bags_of(table(24))
    folds = [(0, 0, np.arange(12), np.arange(12, 24)), (0, 1, np.arange(12, 24), np.arange(12))]
    methods = ["midam", "bag-statistics-logistic"]
    how = {
        "settings": Settings(epochs=1, members=1),
        "grid": Grid([0.1], [1.0], "last"),
    }
    found = run_comparison(bags, methods, folds, **how, out=tmp_path / "c")
    assert found.trials["status"].eq("ok").all()


def test_a_run_on_categories_splits_before_it_learns():
    frame = table(40)
    frame.loc[frame["bag"] == "b39", "merchant"] = "late"
    frame["split"] = np.where(frame["bag"].isin([f"b{number}" for number in range(30, 40)]), "test", "train")
    with warnings.catch_warnings(action="ignore"):
        parts = split_data(bags_of(frame, split="split"), Settings())
    coder = ColumnCoder.from_json(parts.columns)
    merchant = next(code for code in coder.codes if code.name == "merchant")
    assert "late" not in (*merchant.categories, *merchant.rare)


# scikit-learn.


def frame_of(**columns):
    frame = table(**columns)
    frame["instance"] = frame.groupby("bag").cumcount()
    y = frame.groupby("bag", sort=False)["label"].first()
    return frame.drop(columns="label").set_index(["bag", "instance"]), y


@pytest.mark.filterwarnings("ignore")
def test_an_estimator_encodes_fills_saves_and_goes_on(tmp_path):
    X, y = frame_of()
    X.iloc[::6, 0] = np.nan
    model = MIDAMClassifier(**SMALL, impute="median", indicators=True)
    model = clone(model).fit(X, y)
    assert model.feature_names_in_.tolist() == ["amount", "merchant", "time"]
    assert model.instance_shape_ == (3,)
    assert {"amount missing", "merchant=games", "time hour"} <= set(model.to_run().data["feature_names"])
    scores = model.bag_scores(X)
    model.save(tmp_path / "run")
    again = MIDAMClassifier.load(tmp_path / "run")
    assert (again.impute, again.indicators) == ("median", True)
    np.testing.assert_allclose(again.bag_scores(X[X.columns[::-1]]), scores, rtol=1e-6)
    assert len(again.instance_scores(X)) == 24
    _, said = told(lambda: again.bag_scores(X.assign(merchant="zoo")))
    assert any("merchant that no training bag had: zoo" in line for line in said)


def test_missing_values_are_filled_by_those_of_the_training_bags():
    rng = np.random.default_rng(0)
    bags = [rng.normal(size=(4, 2)) for _ in range(30)]
    for bag in bags[::3]:
        bag[0, 0] = np.nan
    y = np.arange(30) % 2
    with pytest.raises(ValueError, match="nan"):
        MIDAMClassifier(**SMALL).fit(bags, y)
    for model in (MIDAMClassifier(**SMALL, impute="mean"), MIDAMRanker(**SMALL, impute="mean")):
        with warnings.catch_warnings(action="ignore"):
            model.fit(bags, y)
            facts = model.run_.data["imputed"]
            held = [i for i, split in enumerate(model.run_.splits.values()) if split == "train"]
            known = np.concatenate([bags[i] for i in held])
            np.testing.assert_allclose(facts["values"], np.nanmean(known, axis=0), rtol=1e-6)
            assert np.isfinite(model.bag_scores([np.full((2, 2), np.nan), *bags])).all()


@pytest.mark.filterwarnings("ignore")
def test_a_transformer_runs_on_the_instances():
    X, y = frame_of()
    X.iloc[::6, 0] = np.nan
    columns = ColumnTransformer(
        [
            ("amount", make_pipeline(SimpleImputer(), StandardScaler()), ["amount"]),
            ("merchant", OneHotEncoder(handle_unknown="ignore"), ["merchant"]),
        ],
        verbose_feature_names_out=False,
    )
    pipeline = make_pipeline(PerInstance(columns), MIDAMClassifier(**SMALL))
    pipeline = clone(pipeline).fit(X.iloc[:80], y[:16])
    made = pipeline[:-1].transform(X)
    assert (
        list(made.columns)
        == [
            "amount",
            "merchant_books",
            "merchant_cafe",
            "merchant_fuel",
            "merchant_games",
        ]
        == pipeline[0].get_feature_names_out().tolist()
    )
    np.testing.assert_allclose(made["amount"].iloc[:80].mean(), 0, atol=1e-12)
    assert abs(made["amount"].iloc[80:].mean()) > 1e-3
    assert pipeline.predict_proba(X).shape == (24, 2)
    # Bags with names and raw columns, a part of them, give the same numbers.
    bags = Bags.from_dataframe(table().assign(amount=X["amount"].to_numpy()), impute=True).subset([3, 1])
    same = PerInstance(columns).fit(X.iloc[:80]).transform(bags)
    np.testing.assert_allclose(same[1], made.loc["b1"].to_numpy())
    assert same.columns is None
    assert same.labels.tolist() == [1, 1]
    parts = PerInstance(PCA(1)).fit_transform([np.eye(3), np.ones((2, 3))])
    assert parts.instance_shape == (1,)


def test_prepared_bags_are_not_prepared_again(run):
    _, path, folder = run
    loaded = load_run(folder)
    with warnings.catch_warnings(action="ignore"):
        bags = read_for(loaded, path)
        assert prepared(loaded.model, bags).instances is bags.instances


# Types of columns.

ODD = {
    "boolean": pd.array([True, False, None] * 40, dtype="boolean"),
    "arrow boolean": pd.array([True, False, None] * 40, dtype="boolean[pyarrow]"),
    "Int64": pd.array([1, 0, None] * 40, dtype="Int64"),
    "Float64": pd.array([1.0, 0.0, None] * 40, dtype="Float64"),
    "arrow decimal": pd.array([Decimal(1), Decimal(0), None] * 40, dtype=pd.ArrowDtype(pyarrow.decimal128(6, 2))),
    "timedelta": pd.to_timedelta([1, 0, None] * 40, unit="s"),
    "arrow duration": pd.Series(pd.to_timedelta([1, 0, None] * 40, unit="s")).astype("duration[us][pyarrow]"),
    "datetime.timedelta": pd.Series([timedelta(seconds=1), timedelta(0), None] * 40, dtype=object),
}


@pytest.mark.filterwarnings("ignore:.*missing values are filled")
@pytest.mark.parametrize("kind", ODD)
def test_a_column_of_any_numeric_type_with_gaps_is_numbers(kind, tmp_path):
    frame = table(x=ODD[kind])
    for bags in (bags_of(frame, impute=True), read_bags(written(frame, tmp_path / "t.parquet"), impute=True)):
        assert bags.columns[-1].kind == "number"
        np.testing.assert_array_equal(bags.instances[:, -1], np.resize([1, 0, np.nan], 120))
    parts = [part[["amount", "x"]] for _, part in frame.groupby("bag", sort=False)]
    model = MIDAMClassifier(**SMALL, impute="median").fit(parts, np.arange(24) % 2)
    assert np.isfinite(model.bag_scores(parts)).all()


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean", "float64", "object"])
def test_a_column_without_a_value_is_numbers_of_any_type(dtype):
    bags = bags_of(table(x=pd.array([None] * 120, dtype=dtype)), impute=True)
    assert np.isnan(bags.instances[:, -1].astype(float)).all()


def test_durations_are_seconds_with_a_note_and_as_covariates_too():
    frame = table(wait=pd.to_timedelta(np.arange(120), unit="min"), stay=np.repeat(pd.to_timedelta(range(24), "D"), 5))
    bags, notes = told(lambda: bags_of(frame, covariates=["stay"]))
    assert "wait (durations, in seconds)" in notes[-1]
    np.testing.assert_array_equal(bags.instances[:, -1], 60 * np.arange(120))
    np.testing.assert_array_equal(bags.covariates.columns[0], 86400.0 * np.arange(24))
    single = frame[["amount", "wait"]][:24].set_index(np.arange(24))
    assert np.isfinite(MIDAMClassifier(**SMALL).fit(single, np.arange(24) % 2).bag_scores(single)).all()
    frame = frame.drop(columns="stay")
    assert bags_of(frame, categories=["wait"]).columns[-1].words[0] == "0 days 00:00:00"


# Time zones.


def clock_table(zone=None):
    """Rows from Monday to Friday, from 8 to 11 o'clock, an hour apart in a bag."""
    count = np.arange(120)
    local = pd.Timestamp("2023-01-02") + pd.to_timedelta(count // 5 % 5, "D") + pd.to_timedelta(8 + count % 4, "h")
    return table(time=local if zone is None else local.tz_localize(zone)).drop(columns="merchant")


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC", None])
@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "frame", "arrow", "text"])
def test_hour_and_weekday_are_those_of_utc(tmp_path, name, zone):
    frame, path = clock_table(zone), tmp_path / name
    frame = frame.assign(time=frame["time"].astype(str)) if name == "text" else frame
    frame = frame.convert_dtypes(dtype_backend="pyarrow") if name == "arrow" else frame
    bags = read_bags(written(frame, path)) if path.suffix else bags_of(frame)
    features = ColumnCoder.fit(bags, DataSettings()).encode(bags)
    hour, weekday = (features.instances[:, features.feature_names.index(f"time {x}")] for x in ("hour", "weekday"))
    ahead = {"Asia/Tokyo": 9, "America/New_York": -5}.get(zone, 0)
    np.testing.assert_allclose(hour, (8 + np.arange(120) % 4 - ahead) % 24, atol=1e-6)
    np.testing.assert_array_equal(
        weekday, (np.arange(120) // 5 % 5 + np.floor((8 + np.arange(120) % 4 - ahead) / 24)) % 7
    )


def test_times_of_several_zones_are_absolute_between_instances():
    times = ["2023-03-26T01:30:00+01:00", "2023-03-26T03:30:00+02:00", "2023-03-26T00:00:00-05:00", "2023-03-27"]
    bags = bags_of(table(time=np.resize(times, 120), bags=30, rows=4).drop(columns="merchant"))
    settings = DataSettings(time_features=("since-first", "hour", "weekday", "days"))
    features = ColumnCoder.fit(bags, settings).encode(bags.subset([2, 1]))[1][:, 1:]
    days = 19442 + np.array([0.5, 1.5, 5, 24]) / 24
    np.testing.assert_allclose(features[:, 0], days - days[0], atol=1e-8)
    np.testing.assert_allclose(features[:, 1:3], [[0.5, 6], [1.5, 6], [5, 6], [0, 0]], atol=1e-9)
    np.testing.assert_allclose(features[:, 3], days)
    rows = PerInstance(FunctionTransformer()).fit_transform(bags).instances
    np.testing.assert_allclose(rows[:4, 1], days)


# Numbers that may be something else.


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "store_id",
            [1, 2, 5, 8],
            r"numbers in store_id are read as amounts: if they are codes, give `categories=",
        ),
        ("icd", [250, 401, 410], "numbers in icd are read as amounts"),
        ("icd", [250.1, 401.0, 410.9], "numbers in icd are read as amounts"),
        (
            "date",
            [20230105, 20230228, 20221231],
            "date is read as .* 20221231 may be a time: write times as 2022-12-31",
        ),
        (
            "timestamp",
            [1672531200, 1672617600, 1672704000],
            "1672531200 may be a time: write times as 2023-01-01 00:00:00",
        ),
        ("paid_date", [1672531200000, 1672617600000, 1672704000000], "write times as 2023-01-01 00:00:00"),
    ],
)
def test_whole_numbers_that_may_be_codes_or_times_are_warned_of(tmp_path, name, values, message):
    frame = table().assign(**{name: np.resize(values, 120)})
    with pytest.warns(UserWarning, match=message):
        read_bags(written(frame, tmp_path / "t.csv"))
    with pytest.warns(UserWarning, match=message):
        bags_of(frame.astype({name: "Int64"} if frame[name].dtype.kind == "i" else {}))


_CODES = {
    "such as 0117, which begins with 0": ["0117", "117", "250"],
    r"such as 250\.10? and 250\.10?": ["250.10", "250.1", "401.9"],
    "such as (1E5|100000) and (1E5|100000)": ["1E5", "100000", "7"],
}


@pytest.mark.parametrize(
    ("suffix", "example", "name"),
    all_pairs([".csv", ".tsv", ".csv.gz", ".xlsx"], _CODES, ["unit", "icd", "diagnosis_code"]),
)
def test_texts_that_become_one_number_are_warned_of_unless_they_are_declared_or_left_out(
    tmp_path, suffix, example, name
):
    words = _CODES[example]
    frame = table().assign(**{name: np.resize(words, 120)})
    path = tmp_path / f"t{suffix}"
    frame.to_excel(path, index=False) if suffix == ".xlsx" else frame.to_csv(
        path, index=False, sep="\t" if suffix == ".tsv" else ","
    )
    with pytest.warns(UserWarning, match=rf"numbers in {name} may be codes, {example}: .* `categories=\['{name}'\]`"):
        read_bags(path)
    for how in ({"categories": [name]}, {"ignore": [name]}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            read_bags(path, **how)
        assert not [w for w in caught if "may be codes" in str(w.message)]


def test_measurements_are_no_codes(tmp_path):
    rng = np.random.default_rng(0)
    frame = table().assign(
        area=[f"{x:.2f}".rstrip("0") for x in rng.normal(5, 2, 120)], zero=np.resize(["0", "0.5"], 120)
    )
    frame.loc[0, "area"] = "5.10"
    frame.loc[1, "area"] = "5.1"
    frame.to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_bags(tmp_path / "t.csv")
    assert not [w for w in caught if "may be codes" in str(w.message)]


def test_a_covariate_of_numbers_that_begin_with_0_is_noted():
    with pytest.warns(Note, match="numbers in the covariate icd may be codes, such as 0117, which begins with 0"):
        Covariates.of({"icd": ["0117", "117", "250"]})
    with warnings.catch_warnings(action="error"):
        Covariates.of({"age": ["63", "0.5", "0"]})


def test_advice_on_a_category_that_reveals_the_label_names_its_column(tmp_path, capsys):
    frame = table()
    frame["icd"] = np.where(frame["label"] == 1, "0117", np.resize(["250", "401x", "7"], 120))
    frame.to_csv(tmp_path / "t.csv", index=False)
    method = ["--method", "bag-statistics-logistic", "--out", str(tmp_path / "run")]
    for command, words in ((["data", "describe"], []), (["fit"], method)):
        assert main([*command, str(tmp_path / "t.csv"), "--categories", "icd", *words]) == 0
        shown = capsys.readouterr()
        assert "icd=0117" in shown.out + shown.err
        assert re.search(r"--ignore\s+[\w,]*\bicd\s", shown.out + shown.err)


@pytest.mark.parametrize("words", [["0117", "117", "250"], ["250.10", "250.1", "401.9"], ["1E5", "100000", "7"]])
@pytest.mark.parametrize("form", ["labels.csv", "labels.xlsx", "manifest.csv", "t.parquet", "t.xlsx"])
def test_codes_among_covariates_are_said_in_every_table(tmp_path, words, form):
    bags = pd.DataFrame({"bag": [f"b{i}" for i in range(40)], "label": np.arange(40) % 2, "icd": np.resize(words, 40)})
    if form.startswith("t."):
        frame = bags.loc[np.repeat(np.arange(40), 3)].assign(x=np.arange(120.0) ** 0.5)
        source, options = tmp_path / form, {}
    else:
        (tmp_path / "files").mkdir()
        for i in range(40):
            np.save(tmp_path / "files" / f"b{i}.npy", np.ones((2, 3)) * i)
        frame = bags.assign(path=[f"files/b{i}.npy" for i in range(40)]) if form == "manifest.csv" else bags
        of_files = {"source": tmp_path / "files", "labels": tmp_path / form}
        source, options = (tmp_path / form, {}) if form == "manifest.csv" else (of_files.pop("source"), of_files)
    path = tmp_path / form
    write = {".csv": frame.to_csv, ".xlsx": frame.to_excel, ".parquet": frame.to_parquet}[path.suffix]
    write(path, index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_bags(source, covariates=["icd"], **options)
    found = [
        one for one in caught if re.search(r"numbers in (the covariate )?icd may be codes, such as", str(one.message))
    ]
    assert len(found) == 1


def test_numbers_that_are_no_codes_or_times_are_not_warned_of():
    counts = np.arange(120)
    frame = table(big=counts + 1672531200, steps=counts, date_days=counts * 300, account_id=counts % 3 + 0.5)
    assert len(told(lambda: bags_of(frame))[1]) == 1  # the kinds of the columns


@pytest.mark.parametrize(
    "values", [["5%", "12%", "7.5 %"], ["$5.00", "$1,200.00"], ["1,000", "2,500"], ["5 EUR", "7 EUR"]]
)
def test_text_of_amounts_asks_for_plain_numbers(values):
    with pytest.raises(
        BagDataError, match=r"in column fee, got .*; write plain numbers, such as 1000\.5 and 0\.05 for 5%"
    ):
        bags_of(table(fee=np.resize(values, 120)))


def test_codes_with_a_few_words_and_numbers_that_are_text_get_their_advice():
    with pytest.raises(BagDataError, match=r"got 'V45' .*; name it with `categories=\['icd'\]`"):
        bags_of(table(icd=np.resize(["0117", "117", "V45"], 120)))
    with pytest.raises(BagDataError, match=r"got '0117' .*; name it with `categories=\['icd'\]`"):
        bags_of(table(icd=np.resize(["0117", "117", "250"], 120)))
    with pytest.raises(BagDataError, match=r"write plain numbers, .*, and not as text"):
        bags_of(table(fee=np.resize(["1.5", "2", "3"], 120)))


def test_messages_about_gaps_days_and_empty_columns_are_true():
    with pytest.raises(BagDataError, match="; drop it, or read with `impute=True` and train with `impute='median'`"):
        bags_of(table(amount=np.nan))
    with pytest.raises(BagDataError, match=r"got '2023-02-30' .*; correct this day, which no calendar has"):
        bags_of(table(time=np.resize(["2023-02-27", "2023-02-30"], 120)))
    _, [note] = told(lambda: bags_of(table(m=None), impute=True))
    assert "m (empty)" in note


@pytest.mark.filterwarnings("ignore")
def test_a_category_is_explained_as_a_whole_by_the_most_frequent_one():
    frame, y = table(), np.arange(24) % 2
    frame.loc[frame.index % 5 > 2, "merchant"], frame.loc[7::10, "merchant"] = "cafe", None
    model = MIDAMClassifier(**SMALL).fit(bags_of(frame), y)
    (found,) = model.explain(bags_of(frame).subset([1]))
    shares = {at: {one.name: one for one in row} for at, row in found.features.items()}
    merchants = frame["merchant"][frame["bag"] == "b1"].fillna("missing").tolist()
    assert merchants[0] == "games"
    assert any("merchant" in row for row in shares.values())
    for at, merchant in enumerate(merchants):
        changed = frame.copy()
        changed.loc[5 + at, "merchant"] = "cafe"
        (score,) = model.bag_scores(bags_of(changed).subset([1]))
        if "merchant" in shares[at]:
            assert shares[at]["merchant"][1:3] == (merchant, "cafe")
            np.testing.assert_allclose(shares[at]["merchant"].adds, found.score - score, rtol=1e-4, atol=2e-7)
        else:  # it raises the score by less than a tenth of what another feature does
            assert found.score - score <= 0.1 * max((one.adds for one in shares[at].values()), default=0.0) + 2e-7


@pytest.mark.filterwarnings("ignore")
def test_a_list_of_frames_is_read_as_one_frame():
    frames = [part.drop(columns=["bag", "label"]) for _, part in table().groupby("bag", sort=False)]
    y, joined = np.arange(24) % 2, pd.concat(frames, keys=range(24))
    listed, model = (MIDAMClassifier(**SMALL).fit(x, y) for x in (frames, joined))
    np.testing.assert_array_equal(listed.decision_function(frames), model.decision_function(joined))
