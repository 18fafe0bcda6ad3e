"""Covariates as they are read and encoded: kinds, missing values, new categories, and what is refused."""

import json
import math
import warnings
from dataclasses import replace

import h5py
import numpy as np
import pandas as pd
import pytest

from midam.data import Bags, CovariateCoder, Covariates, open_store, read_bags, write_store
from midam.data.column_codes import Code, fit_coder
from midam.errors import BagDataError, ConfigError, Note
from studies.sets.npz import write_npz

AGES, SEXES = [63.0, None, 71.5, 50.0, 44.0, 58.0], ["f", "m", "f", None, "m", "f"]
VALUES = {"age": AGES, "sex": SEXES}
LABELS = [0, 1, 0, 1, 0, 1]


def make_bags(covariates=VALUES, **known):
    count = 6 if covariates is None else len(next(iter(covariates.values())))
    parts = [np.full((1 + i % 3, 2), float(i)) for i in range(count)]
    return Bags.from_list(parts, labels=[i % 2 for i in range(count)], covariates=covariates, **known)


# What a column is.


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2, 3], "number", [1.0, 2.0, 3.0]),
        ([1.5, np.nan, 2.0], "number", [1.5, None, 2.0]),
        (["63", " 71.5 ", ""], "number", [63.0, 71.5, None]),
        ([True, False, True], "number", [1.0, 0.0, 1.0]),
        ([True, None, False], "number", [1.0, None, 0.0]),  # as a column of CSV with a gap
        (["TRUE", "False", ""], "number", [1.0, 0.0, None]),  # as a label table
        ([None, "NA", "?"], "number", [None, None, None]),
        (["f", "M", "M "], "category", ["f", "M", "M"]),
        (["f", None, float("nan")], "category", ["f", None, None]),
        (["1", "2", "4a"], "category", ["1", "2", "4a"]),
        ([1, 2.0, "4a"], "category", ["1", "2", "4a"]),
        (["1.0", "01", "1", "1E0", "x"], "category", ["1.0", "01", "1", "1E0", "x"]),
        (["1_000", "2", "3"], "category", ["1_000", "2", "3"]),
        ([b"f", b"\xc3\xa4", b""], "category", ["f", "\N{LATIN SMALL LETTER A WITH DIAERESIS}", None]),
        (pd.array([1, None, 3], dtype="Int64"), "number", [1.0, None, 3.0]),
        (pd.Series(["a", None, "b"], dtype="string"), "category", ["a", None, "b"]),
        (["none", "mild", "none"], "category", ["none", "mild", "none"]),
    ],
)
def test_numbers_and_categories_are_told_apart_by_their_values(values, kind, expected):
    found = Covariates.of({"c": values})
    assert found.kinds == (kind,)
    assert found.values() == {"c": expected}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([*map(str, range(30)), "abc"], "Expected numbers in the covariate 'c', got 'abc'"),
        (["63,5", "71,25", "50"], "got '63,5' .*; write plain numbers, such as 1000"),
        (["1,000", "2,500", "500"], "got '1,000' .*; write plain numbers, such as 1000"),
        (["1,000,000", "2,500", "500"], "got '1,000,000' .*; write plain numbers, such as 1000"),
        ([1.0, np.inf, 2.0], "finite numbers in the covariate 'c'"),
    ],
)
def test_a_column_of_numbers_with_a_slip_is_refused(values, message):
    with pytest.raises(BagDataError, match=message):
        Covariates.of({"c": values})


def test_covariates_follow_the_bags():
    bags = make_bags()
    assert bags.subset([4, 0]).covariates.values() == {"age": [44.0, 63.0], "sex": ["m", "f"]}
    assert bags.subset(np.arange(6) == 1).covariates.values() == {"age": [None], "sex": ["m"]}
    assert bags.replace(labels=None).covariates is bags.covariates
    assert bags[:2].covariates.values() == {"age": [63.0, None], "sex": ["f", "m"]}


def test_the_fingerprint_holds_covariates_where_there_are_some():
    bags, plain = make_bags(), make_bags(None)
    assert bags.fingerprint() != plain.fingerprint() == bags.replace(covariates=None).fingerprint()
    assert bags.fingerprint() != make_bags({**VALUES, "age": [64.0, *AGES[1:]]}).fingerprint()
    assert bags.fingerprint() == make_bags().fingerprint()


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        ({"age": [1, 2]}, "covariate 'age' for each of the 6 bags, got shape"),
        ({"age": np.ones((6, 2))}, "covariate 'age' for each of the 6 bags, got shape"),
        (Covariates(("a", "a"), (np.zeros(6), np.zeros(6))), "different names, got a, a"),
        (Covariates((), ()), "different names, got none"),
    ],
)
def test_covariates_that_do_not_fit_are_refused(covariates, message):
    with pytest.raises(BagDataError, match=message):
        make_bags(None).replace(covariates=covariates)


# How they become numbers.


def naive_codes(train, column, *, missing):
    """Standardized numbers and a flag, value by value."""
    known = [value for value in train if value is not None]
    mean = math.fsum(known) / len(known)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / len(known))
    rows = [[0.0 if value is None else (value - mean) / deviation, float(value is None)] for value in column]
    return [row if missing else row[:1] for row in rows]


def test_a_number_is_standardized_by_the_training_bags_that_have_it():
    train, other = [63.0, None, 71.5, 50.0], [None, 80.0, 40.0]
    coder = CovariateCoder.fit(Covariates.of({"age": train}))
    assert coder.features == ("age", "age missing")
    np.testing.assert_allclose(coder.matrix(Covariates.of({"age": train})), naive_codes(train, train, missing=True))
    np.testing.assert_allclose(coder.matrix(Covariates.of({"age": other})), naive_codes(train, other, missing=True))


def test_codes_come_from_the_bags_that_they_are_fitted_to_alone():
    # Leakage: other bags, whatever they hold, change no code.
    bags = make_bags({"age": [1.0, 2.0, 3.0, 400.0, 500.0, 600.0], "site": ["a", "a", "a", "b", "b", "b"]})
    with pytest.warns(UserWarning, match="site is left out: the training bags have only a"):
        coder = fit_coder(bags.subset([0, 1, 2]))
    (code,) = coder.codes
    assert replace(code, scale=1.0) == Code("age", missing=False, center=2.0)
    assert code.scale == pytest.approx(math.sqrt(2 / 3))
    with pytest.warns(UserWarning, match="the covariate age is far from that of training in 3 of 6 bags"):
        assert coder.encode(bags).max() == 10.0  # clipped, far outside training
    assert coder.encode(bags.subset([0, 1, 2, 3])).max() == 10.0  # one bag of several is no other unit


def test_categories_have_a_column_each_and_rare_ones_one_together():
    words = ["f"] * 4 + ["m"] * 3 + ["d", "d", "x"]
    coder = CovariateCoder.fit(Covariates.of({"sex": words}))
    assert coder.features == ("sex=f", "sex=m", "sex other")
    expected = [[1, 0, 0]] * 4 + [[0, 1, 0]] * 3 + [[0, 0, 1]] * 3
    assert coder.matrix(Covariates.of({"sex": words})).tolist() == expected


def test_a_category_that_is_new_is_unknown_and_said_once_for_all_bags():
    coder = CovariateCoder.fit(Covariates.of({"site": ["a"] * 3 + ["b"] * 3 + ["c"]}))
    with pytest.warns(
        UserWarning, match="3 of 5 bags have a site that no training bag had: New, other; scored"
    ) as told:
        found = coder.matrix(Covariates.of({"site": ["New", "A", "other", "New", "c"]}), source="there")
    assert len(told) == 1
    assert found.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_categories_that_happen_to_be_numbers_are_met_again():
    coder = CovariateCoder.fit(Covariates.of({"stage": ["1"] * 3 + ["2"] * 3 + ["4a"] * 3}))
    numbers = Covariates.of({"stage": [1, 2.0, 1]})
    assert numbers.kinds == ("number",)
    assert coder.matrix(numbers).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]]


def test_a_value_that_was_never_missing_in_training_is_said():
    coder = CovariateCoder.fit(Covariates.of({"age": [1.0, 3.0] * 3, "sex": ["f", "m"] * 3}))
    with pytest.warns(UserWarning, match="in no training bag") as told:
        found = coder.matrix(Covariates.of({"age": [None, 2.0], "sex": ["f", None]}))
    said = [str(warning.message) for warning in told]
    assert "age is missing in 1 of 2 bags, but in no training bag: the mean" in said[0]
    assert "sex is missing in 1 of 2 bags, but in no training bag: no category" in said[1]
    assert found.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([5.0, 5.0, 5.0], "only 5.0"),
        (["a", "a", "a"], "only a"),
        ([None] * 3, "none"),
        (["a", "b", "b"], "each category fewer"),
    ],
)
def test_a_constant_covariate_is_named_and_left_out(values, what):
    with pytest.warns(UserWarning, match=f"the covariate c is left out: the training bags have {what}"):
        coder = CovariateCoder.fit(Covariates.of({"c": values, "age": [1, 2, 3]}))
    assert coder.names == ("age",)
    with pytest.warns(UserWarning, match="c is left out"):
        assert fit_coder(make_bags({"c": values})) is None


def test_a_covariate_that_varies_by_what_is_missing_is_kept():
    coder = CovariateCoder.fit(Covariates.of({"c": [5.0, None, 5.0], "s": ["a", None, "a"]}))
    assert coder.features == ("c", "c missing", "s other", "s missing")
    assert coder.matrix(Covariates.of({"c": [5.0, None], "s": ["a", None]})).tolist() == [[0, 0, 1, 0], [0, 1, 0, 1]]


@pytest.mark.parametrize("count", [3, 60])
def test_a_covariate_of_ids_is_refused(count):
    ids = Covariates.of({"patient": [f"P{i}" for i in range(count)]})
    with pytest.raises(BagDataError, match=f"got {count} different values for {count} training bags: P0, P1"):
        CovariateCoder.fit(ids)
    numbers = Covariates.of({"dose": [float(i) for i in range(count)]})
    assert CovariateCoder.fit(numbers).names == ("dose",)


def test_what_bags_lack_is_named():
    coder = CovariateCoder.fit(
        Covariates.of({"age": [1, 2, 3], "sex": ["f", "m", "f"] * 1 + []}).select(["age"], source="")
    )
    with pytest.raises(BagDataError, match=r"Expected the covariates age .*got none \(in memory\)"):
        coder.encode(make_bags(None))
    with pytest.raises(BagDataError, match=r"Expected the covariate 'age', got ages .* did you mean 'ages'"):
        coder.encode(make_bags({"ages": [1] * 6}))
    with pytest.raises(BagDataError, match=r"in the covariate 'age' as in training, got 'old' \(in memory, bag 2"):
        coder.encode(make_bags({"age": [1, 2, "old", 4, 5, 6]}))


def test_a_coder_is_kept_as_text():
    coder = CovariateCoder.fit(Covariates.of({"age": AGES, "sex": ["f"] * 4 + ["m", None]}))
    assert CovariateCoder.from_json(coder.to_json()) == coder


@pytest.mark.parametrize(
    "change",
    [
        {"name": 3},
        {"missing": "no"},
        {"scale": 0.0},
        {"scale": float("nan")},
        {"center": "0"},
        {"categories": "fm"},
        {"rare": [1]},
    ],
)
def test_a_text_that_is_no_coder_is_refused(change):
    (entry,) = json.loads(CovariateCoder.fit(Covariates.of({"age": [1, 2, 3]})).to_json())
    for text in (json.dumps([{**entry, **change}]), "{}", "[3]"):
        with pytest.raises(ValueError):
            CovariateCoder.from_json(text)


# Where they are read from.

KNOWN = {"age": [63.0, None, 71.5, 50.0, 44.0, 58.0], "sex": ["f", "m", "f", None, "m", "f"]}
TOLD = r"covariates: age \(number, 1 missing\), sex \(category: f, m; 1 missing\)"


def csv_of(columns, **more):
    return pd.DataFrame({**columns, **VALUES, **more}).to_csv(index=False)


def instance_table(folder):
    rows = make_bags()
    places = np.repeat(np.arange(6), rows.sizes)
    columns = {"bag": places, "label": np.array(LABELS)[places], "x": rows.instances[:, 0], "y": rows.instances[:, 1]}
    beside = {name: np.array(values, dtype=object)[places] for name, values in VALUES.items()}
    (folder / "bags.csv").write_text(pd.DataFrame({**columns, **beside}).to_csv(index=False))
    return folder / "bags.csv", {}


def npz(folder):
    write_npz(make_bags(), folder / "bags.npz")
    return folder / "bags.npz", {}


def store(folder):
    return write_store(make_bags(), folder / "store"), {}


def feature_files(folder):
    (folder / "files").mkdir()
    for i in range(6):
        np.save(folder / "files" / f"s{i}.npy", make_bags()[i])
    return folder / "files"


def label_table(folder):
    (folder / "labels.csv").write_text(csv_of({"slide": [f"s{i}" for i in range(6)], "label": LABELS}))
    return feature_files(folder), {"labels": folder / "labels.csv"}


def manifest(folder):
    feature_files(folder)
    paths = {"bag": range(6), "path": [f"files/s{i}.npy" for i in range(6)], "label": LABELS}
    (folder / "manifest.csv").write_text(csv_of(paths))
    return folder / "manifest.csv", {}


def relabeled_store(folder):
    write_store(make_bags(None), folder / "store")
    (folder / "labels.csv").write_text(csv_of({"bag": range(6), "label": LABELS}))
    return folder / "store", {"labels": folder / "labels.csv"}


def store_with_other_labels(folder):
    # The table has no column age: the covariates are those of the store.
    write_store(make_bags(), folder / "store")
    (folder / "labels.csv").write_text(pd.DataFrame({"bag": range(6), "label": LABELS}).to_csv(index=False))
    return folder / "store", {"labels": folder / "labels.csv"}


def attributes(folder):
    (folder / "files").mkdir()
    for i in range(6):
        with h5py.File(folder / "files" / f"s{i}.h5", "w") as file:
            file["features"] = make_bags()[i]
            known = {
                "label": LABELS[i],
                **{name: values[i] for name, values in VALUES.items() if values[i] is not None},
            }
            file.attrs.update(known)
    return folder / "files", {}


SOURCES = [instance_table, npz, store, label_table, manifest, relabeled_store, store_with_other_labels, attributes]


@pytest.mark.parametrize("source", SOURCES)
def test_covariates_are_read_from(source, tmp_path):
    path, how = source(tmp_path)
    with pytest.warns(Note, match=TOLD):
        bags = read_bags(path, covariates=("age", "sex"), **how)
    assert bags.covariates.values() == KNOWN
    assert bags.instance_shape == (2,)
    np.testing.assert_array_equal(bags[2], make_bags()[2])
    # To score bags nothing is told, and labels need not be there.
    how |= {"features": ("x", "y")} if source is instance_table else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "left out a column that training did not use: age")
        unlabeled = read_bags(path, covariates=("sex",), require_labels=False, bad_labels="ignore", **how)
    assert unlabeled.covariates.values() == {"sex": KNOWN["sex"]}


@pytest.mark.filterwarnings("ignore:(covariates|sites|the covariates):UserWarning")
@pytest.mark.parametrize("source", SOURCES)
def test_the_site_is_read_as_a_covariate_and_is_none(source, tmp_path):
    path, how = source(tmp_path)
    with pytest.warns(Note, match=r"sites: 2 in the column sex \(f, m\)"):
        bags = read_bags(path, site_column="sex", covariates=("age",), **how)
    assert bags.sites.tolist() == ["f", "m", "f", "", "m", "f"]
    assert bags.covariates.values() == {"age": KNOWN["age"]}
    assert bags.instance_shape == (2,)
    both = read_bags(path, site_column="sex", covariates=("age", "sex"), **how)
    assert (both.sites.tolist(), both.covariates.values()) == (bags.sites.tolist(), KNOWN)
    if source is not instance_table:
        alone = read_bags(path, site_column="sex", **how)
        assert (alone.sites.tolist(), alone.covariates) == (bags.sites.tolist(), None)
    with pytest.raises(BagDataError, match="column 'place' of `site_column`"):
        read_bags(path, site_column="place", **how)


@pytest.mark.parametrize("labeled", [True, False])
@pytest.mark.parametrize("source", [name for name in SOURCES if name is not store_with_other_labels])
def test_a_column_that_is_missing_is_refused_with_its_name(source, labeled, tmp_path):
    path, how = source(tmp_path)
    with pytest.raises(BagDataError, match="column 'weight' of `covariates`"):
        read_bags(path, covariates=("age", "weight"), require_labels=labeled, **how)


@pytest.mark.parametrize("labeled", [True, False])
def test_a_folder_without_a_table_has_no_covariates(labeled, tmp_path):
    with pytest.raises(ConfigError, match="Expected `labels` with"):
        read_bags(feature_files(tmp_path), covariates=("age",), require_labels=labeled)


def test_a_data_frame_has_covariates():
    frame = pd.DataFrame({"bag": list("aabc"), "label": [1, 1, 0, 1], "x": [1.0, 2, 3, 4], "age": [60, 60, np.nan, 71]})
    with pytest.warns(Note, match=r"covariates: age \(number, 1 missing\)"):
        bags = Bags.from_dataframe(frame, covariates=["age"])
    assert bags.covariates.values() == {"age": [60.0, None, 71.0]}
    assert bags.feature_names == ("x",)


def test_a_covariate_must_be_the_same_in_all_of_a_bag(tmp_path):
    (tmp_path / "a.csv").write_text("bag,label,x,age\na,1,1,60\na,1,2,61\nb,0,3,50\n")
    with pytest.raises(BagDataError, match="Expected one age in a bag, got 60 and 61"):
        read_bags(tmp_path / "a.csv", covariates=("age",))


def test_a_covariate_may_be_given_in_any_row_of_a_bag(tmp_path):
    (tmp_path / "a.csv").write_text("bag,label,x,age\na,1,1,\na,1,2,61\nb,0,3,50\nc,0,4,\n")
    with pytest.warns(Note, match="covariates: age"):
        bags = read_bags(tmp_path / "a.csv", covariates=("age",))
    assert bags.covariates.values() == {"age": [61.0, 50.0, None]}


def test_a_group_that_is_a_covariate_too_may_not_be_missing(tmp_path):
    (tmp_path / "a.csv").write_text("bag,label,x,site\na,1,1,p\nb,0,2,\nc,1,3,q\n")
    with pytest.raises(BagDataError, match=r"a site in each row, got none .*line 3, .*bag b"):
        read_bags(tmp_path / "a.csv", covariates=("site",), groups="site")


def test_a_patient_of_several_files_has_the_covariate_of_any(tmp_path):
    folder = feature_files(tmp_path)
    rows = {"slide": [f"s{i}" for i in range(6)], "patient": list("ppqqrr"), "label": [1, 1, 0, 0, 1, 1]}
    table = tmp_path / "t.csv"
    table.write_text(pd.DataFrame({**rows, "age": [None, 60, 50, 50, None, None]}).to_csv(index=False))
    with pytest.warns(Note, match="covariates: age"):
        bags = read_bags(folder, labels=table, bag_by="patient", covariates=("age",))
    assert bags.covariates.values() == {"age": [60.0, 50.0, None]}
    table.write_text(pd.DataFrame({**rows, "age": [59, 60, 50, 50, None, None]}).to_csv(index=False))
    with pytest.raises(BagDataError, match=r"one age in a bag, got 59.* and 60.*line 3, .*bag p"):
        read_bags(folder, labels=table, bag_by="patient", covariates=("age",))


def test_covariates_of_a_store_are_used_where_they_are_named(tmp_path):
    path, _ = store(tmp_path)
    opened = open_store(path)
    assert opened.covariates.values() == KNOWN
    assert opened.fingerprint() == make_bags().fingerprint()
    with pytest.warns(Note, match="the covariates age, sex are not used: name them with `covariates`"):
        assert read_bags(path).covariates is None


def test_a_covariate_of_an_npz_must_have_a_name_of_its_own(tmp_path):
    with pytest.raises(BagDataError, match="not named as keys of bags, got 'group'"):
        write_npz(make_bags({"group": [1, 2, 3, 4, 5, 6]}), tmp_path / "bags.npz")
