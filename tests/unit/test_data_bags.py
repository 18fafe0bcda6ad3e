import copy
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midam.data.bags import Bags, both_classes
from midam.data.covariates import Covariates
from midam.data.sources import read_bags
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, ConfigError, OneClassError


def make(*, scale=1, **changes):
    fields = {
        "labels": [1, 0, 1],
        "ids": ["a", "b", "c"],
        "groups": ["p", "p", "q"],
        "splits": ["train", "val", "test"],
        "coords": [np.zeros((2, 2)), np.ones((1, 2)), np.full((3, 2), 2.0)],
    }
    values = [np.arange(n * 2.0).reshape(n, 2) + 10 * i for i, n in enumerate((2, 1, 3))]
    return Bags.from_list([scale * part for part in values], **{**fields, **changes})


def test_a_bag_is_a_view_of_the_flat_array():
    bags = make()
    assert len(bags) == 3
    assert bags.num_instances == 6
    assert bags.instance_shape == (2,)
    assert np.shares_memory(bags[2], bags.instances)
    np.testing.assert_array_equal(bags[1], [[10.0, 11.0]])
    np.testing.assert_array_equal(bags.starts, [0, 2, 3])


def test_attributes_are_read_only():
    bags = make()
    with pytest.raises(AttributeError, match="labels is read-only"):
        bags.labels = np.zeros(3)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_from_arrays_in_any_order_equals_from_list(sizes, random):
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    random.shuffle(order := list(range(len(numbers))))
    numbers = numbers[order]
    values = np.arange(len(numbers), dtype=np.float32)[:, None]
    bags = Bags.from_arrays(values, numbers, coords=values.copy())
    for i in range(len(sizes)):
        np.testing.assert_array_equal(bags[i], values[numbers == i])
    np.testing.assert_array_equal(bags.coords, bags.instances)


def test_sorted_instances_are_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    bags = Bags.from_arrays(mapped, [0, 0, 1, 1, 1, 2])
    assert bags.instances is mapped
    assert isinstance(bags.subset([1]).instances, np.memmap)
    np.testing.assert_array_equal(bags.gather([[5, 0]]), [[[10.0, 11.0], [0.0, 1.0]]])
    for other in (copy.deepcopy(bags), pickle.loads(pickle.dumps(bags))):
        assert other.fingerprint() == bags.fingerprint()


def test_subset_shares_instances_and_carries_every_field():
    bags = make()
    part = bags.subset([2, 0])
    assert part.instances is bags.instances
    assert part.ids.tolist() == ["c", "a"]
    assert part.labels.tolist() == [1, 1]
    assert part.groups.tolist() == ["q", "p"]
    assert part.splits.tolist() == ["test", "train"]
    np.testing.assert_array_equal(part[0], bags[2])
    np.testing.assert_array_equal(part.coords[part.starts[0]], [2.0, 2.0])
    assert bags.subset(np.array([False, True, False])).ids.tolist() == ["b"]
    for index in (["2", "0"], [0.0, 1.0], np.array([False, True, False], dtype=object)):
        with pytest.raises(BagDataError, match="Expected positions or a mask, got"):
            bags.subset(index)
        with pytest.raises(BagDataError, match="Expected positions or a mask, got"):
            bags[index]
    with pytest.raises(BagDataError, match=r"2 bags of one id .*bag b"):
        bags.subset([1, 1])


def test_where_split():
    bags = make(splits=["test", "train", "test"])
    np.testing.assert_array_equal(bags.where_split("test"), [0, 2])
    assert len(bags.where_split("val")) == 0
    with pytest.raises(BagDataError, match="got 'dev'"):
        bags.where_split("dev")
    with pytest.raises(BagDataError, match="split the bags first"):
        make(splits=None).where_split("test")


def test_copies_and_fingerprints_agree():
    bags = make()
    for other in (copy.deepcopy(bags), pickle.loads(pickle.dumps(bags)), make()):
        assert other.fingerprint() == bags.fingerprint()
        np.testing.assert_array_equal(other[2], bags[2])
    part = bags.subset([2, 0])
    own = Bags.from_list([bags[2], bags[0]], [1, 1], ids=["c", "a"])
    own = own.replace(groups=part.groups, splits=part.splits)
    assert part.fingerprint() == own.fingerprint()
    assert part.fingerprint() != bags.subset([0, 2]).fingerprint()
    for name in ("groups", "splits"):
        assert part.fingerprint() != part.replace(**{name: ["train", "test"]}).fingerprint()
    changed = bags.instances.copy()
    changed[5, 1] += 1
    other = Bags(changed, starts=bags.starts, sizes=bags.sizes, ids=bags.ids, labels=bags.labels)
    assert other.fingerprint() != bags.fingerprint()


def test_classes_have_names():
    bags = Bags.from_list([[[1.0]], [[2.0]], [[3.0]]], labels=["no", "yes", "no"], classes=("no", "yes"))
    assert bags.labels.tolist() == [0, 1, 0]
    assert bags.subset([1, 2]).classes == bags.replace(labels=[1, 1, 0]).classes == ("no", "yes")
    # A number is a label, never a name: the second class of these is 1.
    assert Bags.from_list([[[1.0]], [[2.0]]], [0, 1], classes=np.array([-1, 1])).classes == (-1, 1)


def test_two_classes_may_come_as_an_outcome():
    plain = TargetLabels.of("binary", [0, 1], names=("0", "1"))
    named = TargetLabels.of("binary", [0, 1], names=("no", "yes"))
    bags = Bags.from_list([[[1.0]], [[2.0]]], outcome=plain)
    assert (bags.labels.tolist(), bags.classes, bags.outcome) == ([0, 1], None, None)
    bags = bags.replace(outcome=named)
    assert (bags.labels.tolist(), bags.classes, bags.outcome) == ([0, 1], ("no", "yes"), None)
    times = TargetLabels.of("survival", [[1.0, 0], [2.0, 1]], names=("time", "event"))
    bags = bags.replace(labels=None, outcome=times)
    assert (bags.labels, bags.classes, bags.outcome) == (None, None, times)


def test_a_subset_is_not_checked_again_but_a_replacement_is(monkeypatch):
    bags, checked = make(), []
    monkeypatch.setattr("midam.data.validate.check_layout", lambda *_: checked.append(1))
    assert bags.subset([2, 0]).ids.tolist() == ["c", "a"]
    assert bags.replace(labels=None).labels is None
    assert checked == []
    with pytest.raises(BagDataError, match="one group for each of the 3 bags"):
        bags.replace(groups=["p"])
    with pytest.raises(BagDataError, match="Expected unique bag ids"):
        bags.subset([1, 1])
    with pytest.raises(BagDataError, match="at least one bag"):
        bags.subset([])
    with pytest.raises(TypeError, match="unexpected keyword argument 'label'"):
        bags.replace(label=[1, 0, 1])
    with pytest.raises(TypeError, match=r"Bags\(\) got an unexpected keyword argument 'group'"):
        Bags(bags.instances, sizes=bags.sizes, group=["p"] * 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0, 2, 1]}, "labels 0 or 1, got 2 .in memory, bag b"),
        ({"labels": [0.0, np.nan, 1]}, "got nan .in memory, bag b"),
        ({"labels": [0, 1]}, "one label for each of the 3 bags"),
        ({"labels": ["no", "yes", "no"]}, "got 'no' .in memory, bag a.; name others with `classes"),
        ({"labels": ["no", "yes", "No"], "classes": ("no", "yes")}, "labels 'no' or 'yes', got 'No' .in memory, bag c"),
        ({"labels": [0, 1, 0], "classes": ("no", "no")}, "two names of classes"),
        ({"ids": ["a", "b", "a"]}, "bag a"),
        ({"ids": ["a", "b"]}, "one id for each of the 3 bags"),
        ({"splits": ["train", "dev", "test"]}, "got 'dev' .in memory, bag b"),
        ({"groups": ["p"]}, "one group for each"),
        ({"coords": [np.zeros((1, 2))] * 3}, "one row of coordinates"),
    ],
)
def test_bad_fields_are_named(arguments, message):
    with pytest.raises(BagDataError, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.ones((2, 3)), np.ones((0, 3))], "got none .in memory, bag 1"),
        ([np.ones((2, 3)), np.ones((1, 4))], r"got \(4,\) .in memory, bag 1"),
        ([np.ones(3)], r"got shape \(3,\)"),
        ([np.ones((2, 0))], "Expected instances as an array .instances, features"),
        ([np.array([["x"]])], "real numbers"),
        ([], "at least one bag"),
        ([np.ones((2, 2)), np.array([[1.0, 1.0], [1.0, np.nan]])], "got nan at instance 1, column 1 .*bag 1"),
    ],
)
def test_bad_instances_are_named(arrays, message):
    with pytest.raises(BagDataError, match=message):
        Bags.from_list(arrays)


@pytest.mark.parametrize(
    ("numbers", "labels", "message"),
    [
        ([0, 0, 2], None, "at least one instance.*bag 1"),
        ([0, 0, 2], [0, 1, 1], "at least one instance.*bag 1"),
        ([0, 0, 1], [0, 1, 1], "labels of bags, got one for each instance"),
        ([0, 0, 1], [0, 1, 1, 0], "at least one instance.*bag 2"),
        ([0, 10**15, 1], None, "at least one instance.*bag 2"),
        ([0, -1, 1], None, "from 0, got -1"),
        ([0, 1], None, "one bag number for each instance"),
        ([0, 0.5, 1], None, "whole numbers"),
        ([0, 1, 2], [0, 1], "one label for each of the 3 bags"),
    ],
)
def test_bad_bag_numbers_are_named(numbers, labels, message):
    with pytest.raises(BagDataError, match=message):
        Bags.from_arrays(np.ones((3, 1)), numbers, labels)


def test_bags_stay_inside_the_instances():
    with pytest.raises(BagDataError, match="bag 1"):
        Bags(np.ones((3, 1)), starts=[0, 2], sizes=[2, 2])


def test_finite_scan_crosses_chunks_and_skips_foreign_rows(monkeypatch):
    monkeypatch.setattr("midam.data.validate._CHUNK_BYTES", 32)  # two rows
    values = np.ones((9, 2))
    values[4, 0] = np.inf
    bags = Bags(values, starts=[5, 3, 0], sizes=[4, 2, 3], ids=["x", "y", "z"])
    with pytest.raises(BagDataError, match=r"got inf at instance 1, column 0 .in memory, bag y"):
        bags.check()
    bags.subset([0, 2]).check()
    assert bags.subset([0]).fingerprint() == Bags.from_list([values[5:]], ids=["x"]).fingerprint()


def test_labels_where_they_are_needed():
    with pytest.raises(BagDataError, match="labeled bags"):
        make(labels=None).require_labels()
    both_classes(make())
    with pytest.raises(OneClassError, match="3 positive and 0 negative"):
        both_classes(make(labels=[1, 1, 1]))


@pytest.mark.parametrize("missing", [None, float("nan"), " "])
def test_a_missing_group_is_refused(missing):
    with pytest.raises(BagDataError, match=r"Expected a group for each bag.*bag b"):
        Bags.from_list([[[1.0]], [[2.0]]], ids=["a", "b"], groups=["p", missing])


def table(**columns):
    values = {"bag": ["b", "b", "a"], "label": [1, 1, 0], "area": [1.0, 2.0, 3.0], "tone": [0, 1, 2]}
    return pd.DataFrame({**values, **columns})


def test_a_data_frame_is_read_as_a_table_is():
    frame = table(patient=["p", "p", "q"], x=[5, 6, 7], note=["", "", ""], part=["train", "train", "Valid"])
    kept = frame.copy()
    how = {"groups": "patient", "coords": ["x"], "ignore": ["note"], "split": "part"}
    bags = Bags.from_dataframe(frame, **how)
    assert bags.ids.tolist() == ["b", "a"]
    assert bags.labels.tolist() == [1, 0]
    assert bags.feature_names == ("area", "tone")
    assert bags[0].tolist() == [[1.0, 0.0], [2.0, 1.0]]
    assert (bags.groups.tolist(), bags.splits.tolist(), bags.places(1).tolist()) == (
        ["p", "q"],
        ["train", "val"],
        [[7]],
    )
    assert bags.source == "a DataFrame"
    pd.testing.assert_frame_equal(frame, kept)
    # The index names the bags where no column does.
    indexed = frame.set_index(["bag", "x"])
    twin = Bags.from_dataframe(indexed, groups="patient", ignore=["note", "part"])
    assert twin.ids.tolist() == ["b", "a"]
    assert np.array_equal(twin.instances, bags.instances)
    unlabeled = Bags.from_dataframe(table().drop(columns="label"))
    assert unlabeled.labels is None
    assert Bags.from_dataframe(table().rename(columns={"label": 7}), label_column="7").labels.tolist() == [1, 0]
    assert Bags.from_dataframe(table(label=[True, True, False])).labels.tolist() == [1, 0]
    positional = Bags.from_dataframe(table().rename(columns={"bag": "scan", "label": "sick"}), "scan", "sick")
    assert (positional.ids.tolist(), positional.labels.tolist()) == (["b", "a"], [1, 0])
    for values, positive in ((["normal", "normal", "malignant"], "malignant"), ([2, 2, 1], "1")):
        named = Bags.from_dataframe(table(label=values), positive=positive)
        assert named.labels.tolist() == [0, 1]
        assert named.classes == (str(values[0]), positive)


@pytest.mark.parametrize(
    ("frame", "how", "text"),
    [
        (
            table().drop(columns="bag"),
            {},
            r"column 'bag' or in the first of two levels of the index.*`bag_column='area'`",
        ),
        (table(), {"label_column": "outcome"}, "the column 'outcome' of `label_column`"),
        (table(), {"groups": "patient"}, "the column 'patient' of `groups`"),
        (table(), {"ignore": ["tine"]}, "the column 'tine' of `ignore`.*did you mean 'tone'"),
        (table(area=["1", "2", "x"]), {}, "numbers in column area, got 'x' .in a DataFrame, row 3, column area, bag a"),
        (table(area=[1.0, np.nan, 2.0]), {}, "finite numbers, got nan .in a DataFrame, row 2"),
        (table(label=["A", "A", "B"]), {}, "labels 0 and 1 in column label, got A, B .*`positive='B'`"),
        (table(), {"positive": "yes"}, "the positive value 'yes' in column label, got 0, 1"),
        (table(label=[1, 0, 0]), {}, "one label in a bag, got 1 and 0"),
        (table(bag=["b", None, "a"]), {}, "a bag in each row, got none"),
        (table().set_axis(["bag", "label", "a", "a"], axis=1), {}, "unique names of columns, got 'a'"),
        (table()[["bag", "label"]], {}, "at least one feature column"),
        (table().iloc[:0], {}, "at least one row"),
    ],
)
def test_a_faulty_data_frame_is_refused(frame, how, text):
    with pytest.raises(BagDataError, match=text):
        Bags.from_dataframe(frame, **how)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"bag_column": 0}, "Expected a valid `bag_column`, got 0: .* string"),
        ({"groups": ["site", "patient"]}, r"Expected a valid `groups`, got \['site', 'patient'\]: .* string"),
        ({"categories": "tone"}, "Expected a valid `categories`, got 'tone': .* list"),
    ],
)
def test_a_parameter_of_another_type_is_named(how, text):
    with pytest.raises(ConfigError, match=text):
        Bags.from_dataframe(table(), **how)


def test_masked_entries_are_refused():
    """NumPy reads the numbers behind a mask, where a sensor left -999."""
    hidden = np.ma.masked_equal([[1.0], [-999.0]], -999.0)
    x, four = [np.ones((2, 1))] * 4, np.ma.masked_equal([0, 1, 1, 9], 9)
    told = "Expected no masked entries, got 1"
    with pytest.raises(BagDataError, match=rf"{told} \(bag 3\)"):
        Bags.from_list([*x[:3], hidden], [0, 1, 0, 1])
    for call in (
        lambda: Bags.from_list(x, four),
        lambda: Bags.from_list(x, groups=four),
        lambda: Bags.from_list(x, ids=four),
        lambda: Bags.from_list(x, coords=[*x[:3], hidden]),
        lambda: Bags.from_arrays(hidden, [0, 1], [0, 1]),
        lambda: Bags.from_arrays([[1.0], [2.0]], [0, 1], coords=hidden),
        lambda: Bags(hidden, sizes=[1, 1]),
    ):
        with pytest.raises(BagDataError, match=told):
            call()
    assert Bags.from_list([np.ma.masked_equal(part, -999.0) for part in x], [0, 1, 0, 1])[0].ravel().tolist() == [1, 1]


def test_values_of_bags_are_taken_by_the_names_of_their_index():
    names, order = ["a", "b", "c"], ["c", "a", "b"]
    bags = Bags.from_list([[[1.0]], [[2.0]], [[3.0]]], ids=names)

    def series(*values):
        return pd.Series(values, index=order)

    fields = {"labels": series(1, 0, 1), "groups": series("p3", "p1", "p2"), "weights": series(3.0, 1.0, 2.0)}
    fields |= {"splits": series("test", "train", "val"), "covariates": {"age": series(30.0, 10.0, 20.0)}}
    for found in (bags.replace(**fields), Bags.from_list([[[1.0]], [[2.0]], [[3.0]]], ids=names, **fields)):
        assert (found.labels.tolist(), found.groups.tolist()) == ([0, 1, 1], ["p1", "p2", "p3"])
        assert (found.weights.tolist(), found.splits.tolist()) == ([1.0, 2.0, 3.0], ["train", "val", "test"])
        assert found.covariates.columns[0].tolist() == [10.0, 20.0, 30.0]
    with pytest.raises(BagDataError, match="a group for each of the 3 bags, got a Series whose index does not match"):
        bags.replace(groups=pd.Series(["p", "q", "r"], index=["a", "b", "x"]))
    with pytest.raises(BagDataError, match="a group for each of the 3 bags, got a Series whose index does not match"):
        bags.replace(groups=pd.Series(["p", "q", "r"], index=["C", "A", "B"]))
    rows = pd.DataFrame({"slide": names, "patient": ["p", "q", "r"], "y": [1, 0, 1]}, index=["acc9", "acc8", "acc7"])
    of_table = Bags.from_list([[[1.0]], [[2.0]], [[3.0]]], rows.y, ids=rows.slide, groups=rows.patient)
    assert (of_table.labels.tolist(), of_table.groups.tolist()) == ([1, 0, 1], ["p", "q", "r"])
    # Numbers may be positions, also those of the rows that scikit-learn chose, and name no bags.
    for index in ([2, 0, 1], [0, 1, 2], [0, 3, 7]):
        assert bags.replace(groups=pd.Series(["p", "q", "r"], index=index)).groups.tolist() == ["p", "q", "r"]
    numbered = Bags.from_list([[[1.0]], [[2.0]], [[3.0]]])
    assert numbered.replace(groups=pd.Series(["p", "q", "r"], index=[2, 0, 1])).groups.tolist() == ["p", "q", "r"]


def test_the_level_of_an_index_that_is_named_as_the_bag_column_names_the_bags():
    frame = pd.DataFrame({"label": [1, 1, 0], "x": [1.0, 2.0, 3.0], "cell": [7, 8, 9], "scan": ["s", "s", "t"]})
    for index in (["scan"], ["scan", "cell"], ["cell", "scan"]):
        bags = Bags.from_dataframe(
            frame.set_index(index), bag_column="scan", **({} if "cell" in index else {"ignore": ["cell"]})
        )
        assert (bags.ids.tolist(), bags.labels.tolist(), bags.sizes.tolist()) == (["s", "t"], [1, 0], [2, 1])
    with pytest.raises(BagDataError, match="name the column with `bag_column='x'`"):  # not the label
        Bags.from_dataframe(frame[["label", "x"]])
    with pytest.raises(BagDataError, match="Expected a DataFrame of pandas, got a dict"):
        Bags.from_dataframe(frame.to_dict("list"))


def test_a_frame_of_one_kind_of_numbers_is_read_without_warnings():
    index = pd.MultiIndex.from_arrays([list("aaabbb"), range(6)])
    frame = pd.DataFrame({"x": np.arange(6, dtype=np.float16)}, index=index)
    assert Bags.from_dataframe(frame).instances.dtype == np.float32  # float16 overflows where dates are looked for
    assert Bags.from_dataframe(frame.astype(float)).instances.flags.writeable


def test_columns_of_data_frames_are_matched_by_name():
    frames = [pd.DataFrame({"a": [1.0, 2.0], "b": [10.0, 20.0]}), pd.DataFrame({"b": [30.0], "a": [3.0]})]
    bags = Bags.from_list(frames)
    assert bags.instances.tolist() == [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]
    assert bags.feature_names == Bags.from_arrays(frames[0], [0, 1]).feature_names == ("a", "b")
    assert Bags.from_list([frame.to_numpy() for frame in frames]).feature_names is None
    assert Bags.from_list([pd.DataFrame([[1.0, 2.0]])]).feature_names is None
    with pytest.raises(BagDataError, match="features of the first bag, got no 'b'"):
        Bags.from_list([frames[0], frames[1].rename(columns={"b": "c"})])


def test_rows_and_bags_of_series_in_another_order_are_refused():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=["r1", "r2", "r3"])
    with pytest.raises(BagDataError, match="in one order, got 'r1' and 'r3'"):
        Bags.from_arrays(frame, pd.Series([1, 0, 0], index=["r3", "r1", "r2"]))


def test_a_mask_as_a_series_names_the_bags():
    bags = make()
    mask = pd.Series([True, False, True], index=["c", "b", "a"])
    assert bags[mask].ids.tolist() == bags[mask.astype("boolean")].ids.tolist() == ["a", "c"]
    assert bags[pd.Series([True, False, False], index=["c", "b", "a"])].ids.tolist() == ["c"]
    assert bags[pd.Series([True, False, False])].ids.tolist() == ["a"]
    assert bags[pd.Series([2, 0], index=["b", "a"])].ids.tolist() == ["c", "a"]
    with pytest.raises(BagDataError, match="mask for each of the 3 bags"):
        bags[mask[:2]]
    with pytest.raises(BagDataError, match=r"positions or a mask, got int64 of shape \(1, 2\)"):
        bags[[[0, 1]]]


def test_other_instances_have_other_digests():
    bags = make()
    before, digests = bags.fingerprint(), bags.digests  # which are kept from here on
    changed = bags.replace(instances=bags.instances * 10)
    assert changed.fingerprint() == make(scale=10).fingerprint() != before
    assert bags.replace(sizes=[1, 2, 3], starts=[0, 1, 3]).fingerprint() != before
    assert bags.replace(ids=["x", "y", "z"]).digests is digests
    assert bags.replace(instances=bags.instances.copy(), digests=digests).digests is digests


def test_covariates_of_series_in_another_order_are_refused():
    age, sex = pd.Series([1, 2], index=["a", "b"]), pd.Series(["f", "m"], index=["b", "a"])
    with pytest.raises(BagDataError, match="in one order"):
        Covariates.of({"age": age, "sex": sex})
    with pytest.raises(BagDataError, match="in one order"):
        Bags.from_arrays(age.to_frame("x"), [0, 1], instance_labels=pd.Series([0, 1], index=["b", "a"]))


def test_sites_follow_the_bags_and_count_in_their_fingerprint():
    plain = Bags.from_list([[[float(i)]] for i in range(6)])
    bags = plain.replace(sites=["A", " B ", None, float("nan"), "", 3])
    assert bags.sites.tolist() == ["A", "B", "", "", "", "3"]
    assert bags.subset([5, 0]).sites.tolist() == ["3", "A"]
    assert bags.fingerprint() != plain.fingerprint() == bags.replace(sites=None).fingerprint()
    with pytest.raises(BagDataError, match="site"):
        plain.replace(sites=["A"])


@pytest.mark.parametrize("shape", [(32, 24, 3), (32, 24, 1), (1, 24, 3)])
def test_images_with_their_channels_last_are_named(shape, tmp_path):
    images = [np.arange(2 * np.prod(shape)).reshape(2, *shape) % (99 + i) for i in range(4)]
    with pytest.warns(UserWarning, match=rf"{re.escape(str(shape))} look like images with their channels last"):
        Bags.from_list(images, [0, 1] * 2)
    for i, image in enumerate(images):
        np.save(tmp_path / f"{i}.npy", image[:, 0] if shape[0] == 1 else image)
    with pytest.warns(UserWarning, match=r"move the axis with numpy\.moveaxis"):
        read_bags(tmp_path, require_labels=False)


@pytest.mark.parametrize("shape", [(3, 24, 32), (1, 4, 4), (16, 7, 4), (32, 24), (1, 8, 24, 3)])
def test_no_other_instances_are_taken_for_images_with_channels_last(shape):
    Bags.from_list([np.zeros((2, *shape), np.uint8) + i for i in range(4)], [0, 1] * 2)
