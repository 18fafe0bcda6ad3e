"""Words such as None and NA in a column of labels: no label, unless they are named as a class; never a silent 0."""

import itertools
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from tests.pairs import each

from midam import read_bags, write_store
from midam.data import Bags
from midam.errors import BagDataError

WORDS = ["None", "NA", "N/A", "nan", "NaN", "null"]


def frame_of(word, count=24):
    rng = np.random.default_rng(0)
    rows = [(f"b{i}", ["I", "II", word][i % 3], *rng.normal(size=2).round(3)) for i in range(count)]
    return pd.DataFrame(rows, columns=["bag", "label", "a", "b"])


def write(frame, kind, folder):
    """The same bags as an instance table, or as files with a table of labels or a manifest."""
    shape, _, suffix = kind.partition(".")
    path = folder / f"t.{suffix}"
    if shape != "table":
        (folder / "f").mkdir()
        for bag, *numbers in frame[["bag", "a", "b"]].itertuples(index=False):
            np.save(folder / "f" / f"{bag}.npy", np.array([numbers], np.float32))
        frame = frame.drop(columns=["a", "b"])
    if shape == "manifest":
        frame = frame.assign(path=[f"f/{bag}.npy" for bag in frame["bag"]])
    if suffix == "parquet":
        texts = [name for name in frame if frame[name].map(type).eq(str).any()]  # Parquet has one type a column
        frame.astype(dict.fromkeys(texts, "string")).to_parquet(path)
    elif suffix == "xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix.startswith("tsv") else ",")
    return (folder / "f", path) if shape == "labels" else (path, None)


KINDS = ["table.csv", "table.tsv", "table.xlsx", "table.parquet", "labels.csv", "labels.xlsx", "manifest.csv", "frame"]
FEW = ["table.csv", "labels.xlsx", "frame"]


def with_words(fixture, kinds, words):
    """Each kind of input once, and each word."""
    return pytest.mark.parametrize((fixture, "word"), each(kinds, words), indirect=[fixture])


@pytest.fixture
def read(request, tmp_path):
    def call(frame, **how):
        if request.param == "frame":
            known = {name: tuple(value) if isinstance(value, list) else value for name, value in how.items()}
            return Bags.from_dataframe(frame, source="a frame", **known)
        data, labels = write(frame, request.param, tmp_path)
        return read_bags(data, labels=labels, **how)

    call.leaves_out = request.param.startswith("labels")
    return call


def message_of(read, frame, **how):
    """The message of the refusal, or of the rows that are left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not read.leaves_out:
            with pytest.raises(BagDataError) as error:
                read(frame, **how)
            return str(error.value)
        bags = read(frame, **how)
        assert not any(bag in bags.ids for bag in frame["bag"][2::3])
    return " ".join(str(one.message) for one in caught)


@with_words("read", KINDS, WORDS)
def test_a_word_for_none_is_named_with_the_remedy(read, word):
    message = message_of(read, frame_of(word), positive="I")
    assert f"'{word}' in 8 rows of column label counts as a missing label" in message
    assert "if it is a class, rename it, or name it with `positive` or among `grades`" in message


@with_words("read", KINDS, WORDS)
def test_a_word_that_is_named_is_a_class(read, word):
    bags = read(frame_of(word), grades=["I", "II", word])
    assert bags.outcome.names == ("I", "II", word)
    assert dict(zip(bags.ids, bags.outcome.values[:, 0])) == {f"b{i}": i % 3 for i in range(24)}


@with_words("read", FEW, ["None"])
def test_a_word_that_is_positive_is_a_class(read, word):
    bags = read(frame_of(word), positive=word)
    assert dict(zip(bags.ids, bags.labels)) == {f"b{i}": int(i % 3 == 2) for i in range(24)}


@with_words("read", FEW, [None])
def test_an_empty_cell_is_missing_without_advice_about_words(read, word):
    message = message_of(read, frame_of(word), positive="I")
    assert "counts as" not in message


@with_words("read", FEW, ["none", "na"])
def test_words_in_small_letters_are_classes(read, word):
    with pytest.warns(UserWarning, match="the target is multiclass"):
        assert read(frame_of(word)).outcome.names == tuple(sorted(["I", "II", word], key=str.casefold))


@pytest.mark.parametrize(
    ("read", "target", "value"),
    [
        (KINDS[i % len(KINDS)], target, value)
        for i, (value, target) in enumerate(
            itertools.product(["1e300", "-1e300", "inf", "4e38", "1e-300"], ["continuous", "survival"])
        )
    ],
    indirect=["read"],
)
def test_numbers_beyond_float32_are_refused_at_the_door(read, target, value):
    frame = frame_of("III")
    numbers = [*range(2, 46, 2), 1, 0 if target == "continuous" and value == "1e-300" else value]
    if target == "continuous":
        frame["label"] = numbers
    else:
        frame = frame.drop(columns="label").assign(time=numbers, event=[i % 2 for i in range(24)])
    if 0 in numbers:
        assert len(read(frame.astype({"label": float}), target=target)) == 24
        return
    frame = frame.astype({"label" if target == "continuous" else "time": float})
    with pytest.raises(BagDataError, match=r"Expected .*, got .*\(in .*bag b23\)"):
        read(frame, target=target)


def of_npz(path, frame):
    """The bags of a frame in an npz file, with further columns under their names."""
    arrays = {name: frame[name].to_numpy().astype(str) for name in frame if name not in ("bag", "a", "b")}
    np.savez(path, X=frame[["a", "b"]], bag=np.arange(len(frame)), ids=frame["bag"].to_numpy().astype(str), **arrays)
    return path


COLUMN_KINDS = [*KINDS, "npz", "store"]


@pytest.fixture
def read_columns(request, tmp_path):
    """Bags of a frame with other columns than label, in each format; in a store those of another table."""

    def call(frame, **how):
        if request.param == "frame":
            known = {name: tuple(value) if isinstance(value, list) else value for name, value in how.items()}
            return Bags.from_dataframe(frame, source="a frame", **known)
        if request.param == "npz":
            names = {"label_column", "groups"}
            renamed = frame.rename(columns={how.get("groups"): "group", "label": "y"})
            path = of_npz(tmp_path / "t.npz", renamed)
            return read_bags(path, **{name: value for name, value in how.items() if name not in names})
        if request.param == "store":
            arrays = list(frame[["a", "b"]].to_numpy()[:, None])
            write_store(Bags.from_list(arrays, ids=frame["bag"]), tmp_path / "s.store")
            frame.drop(columns=["a", "b"]).to_csv(tmp_path / "labels.csv", index=False)
            return read_bags(tmp_path / "s.store", labels=tmp_path / "labels.csv", **how)
        data, labels = write(frame, request.param, tmp_path)
        return read_bags(data, labels=labels, **how)

    call.kind = request.param
    return call


def with_columns(count=24, **columns):
    frame = frame_of("III", count).drop(columns="label")
    return frame.assign(**{name: [values[i % len(values)] for i in range(count)] for name, values in columns.items()})


def message_of_all(call):
    """The refusal, or the warnings, as one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except BagDataError as error:
            return str(error)
    return " ".join(str(one.message) for one in caught)


@with_words("read_columns", COLUMN_KINDS, ["None", "NA"])
def test_a_named_word_is_the_event_next_to_a_time(read_columns, word):
    frame = with_columns(time=[3.5, 7, 9], event=["dead", word])
    bags = read_columns(frame, label_column="time,event", target="survival", positive=word)
    assert dict(zip(bags.ids, bags.outcome.values[:, 1])) == {f"b{i}": i % 2 for i in range(24)}


@with_words("read_columns", COLUMN_KINDS, ["None", "NA", None])
def test_a_time_that_is_missing_names_the_bag_and_what_to_write(read_columns, word):
    frame = with_columns(time=[3.5] * 23 + [word], event=[0, 1])
    message = message_of_all(lambda: read_columns(frame, label_column="time,event", target="survival"))
    assert re.search("Expected numbers in (column|key) time, got none", message)
    assert "bag b23" in message
    assert "write the time of the event, or of the last visit if there was no event" in message


@with_words("read_columns", COLUMN_KINDS, ["None", "NA", None])
def test_an_event_that_is_missing_is_no_censored_one(read_columns, word):
    frame = with_columns(time=[3.5, 7, 9], event=["0", "1", word])
    message = message_of_all(lambda: read_columns(frame, label_column="time,event", target="survival"))
    assert "Expected an event of each bag, got none for 8 of 24" in message


@with_words("read_columns", [*KINDS, "store"], ["None", "NA", None])  # of an npz file they are numbers
def test_one_of_several_labels_may_be_missing(read_columns, word):
    frame = with_columns(one=["0", "1"], two=["0", word, "1"])
    bags = read_columns(frame, label_column="one,two", target="multilabel")
    values = dict(zip(bags.ids, bags.outcome.values.tolist()))
    assert [values[f"b{i}"][1] for i in (0, 2)] == [0.0, 1.0]
    assert np.isnan(values["b1"][1])


@with_words("read_columns", COLUMN_KINDS, ["None", "NA", None])
def test_a_group_that_is_missing_ties_no_bags(read_columns, word):
    if read_columns.kind == "npz" and word is None:
        word = "nan"
    frame = with_columns(label=["0", "1"], who=[f"p{i}" for i in range(22)] + [word, word])
    message = message_of_all(lambda: read_columns(frame, groups="who"))
    assert "Expected a who in each row, got none" in message or "Expected a group for each bag, got " in message
    assert "b22" in message or "24" in message  # the line of b22
    if word is not None:
        assert f"'{word}'" in message


@with_words("read_columns", COLUMN_KINDS, ["None", "NA", "null"])
def test_a_word_among_categories_is_missing_and_is_named(read_columns, word):
    frame = with_columns(label=["0", "1"], smoking=["never", "former", word], age=[63, 71.5, word], site=["A", word])
    how = {"covariates": ["smoking", "age"], "site_column": "site"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bags = read_columns(frame, **how)
    said = [str(one.message) for one in caught if "counts as a missing value" in str(one.message)]
    assert [("smoking" in text, "site" in text) for text in said] == [(True, False), (False, True)]
    assert all(f"'{word}'" in text for text in said)
    age, smoking = (bags.covariates.columns[bags.covariates.names.index(name)] for name in ("age", "smoking"))
    assert sorted(set(smoking.tolist())) == ["", "former", "never"]
    assert np.isnan(age).sum() == 8
    if bags.sites is not None:
        assert sorted(set(bags.sites.tolist())) == ["", "A"]
