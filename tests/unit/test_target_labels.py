"""What tables and archives say of bags beyond 0 and 1: which target it is, what is refused, and that it comes back."""

import warnings

import numpy as np
import pandas as pd
import pytest

from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.data.store import open_store, write_store
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, ConfigError, Note
from studies.sets.npz import write_npz

IDS = list("abcdef")


def table(folder, **columns):
    """A CSV of two instances per bag, with one value a bag in each column."""
    path = folder / "bags.csv"
    rows = {"bag": np.repeat(IDS, 2), "x": np.arange(12)}
    rows |= {name: np.repeat(np.array(values, dtype=object), 2) for name, values in columns.items()}
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def read(path, **how):
    """TargetLabels of a file, and the notes that reading it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bags = read_bags(path, **how)
    return bags.outcome, [str(warning.message) for warning in caught]


def test_words_of_more_than_two_classes_are_multiclass_and_say_so(tmp_path):
    outcome, notes = read(table(tmp_path, label=["lung", "skin", "lung", "brain", "skin", "brain"]))
    assert (outcome.target, outcome.names) == ("multiclass", ("brain", "lung", "skin"))
    assert outcome.values[:, 0].tolist() == [1, 2, 1, 0, 2, 0]
    assert any("the target is multiclass" in note and "positive" in note for note in notes)


def test_two_words_stay_binary(tmp_path):
    with pytest.warns(Note, match="yes is positive"):
        bags = read_bags(table(tmp_path, label=["no", "yes"] * 3))
    assert bags.outcome is None
    assert bags.labels.tolist() == [0, 1] * 3


def test_positive_makes_classes_binary(tmp_path):
    bags = read_bags(table(tmp_path, label=["lung", "skin", "lung", "brain", "skin", "brain"]), positive="lung")
    assert bags.labels.tolist() == [1, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("options", [{}, {"target": "survival", "label_column": "time,label"}])
def test_a_word_for_an_unknown_label_among_the_others_than_the_positive_one_is_warned_of(tmp_path, options):
    path = table(tmp_path, label=["yes", "no", "Unknown", "no", "yes", "no"], time=[5, 2, 3, 4, 9, 1])
    with pytest.warns(UserWarning, match="unknown counts as (0|censored) in column label .*leave such bags out"):
        read_bags(path, positive="yes", ignore=[] if options else ["time"], **options)


def test_time_and_event_are_survival(tmp_path):
    outcome, notes = read(table(tmp_path, time=[5, 2.5, 3, 4, 9, 1], event=[1, 0, 1, 1, 0, 0]))
    assert (outcome.target, outcome.names) == ("survival", ("time", "event"))
    assert outcome.values[1].tolist() == [2.5, 0]
    assert any("the target is survival" in note for note in notes)


def test_survival_columns_of_other_names_and_the_event_by_its_value(tmp_path):
    path = table(tmp_path, months=[5, 2, 3, 4, 9, 1], end=["died", "alive", "moved", "died", "alive", "alive"])
    outcome, _ = read(path, target="survival", label_column="months,end", positive="died")
    assert outcome.values[:, 1].tolist() == [1, 0, 0, 1, 0, 0]


def test_several_columns_are_labels_and_may_have_gaps(tmp_path):
    path = table(tmp_path, label_a=[1, 0, 1, 0, 1, 0], label_b=[1, 0, None, 0, 1, 1])
    outcome, _ = read(path, target="multilabel")
    assert outcome.names == ("a", "b")
    np.testing.assert_array_equal(outcome.values[2], [1, np.nan])
    by_name, _ = read(path, label_column="label_b,label_a")
    assert by_name.names == ("b", "a")


def test_grades_have_an_order(tmp_path):
    words = table(tmp_path, label=["low", "high", "mid", "low", "high", "mid"])
    outcome, _ = read(words, target="ordinal", grades=["low", "mid", "high"])
    assert outcome.values[:, 0].tolist() == [0, 2, 1, 0, 2, 1]
    numbers, _ = read(table(tmp_path, label=[10, 9, 2, 10, 9, 2]), target="ordinal")
    assert numbers.names == ("2", "9", "10")


def test_numbers_are_a_quantity_where_they_are_said_to_be(tmp_path):
    outcome, _ = read(table(tmp_path, age=[3.5, 1, 2, 8, -9, 4]), target="continuous", label_column="age")
    assert (outcome.target, outcome.names, outcome.values[4, 0]) == ("continuous", ("age",), -9)


@pytest.mark.parametrize(
    ("columns", "how", "message"),
    [
        ({"label": [1, 2, 3, 1, 2, 3]}, {}, r"got 1, 2, 3 .*another `target`: multiclass, ordinal or continuous"),
        ({"label": ["yes", "no", "maybe"] * 2}, {}, r"got maybe, no, yes .*say which value is positive"),
        ({"label": [f"scan{i}" for i in range(6)]}, {}, r"6 different values for 6 bags.*names the bags"),
        ({"label": ["a", "b", "c"] * 2}, {"target": "ordinal"}, r"Expected `grades` with the words of column"),
        ({"label": ["a", "b", "c"] * 2}, {"target": "ordinal", "grades": ["a", "b"]}, r"grades a, b .*got c"),
        ({"label": ["a", "b", "?"] * 2}, {"target": "continuous"}, r"numbers in column label, got a"),
        ({"label": ["a"] * 6}, {"target": "multiclass"}, r"several classes .*got only a "),
        ({"label": ["a", "b", None] * 2}, {"target": "multiclass"}, r"a label in each row, got none"),
        ({"time": [5, -2, 3, 4, 9, 1], "event": [1, 0] * 3}, {}, r"times above 0.*got -2, 0 .*bag b"),
        ({"time": [5, 2, 3, 4, 9, 1], "event": [1, 2, 0] * 2}, {}, r"events 0 and 1 .*got 0, 1, 2 .*positive"),
        ({"label_a": [1, 0, 2] * 2, "label_b": [1, 0] * 3}, {"target": "multilabel"}, r"0, 1 or nothing .*got 2"),
        ({"label_a": [1, None] * 3, "label_b": [1, None] * 3}, {"target": "multilabel"}, r"one known label .*bag b"),
    ],
)
def test_what_is_in_doubt_or_wrong_is_named(tmp_path, columns, how, message):
    with pytest.raises(BagDataError, match=f"(?s){message}"):
        read(table(tmp_path, **columns), **how)


def test_an_unknown_target_and_columns_of_another_number_are_refused(tmp_path):
    path = table(tmp_path, label=["a", "b", "c"] * 2, x2=[1, 2] * 3)
    with pytest.raises(ConfigError, match="did you mean 'multiclass'"):
        read(path, target="multiclas")
    with pytest.raises(ConfigError, match=r"2 label columns .*`label_column='time,event'`\.$"):
        read(path, target="survival", label_column="label")


def test_the_classes_of_a_run_hold_and_another_one_is_named(tmp_path):
    path = table(tmp_path, label=["lung", "skin", "lung", "brain", "skin", "brain"])
    outcome, _ = read(path, target="multiclass", classes=("skin", "brain", "lung", "eye"))
    assert outcome.names == ("skin", "brain", "lung", "eye")
    assert outcome.values[:, 0].tolist() == [2, 0, 2, 1, 0, 1]
    with pytest.raises(BagDataError, match=r"one of the classes skin, brain .*got lung"):
        read(path, target="multiclass", classes=("skin", "brain"))


@pytest.mark.parametrize(
    "outcome",
    [
        TargetLabels.of("multiclass", [0, 1, 1], names=["a", "b"]),
        TargetLabels.of("multilabel", [[1, 0], [np.nan, 1], [0, 0]], names=["p", "q"]),
        TargetLabels.of("survival", [[1.5, 1], [2, 0], [3, 1]], names=["time", "event"]),
    ],
    ids=lambda outcome: outcome.target,
)
def test_archives_and_stores_keep_the_outcome(tmp_path, outcome):
    bags = Bags.from_list([[[1.0]], [[2.0], [3.0]], [[4.0]]], outcome=outcome)
    write_npz(bags, tmp_path / "bags.npz")
    again = read_bags(tmp_path / "bags.npz", target=outcome.target).outcome
    stored = open_store(write_store(bags, tmp_path / "store")).outcome
    for found in (again, stored):
        assert (found.target, found.names) == (outcome.target, outcome.names)
        np.testing.assert_array_equal(found.values, outcome.values)


def test_an_archive_with_all_labels_gives_those_of_its_target(tmp_path):
    arrays = {
        "X": np.ones((4, 1)),
        "bag": np.arange(4),
        "y": [0, 1, 1, 0],
        "time": [1.5, 2, 3, 4],
        "event": [1, 0, 1, 1],
    }
    np.savez(tmp_path / "d.npz", **arrays)
    assert read_bags(tmp_path / "d.npz").labels.tolist() == [0, 1, 1, 0]
    assert read_bags(tmp_path / "d.npz", target="survival").outcome.values.tolist() == [
        [1.5, 1],
        [2, 0],
        [3, 1],
        [4, 1],
    ]
    np.savez(tmp_path / "d.npz", **{key: np.asarray(value)[:0] for key, value in arrays.items()})
    with pytest.raises(BagDataError, match="at least one bag, got none"):
        read_bags(tmp_path / "d.npz")


def test_label_tables_and_manifests_say_it_too(tmp_path):
    for name in IDS:
        np.save(tmp_path / f"{name}.npy", np.ones((2, 3), dtype=np.float32))
    rows = {"bag": IDS, "time": [5, 2, 3, 4, 9, 1], "event": [1, 0, 1, 1, 0, 0]}
    labels, manifest = tmp_path / "labels.csv", tmp_path / "manifest.csv"
    pd.DataFrame(rows).to_csv(labels, index=False)
    pd.DataFrame({**rows, "path": [f"{name}.npy" for name in IDS]}).to_csv(manifest, index=False)
    for found in (read(tmp_path, labels=labels), read(manifest)):
        assert found[0].target == "survival"
        assert found[0].values[4].tolist() == [9, 0]


def test_the_outcome_follows_the_bags_and_counts_in_their_fingerprint():
    outcome = TargetLabels.of("ordinal", [0, 1, 2], names=["a", "b", "c"])
    bags = Bags.from_list([[[1.0]], [[2.0]], [[3.0]]], outcome=outcome)
    assert bags.subset([2, 0]).outcome.values[:, 0].tolist() == [2, 0]
    other = bags.replace(outcome=TargetLabels.of("ordinal", [0, 2, 1], names=["a", "b", "c"]))
    assert len({bags.fingerprint(), other.fingerprint(), bags.replace(outcome=None).fingerprint()}) == 3
    with pytest.raises(BagDataError, match=r"labels of two classes, got the target 'ordinal' .*, or another method"):
        bags.require_labels()
    with pytest.raises(BagDataError, match="labels or an outcome, got both"):
        bags.replace(labels=[0, 1, 1])


@pytest.mark.parametrize(
    ("columns", "how"),
    [
        ({"label": ["low", "mid", "high"]}, {"grades": ["low", "mid", "high"]}),
        ({"label": [1, 2, 4]}, {"target": "ordinal"}),
        ({"label": [1.5, 2.5, 4.0]}, {"target": "continuous"}),
        ({"label": ["a", "b", "c"]}, {"target": "multiclass", "classes": ("c", "b", "a")}),
        ({"label_x": [0, 1, 1], "label_y": [1, 0, 1]}, {"target": "multilabel"}),
        ({"time": [3.0, 4.0, 5.5], "event": [1, 0, 1]}, {"target": "survival"}),
        ({"label": [0, 1, 1], "site": ["A", "B", "A"]}, {"site_column": "site"}),
    ],
)
@pytest.mark.filterwarnings("ignore::midam.errors.Note")
def test_a_data_frame_takes_what_a_file_takes(tmp_path, columns, how):
    frame = pd.DataFrame({"bag": [f"b{i}" for i in range(30)], "x": np.arange(30.0)})
    frame = frame.assign(**{name: values * 10 for name, values in columns.items()})
    frame.to_csv(tmp_path / "t.csv", index=False)
    of_file, of_frame = read_bags(tmp_path / "t.csv", **how), Bags.from_dataframe(frame, **how)
    assert (of_file.outcome is None) == ("site_column" in how)
    if of_file.outcome is not None:
        assert of_frame.outcome.names == of_file.outcome.names
        np.testing.assert_array_equal(of_frame.outcome.values, of_file.outcome.values)
    if of_file.sites is not None:
        assert of_frame.sites.tolist() == of_file.sites.tolist()


def test_a_data_frame_without_the_labels_of_its_target_is_refused():
    with pytest.raises(BagDataError, match=r"Expected the columns 'time' .* and 'event'"):
        Bags.from_dataframe(pd.DataFrame({"bag": ["a", "b"], "x": [1.0, 2.0]}), target="survival")
