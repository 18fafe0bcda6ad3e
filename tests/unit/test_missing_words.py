"""Words such as None and NA in a column of labels: no label, unless they are named as a class; never a silent 0."""

import warnings

import numpy as np
import pandas as pd
import pytest

from midam import BagDataError, read_bags
from midam.data.sources.instance_table import bags_of_frame

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
        frame.to_parquet(path)
    elif suffix == "xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix.startswith("tsv") else ",")
    return (folder / "f", path) if shape == "labels" else (path, None)


TABLES = ["table.csv", "table.tsv", "table.csv.gz", "table.xlsx", "table.parquet"]
NAMES = ["labels.csv", "labels.tsv", "labels.xlsx", "manifest.csv", "manifest.tsv", "manifest.xlsx"]


@pytest.fixture(params=[*TABLES, *NAMES, "frame"])
def read(request, tmp_path):
    def call(frame, **how):
        if request.param == "frame":
            known = {name: tuple(value) if isinstance(value, list) else value for name, value in how.items()}
            return bags_of_frame(frame, "a frame", bag_column="bag", label_column="label", **known)
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


@pytest.mark.parametrize("word", WORDS)
def test_a_word_for_none_is_named_with_the_remedy(read, word):
    message = message_of(read, frame_of(word), positive="I")
    assert f"'{word}' in 8 rows of column label stands for no label" in message
    assert "if it is a class, rename it, or name it with `positive` or among `grades`" in message


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_is_named_is_a_class(read, word):
    bags = read(frame_of(word), grades=["I", "II", word])
    assert bags.outcome.names == ("I", "II", word)
    assert dict(zip(bags.ids, bags.outcome.values[:, 0])) == {f"b{i}": i % 3 for i in range(24)}


def test_a_word_that_is_positive_is_a_class(read):
    bags = read(frame_of("None"), positive="None")
    assert dict(zip(bags.ids, bags.labels)) == {f"b{i}": int(i % 3 == 2) for i in range(24)}


def test_an_empty_cell_is_missing_and_has_the_old_advice(read):
    message = message_of(read, frame_of(None), positive="I")
    assert "stands for" not in message


@pytest.mark.parametrize("word", ["none", "na"])
def test_words_in_small_letters_are_classes(read, word):
    with pytest.warns(UserWarning, match="the target is multiclass"):
        assert read(frame_of(word)).outcome.names == tuple(sorted(["I", "II", word], key=str.casefold))


@pytest.mark.parametrize("value", ["1e300", "-1e300", "inf", "4e38", "1e-300"])
@pytest.mark.parametrize("target", ["continuous", "survival"])
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
