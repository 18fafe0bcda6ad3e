"""What X, y and groups may be, features by name, and scikit-learn's searches over all forms of input."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from joblib import dump, load
from sklearn import config_context
from sklearn.inspection import permutation_importance
from sklearn.metrics import accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from midam import Bags, MIDAMClassifier
from midam.errors import BagDataError
from midam.sklearn import MIDAMRanker
from midam.sklearn.inputs import bags_of, per_bag, warn_of_groups_for_bags

# A few epochs on few bags may rank the held-out bags worse than chance; that is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")

NAMES = ["area", "edge", "tone"]
N, PER_BAG = 36, 4


@pytest.fixture(scope="module")
def stack():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, PER_BAG, len(NAMES))), np.arange(N) % 2
    X[y == 1, 0] += [2.0, 0.0, -1.0]  # one witness a bag
    return X, y


def frame_of(X: np.ndarray, names: list[str] = NAMES) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([[f"bag{i:02}" for i in range(len(X))], range(X.shape[1])])
    return pd.DataFrame(X.reshape(-1, X.shape[2]), index=index, columns=names)


def small(**settings: object) -> MIDAMClassifier:
    usual = {"epochs": 2, "members": 1, "threads": 1, "num_instances": 2, "num_positive": 4, "num_negative": 4}
    return MIDAMClassifier(**{**usual, **settings})


FORMS = {
    "list": list,
    "tuple": tuple,
    "object array": lambda X: np.array([*X, None], dtype=object)[:-1],
    "tensors": lambda X: [torch.from_numpy(x) for x in X],
    "nested lists": lambda X: X.tolist(),
    "stack": lambda X: X,
    "frame": frame_of,
    "frames": lambda X: [pd.DataFrame(x, columns=NAMES) for x in X],
    "bags": lambda X: Bags.from_list(list(X)),
    "bags of a frame": lambda X: Bags.from_dataframe(frame_of(X)),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_the_same_bags(form, stack):
    X, y = stack
    expected = small().fit(X, y)
    fitted = small().fit(FORMS[form](X), y)
    assert np.array_equal(fitted.bag_scores(FORMS[form](X)), expected.bag_scores(X))
    assert fitted.n_features_in_ == 3
    named = "frame" in form
    assert hasattr(fitted, "feature_names_in_") == named
    assert not named or fitted.feature_names_in_.tolist() == NAMES


def test_one_bag_is_not_taken_for_many(stack):
    X, y = stack
    fitted = small().fit(X, y)
    assert fitted.predict([X[0]]).shape == (1,)
    with pytest.raises(BagDataError, match=r"as a list of one array, \[X\]"):
        fitted.predict(X[0])


def test_bags_of_other_sizes_and_shapes(stack):
    X, y = stack
    ragged = [x[: 1 + i % 4] for i, x in enumerate(X)]
    assert small().fit(ragged, y).predict(ragged).shape == (N,)
    images = np.random.default_rng(0).normal(size=(12, 2, 1, 8, 8)).astype(np.float32)
    fitted = small(epochs=1).fit(images, [0, 1] * 6)
    assert (fitted.instance_shape_, fitted.n_features_in_) == ((1, 8, 8), 64)
    assert fitted.settings_.model.encoder == "resnet20"


def test_rows_are_bags_of_one_instance(stack):
    X, y = stack
    rows = X[:, 0]
    expected = small(num_instances=1).fit(X[:, :1], y).bag_scores(X[:, :1])
    assert np.array_equal(small(num_instances=1).fit(rows, y).bag_scores(rows.tolist()), expected)
    frame = pd.DataFrame(rows, columns=NAMES)
    fitted = small(num_instances=1).fit(frame, y)
    assert np.array_equal(fitted.bag_scores(frame[NAMES[::-1]]), expected)
    for what in (frame.assign(bag=0), frame.assign(label=y), frame.set_axis([0] * N, axis=0)):
        with pytest.raises(BagDataError, match="MultiIndex"):
            fitted.fit(what, y)


@pytest.mark.filterwarnings("ignore:left out a column that fit did not use")
@pytest.mark.parametrize("form", ["frame", "frames", "bags of a frame"])
def test_features_are_matched_by_name(form, stack):
    X, y = stack
    make = FORMS[form]
    fitted = small().fit(make(X), y)
    expected = fitted.bag_scores(make(X))
    if form == "frames":
        other = [part[NAMES[::-1]].assign(label="x") for part in make(X)]
        other[3] = other[3][["label", *NAMES]]
        less = [part.drop(columns="edge") for part in make(X)]
        fewer = [*make(X)[:-1], less[-1]]
        with pytest.raises(BagDataError, match=r"got no 'edge' \(1 of 3 missing, in bag 35"):
            fitted.bag_scores(fewer)
        with pytest.raises(BagDataError, match=r"same columns in all bags, got 'edge' only in some \(bag 35"):
            small().fit(fewer, y)
    else:
        frame = frame_of(X)
        other, less = frame[NAMES[::-1]].assign(label="x"), frame.drop(columns="edge")
        if form == "bags of a frame":
            other, less = Bags.from_dataframe(other.assign(label=1, extra=9.0)), Bags.from_dataframe(less)
            np.testing.assert_allclose(fitted.bag_scores(other.subset([5, 2])), expected[[5, 2]], rtol=1e-5)
    assert np.array_equal(fitted.bag_scores(other), expected)
    with pytest.raises(BagDataError, match=r"features of fit, got no 'edge' \(1 of 3 missing"):
        fitted.bag_scores(less)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        fitted.bag_scores(X)
    with pytest.warns(UserWarning, match="X has feature names, but MIDAMClassifier was fitted without"):
        small().fit(X, y).bag_scores(make(X))


def test_labels_and_groups_of_a_frame_come_in_order_or_by_name(stack):
    X, y = stack
    frame = frame_of(X)
    expected = small().fit(X, y, groups=y + 2 * (np.arange(N) // 6)).bag_scores(X)
    names = [f"bag{i:02}" for i in range(N)]
    labels = pd.Series(y, index=names).sample(frac=1, random_state=0)
    groups = pd.Series(y + 2 * (np.arange(N) // 6), index=names).sample(frac=1, random_state=1)
    assert np.array_equal(small().fit(frame, labels, groups=groups).bag_scores(frame), expected)
    unnamed = pd.Series(y)
    assert np.array_equal(small().fit(frame, unnamed, groups=groups).bag_scores(frame), expected)
    # Labels of the rows.
    for rows in (np.repeat(y, PER_BAG), pd.Series(np.repeat(y, PER_BAG), index=frame.index)):
        assert np.array_equal(small().fit(frame, rows, groups=groups).bag_scores(frame), expected)
    mixed = np.repeat(y, PER_BAG)
    mixed[-1] = 1 - mixed[-1]
    with pytest.raises(BagDataError, match=r"one label in a bag, got several \(bag bag35"):
        small().fit(frame, mixed)
    with pytest.raises(BagDataError, match="with the index of X"):
        small().fit(frame, pd.Series(np.repeat(y, PER_BAG)))
    with pytest.raises(BagDataError, match="Series whose index"):
        small().fit(frame, pd.Series(y, index=[*names[:-1], "bag99"]))


def test_labels_are_matched_by_names_that_look_the_same():
    parts = {number: pd.DataFrame({"a": [1.0, 2.0]}) for number in (3, 1, 2)}
    of_numbers, of_texts = pd.concat(parts), pd.concat({f"{number} ": part for number, part in parts.items()})
    for frame in (of_numbers, of_texts):
        for index in ([1, 2, 3], ["1", "2", "3"], [1.0, 2.0, 3.0]):
            assert per_bag(pd.Series([10, 20, 30], index=index), frame, "label").tolist() == [30, 10, 20]
            assert per_bag(pd.DataFrame({"t": [10, 20, 30]}, index=index), frame, "label")["t"].tolist() == [30, 10, 20]
        with pytest.raises(BagDataError, match="Series whose index does not match"):
            per_bag(pd.Series([10, 20, 30], index=["x", "y", "z"]), frame, "label")
    assert per_bag(pd.Series([10, 20, 30]), of_texts, "label").tolist() == [10, 20, 30]
    single = of_numbers.groupby(level=0, sort=False).head(1)  # as many rows as bags
    assert per_bag(pd.Series([10, 20, 30], index=single.index), single, "label").tolist() == [10, 20, 30]
    with pytest.raises(BagDataError, match="with the index of X"):
        per_bag(pd.Series([10, 20, 30], index=single.sort_index().index), single, "label")


def test_labels_are_matched_by_the_names_of_bags(stack):
    X, y = stack
    names = [f"bag{i:02}" for i in range(N)]
    bags, labels = Bags.from_list(list(X), ids=names), pd.Series(y, index=names).sample(frac=1, random_state=0)
    expected = small().fit(X, y, groups=y + 2 * (np.arange(N) // 6)).bag_scores(X)
    groups = pd.Series(y + 2 * (np.arange(N) // 6), index=names).sample(frac=1, random_state=1)
    found = small().fit(bags, labels, groups=groups)
    assert np.array_equal(found.bag_scores(bags), expected)
    assert found.score(bags, labels) == found.score(X, y)
    weights = pd.Series(1.0 + np.arange(N), index=names)
    assert found.score(bags, labels, weights[::-1]) == found.score(X, y, 1.0 + np.arange(N))
    for other in (labels.rename({"bag03": "bag99"}), pd.concat([labels, pd.Series([1], index=["bag99"])])):
        with pytest.raises(BagDataError, match="Series whose index does not match"):
            small().fit(bags, other)
    # Another key, and numbers, which may be positions, are no names.
    for plain in (
        pd.Series(y, index=[f"row{i}" for i in range(N)]),
        pd.Series(y),
        pd.Series(y, index=np.arange(N)[::-1]),
    ):
        for unnamed in (bags, Bags.from_list(list(X))):
            assert np.array_equal(per_bag(plain, unnamed, "label"), y)
    # Texts are names, and so are numbers of bags that are not in the order of their numbers.
    numbered = Bags.from_list(list(X))
    assert np.array_equal(per_bag(pd.Series(y, index=numbered.ids)[::-1], numbered, "label"), y)
    order = np.random.default_rng(0).permutation(N)
    table = pd.DataFrame({"scan": order, "y": y[order]})
    shuffled = numbered.replace(ids=order)
    assert np.array_equal(per_bag(table.groupby("scan")["y"].first(), shuffled, "label"), y[order])
    by_name = table.set_index("scan")["y"].sort_index()
    by_name.index = pd.RangeIndex(N, name="scan")  # as pandas sorts 2, 1, 0
    frame = pd.concat({number: pd.DataFrame(X[number]) for number in order})
    for given in (shuffled, frame):
        assert np.array_equal(per_bag(by_name, given, "label"), y[order])
        with pytest.raises(BagDataError, match="index of positions or of names, got 0 to 35"):
            per_bag(table["y"], given, "label")
    # Numbers of patients are names, even if one of them could be a position.
    three = bags.subset(range(3)).replace(ids=["30", "1", "20"])
    for index in (["1", "20", "30"], [1, 20, 30]):
        assert per_bag(pd.Series([1, 2, 3], index=index), three, "label").tolist() == [3, 1, 2]
    assert np.array_equal(per_bag(pd.Series([1, 2, 3]), three, "label"), [1, 2, 3])


@pytest.mark.parametrize(
    ("X", "text"),
    [
        ("bags.csv", "read files with midam.read_bags"),
        (None, "Expected bags, got NoneType"),
        ({"a": [[1.0]]}, "Expected bags, got dict"),
        ([[[1.0, 2.0]], [[1.0]]], "Expected instances of shape"),
        ([[[1.0, 2.0], [3.0]]], r"one width, got several widths \(bag 0"),
        ([np.array([[1.0, np.nan]])], "finite numbers, got nan at instance 0, column 1"),
        (np.full((2, 2, 2), np.inf), "finite numbers, got inf"),
        (np.zeros((2, 0, 2)), "at least one instance"),
        ([], "0 sample"),
        ([np.array([["a"]])], "real numbers"),
        (np.array([["a", "b"]]), "could not convert|real numbers|numeric"),
        ([scipy.sparse.eye(3)], "dense bags"),
        (scipy.sparse.eye(3), "dense data is required"),
        (frame_of(np.zeros((2, 2, 3)), ["a", "b", "a"]), "unique names of columns, got 'a'"),
        (frame_of(np.zeros((2, 2, 3))).assign(site="5%"), "numbers in column site"),
        (pd.concat({"p": frame_of(np.zeros((2, 2, 3)))}), "index of two levels, bag and instance, got 3"),
        (
            frame_of(np.zeros((2, 2, 3))).rename_axis(["bag", "cell"]).swaplevel(),
            "index of two levels, bag and instance, got 2: cell, bag",
        ),
        ([pd.DataFrame({"a": [1.0]}), np.zeros((1, 1))], r"only DataFrames, got ndarray \(bag 1"),
    ],
)
def test_what_are_no_bags_is_refused(X, text):
    with pytest.raises((BagDataError, ValueError, TypeError), match=text):
        bags_of(X, estimator=small())


# Each value once.
GRID = [
    {"lr": [0.01], "num_instances": [1], "pooling": ["mean"]},
    {"lr": [0.1], "num_instances": [2], "pooling": ["attention"]},
]


@pytest.mark.parametrize("form", ["list", "stack", "frames", "bags", "bags of a frame"])
def test_a_grid_over_settings_on_any_form(form, stack):
    X, y = stack
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(small(epochs=1), GRID, cv=folds, scoring="roc_auc", error_score="raise")
    search.fit(FORMS[form](X), np.array(["no", "yes"])[y])
    assert len(search.cv_results_["params"]) == 2
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert set(search.predict(FORMS[form](X)[:3])) <= {"no", "yes"}
    assert {name: search.best_estimator_.get_params()[name] for name in GRID[0]} == search.best_params_
    assert hasattr(search.best_estimator_, "feature_names_in_") == ("frame" in form)


def test_a_grid_on_the_rows_of_a_frame(stack):
    X, y = stack
    frame = frame_of(X)
    rows, bags = pd.Series(np.repeat(y, PER_BAG), index=frame.index), frame.index.get_level_values(0)
    search = GridSearchCV(small(epochs=1), GRID, cv=StratifiedGroupKFold(2), error_score="raise")
    search.fit(frame, rows, groups=bags)
    assert 0 <= search.best_score_ <= 1
    assert search.score(frame, rows) == accuracy_score(y, search.predict(frame))


def test_bags_keep_what_they_know_in_splits(stack):
    X, y = stack
    bags = Bags.from_dataframe(frame_of(X)).replace(groups=np.arange(N) // 2)
    train, test, _, _ = train_test_split(bags, y, stratify=y, random_state=0)
    assert isinstance(train, Bags)
    assert (len(train), len(test)) == (27, 9)
    assert test.feature_names == tuple(NAMES)
    assert set(train.ids) | set(test.ids) == set(bags.ids)
    assert bags[1:3].ids.tolist() == bags[[1, 2]].ids.tolist() == ["bag01", "bag02"]
    assert bags[np.arange(N) == 3].ids.tolist() == ["bag03"]
    assert np.array_equal(bags[3], X[3])


def test_groups_are_routed_to_the_held_out_bags(stack):
    X, y = stack
    groups = np.arange(N) // 3
    with config_context(enable_metadata_routing=True):
        classifier = small(epochs=1).set_fit_request(groups=True)
        areas = cross_val_score(
            classifier, X, y, cv=GroupKFold(2), params={"groups": groups}, scoring="roc_auc", error_score="raise"
        )
        model = Pipeline([("same", FunctionTransformer()), ("midam", classifier)])
        with pytest.raises(BagDataError, match="groups"):
            model.fit(X, y, groups=np.zeros(N))
    assert areas.shape == (2,)
    assert small(epochs=1).fit(X, y, groups=groups).score(X, y) >= 0


@pytest.mark.long  # two processes import torch
def test_predictions_across_folds_and_workers(stack, tmp_path):
    X, y = stack
    found = cross_val_predict(small(), X, y, cv=3, method="predict_proba", n_jobs=2)
    assert found.shape == (N, 2)
    fitted = small().fit(X, y)
    dump(fitted, tmp_path / "model.joblib")
    assert np.array_equal(load(tmp_path / "model.joblib").bag_scores(X), fitted.bag_scores(X))


def test_more_than_two_classes_by_one_against_the_rest(stack):
    X, _ = stack
    y = np.array(["a", "b", "c"])[np.arange(N) % 3]
    model = OneVsRestClassifier(small(epochs=1)).fit(X, y)
    assert model.predict_proba(X).shape == (N, 3)
    assert set(model.predict(X)) <= {"a", "b", "c"}


def test_frames_of_numbers_beside_truth_values_are_numbers():
    frame = pd.DataFrame({"a": [1.5, 2.0], "b": [True, False], "c": pd.array([1, 2], dtype="Int64")})
    found = bags_of([frame, frame[:1]], estimator=None)
    assert found[0].tolist() == [[1.5, 1.0, 1.0], [2.0, 0.0, 2.0]]
    assert found.feature_names == ("a", "b", "c")


def test_rows_whose_groups_look_like_bags_are_warned_of(recwarn):
    rows, groups = np.random.default_rng(0).normal(size=(40, 3)), [f"scan-{i // 4}" for i in range(40)]
    flat, frame = bags_of(rows, estimator=None), pd.DataFrame(rows)
    alike = flat.replace(labels=np.repeat([0, 1] * 5, 4), groups=groups)
    for others in (alike.replace(labels=np.arange(40) % 2), alike.replace(groups=None), alike.replace(source="a file")):
        warn_of_groups_for_bags(others)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="each of the 40 rows of X is read as a bag of one instance"):
        MIDAMClassifier(epochs=1, members=1).fit(frame, alike.labels, groups=pd.Series(groups))


def test_masked_entries_and_foreign_byte_orders_never_change_numbers():
    """Files of FITS and Stata give big-endian columns, which pandas cannot compare."""
    hidden = np.ma.masked_greater(np.ones((4, 2, 1)) * np.arange(4)[:, None, None], 2)
    y = np.array([0, 1, 0, 1])
    for X, labels in ((hidden, y), (list(hidden), y), (hidden[:, 0], y), (hidden.data, np.ma.masked_equal(y, 1))):
        with pytest.raises(BagDataError, match="Expected no masked entries"):
            MIDAMClassifier(epochs=1, members=1).fit(X, labels)
    frame = pd.DataFrame({"bag": [1, 1, 2], "label": [0, 0, 1], "a": [1.5, 2.5, 3.5]})
    order = {"bag": ">i4", "label": ">i2", "a": ">f8"}
    swapped = pd.DataFrame({name: frame[name].to_numpy().astype(order[name]) for name in frame})
    one, other = (Bags.from_dataframe(table) for table in (frame, swapped))
    assert np.array_equal(one.instances, other.instances)
    assert (one.ids.tolist(), one.labels.tolist()) == (other.ids.tolist(), other.labels.tolist())


def test_lists_in_the_fields_of_a_frame_are_named():
    frame = pd.DataFrame({"bag": ["a", "b"], "label": [0, 1], "x": [1.0, 2.0], "vector": [[1.0], [2.0]]})
    with pytest.raises(BagDataError, match=r"got list .in a DataFrame, row 1, column vector.; write a column for each"):
        Bags.from_dataframe(frame)
    assert Bags.from_dataframe(frame, ignore=["vector"]).feature_names == ("x",)


def test_a_column_of_text_is_named(stack):
    _, y = stack
    frame = pd.DataFrame({"scan": [f"p{i}" for i in range(N)], "area": np.arange(float(N))})
    with pytest.raises(BagDataError, match=r"got text in scan .*bag_column='scan'"):
        small().fit(frame, y)


def test_bags_are_no_array(stack):
    X, y = stack
    bags = Bags.from_list(list(X), y)
    with pytest.raises(TypeError, match=r"take bags.i. or bags.instances"):
        permutation_importance(small().fit(bags), bags, y)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("estimator", [MIDAMClassifier, MIDAMRanker])
def test_labels_that_are_no_numbers_are_refused_in_our_words(estimator, value):
    with pytest.raises(BagDataError, match=r"^Expected a label for each bag, got none for some: .* y contains"):
        estimator().fit([np.zeros((2, 1))] * 4, np.array([0, 1, 0, value]))


@pytest.mark.parametrize("estimator", [MIDAMClassifier, MIDAMRanker])
def test_a_frame_without_bags_says_how_rows_become_bags(estimator):
    frame = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0)})
    with pytest.raises(BagDataError, match=r"Each row of X is a bag.*MultiIndex"):
        estimator().fit(frame, [0, 1, 0])


def test_bags_of_patients_of_the_training_are_named_when_they_are_scored(stack):
    X, y = stack
    bags = Bags.from_list(list(X), labels=y, ids=[f"bag{i:02}" for i in range(N)])
    bags = bags.replace(groups=[f"patient{i // 2}" for i in range(N)])
    model = small().fit(bags[: N - 3])
    model.predict(bags[: N - 3])  # the bags of the training are no test anyway
    model.predict(bags[N - 2 :])
    with pytest.warns(UserWarning, match="1 of 3 bags are of groups of the training"):
        model.score(bags[N - 3 :], y[N - 3 :])


def test_rows_are_matched_with_the_index_of_labels():
    rows = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=["x", "y", "z"])
    assert per_bag(pd.Series([30, 10, 20], index=["z", "x", "y"]), rows, "label").tolist() == [10, 20, 30]
    for index in (["p", "q", "r"], [0, 1, 2], [7, 8, 9]):
        assert np.asarray(per_bag(pd.Series([10, 20, 30], index=index), rows, "label")).tolist() == [10, 20, 30]
    with pytest.raises(BagDataError, match="Series whose index does not match"):
        per_bag(pd.Series([10, 20, 30], index=["x", "y", "other"]), rows, "label")
    numbered = rows.set_axis([2, 0, 1])  # perhaps positions of other rows
    assert per_bag(pd.Series([10, 20, 30], index=[0, 1, 2]), numbered, "label").tolist() == [10, 20, 30]
