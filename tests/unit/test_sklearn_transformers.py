import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from midam import Bags, BagStatistics, PerInstance
from midam.data.statistics import bag_statistics
from midam.errors import BagDataError, ConfigError
from studies.sets import catalog


@pytest.fixture(scope="module")
def bags():
    return catalog.load("digits").subset(np.arange(120))


def test_statistics_of_bags_are_rows():
    found = BagStatistics(("mean", "median", "size")).fit_transform(
        [[[1.0, 5.0], [2.0, 6.0], [9.0, 7.0]], [[3.0, 4.0]]]
    )
    assert found.tolist() == [[4, 6, 2, 6, 3], [3, 4, 3, 4, 1]]


def test_columns_are_named():
    frames = [pd.DataFrame({"area": [1.0, 3.0], "edge": [0.0, 1.0]}), pd.DataFrame({"edge": [2.0], "area": [5.0]})]
    statistics = BagStatistics(("max", "size")).fit(frames)
    assert statistics.get_feature_names_out().tolist() == ["max_area", "max_edge", "size"]
    assert statistics.transform(frames[1:]).tolist() == [[5, 2, 1]]
    unnamed = BagStatistics().fit([[[1.0, 2.0]]])
    assert unnamed.get_feature_names_out().tolist()[:3] == ["mean_x0", "mean_x1", "min_x0"]
    assert unnamed.get_feature_names_out(["a", "b"]).tolist()[:2] == ["mean_a", "mean_b"]
    for fitted, names in ((unnamed, ["a"]), (statistics, ["edge", "area"])):
        with pytest.raises(ValueError, match="input_features"):
            fitted.get_feature_names_out(names)


@pytest.mark.parametrize("columns", [[0, 1], pd.MultiIndex.from_tuples([("area", "mean"), ("area", "sd")])])
def test_columns_whose_names_are_no_texts_are_no_positions(columns):
    index = pd.MultiIndex.from_product([range(3), range(2)])
    frame = pd.DataFrame(np.arange(12.0).reshape(6, 2), index=index, columns=columns)
    scaled = PerInstance(StandardScaler()).fit(frame)
    assert scaled.transform(frame).columns.tolist() == [str(name) for name in columns]
    with pytest.raises(ValueError, match="same order as they were in fit"):
        scaled.transform(frame[frame.columns[::-1]])
    statistics = BagStatistics().fit(frame)
    pd.testing.assert_frame_equal(statistics.transform(frame), statistics.transform(frame[frame.columns[::-1]]))


def test_rows_of_a_frame_stand_under_its_bags():
    index = pd.MultiIndex.from_product([["b", "a"], range(3)], names=["scan", "slice"])
    frame = pd.DataFrame({"area": np.arange(6.0), "edge": 1.0}, index=index)
    found = BagStatistics(("mean",)).fit(frame).transform(frame)
    expected = pd.DataFrame({"mean_area": [1.0, 4.0], "mean_edge": 1.0}, index=pd.Index(["b", "a"], name="scan"))
    pd.testing.assert_frame_equal(found, expected, check_column_type=False)
    wrapped = BagStatistics(("mean",)).set_output(transform="pandas")
    pd.testing.assert_frame_equal(wrapped.fit_transform(frame), expected, check_column_type=False)
    assert wrapped.transform(Bags.from_dataframe(frame)).columns.tolist() == ["mean_area", "mean_edge"]


def test_any_classifier_of_rows_takes_bags(bags):
    model = make_pipeline(BagStatistics(), StandardScaler(), LogisticRegression(max_iter=500))
    assert cross_val_score(model, bags, bags.labels, cv=3, scoring="roc_auc").mean() > 0.7
    assert np.array_equal(model[0].fit_transform(bags), bag_statistics(bags, np.arange(120)))
    grid = {"bagstatistics__statistics": [("mean",), ("mean", "max")], "logisticregression__C": [0.1, 1.0]}
    search = GridSearchCV(model, grid, cv=3).fit([bags[i] for i in range(120)], bags.labels)
    assert len(search.cv_results_["params"]) == 4
    assert clone(model).get_params()["bagstatistics__statistics"] == ("mean", "min", "max", "std")


@pytest.mark.filterwarnings("ignore::midam.errors.Note")
def test_statistics_take_gaps_categories_and_dates_as_fit_does():
    frame = pd.DataFrame(
        {
            "bag": np.repeat(np.arange(8), 2),
            "size": [1.0, 3.0, np.nan, 5.0] * 4,
            "kind": ["a", "b", "a", "a"] * 4,
            "when": pd.date_range("2024-01-01 06:00", periods=16, freq="5h"),
        }
    )
    train = Bags.from_dataframe(frame, bag_column="bag", impute=True)
    with pytest.raises(BagDataError, match="impute='median'"):
        BagStatistics().fit(train)
    statistics = BagStatistics(("mean",), impute="median").fit(train)
    found = pd.DataFrame(statistics.transform(train), columns=statistics.get_feature_names_out())
    assert found["mean_size"].tolist() == [2.0, 4.0] * 4  # the median of the known sizes is 3
    assert found["mean_kind=a"].tolist() == [0.5, 1.0] * 4
    assert any("when" in name for name in found)
    other = Bags.from_dataframe(frame.iloc[:2, [2, 3, 0, 1]], bag_column="bag", impute=True)
    assert statistics.transform(other).tolist() == found.to_numpy()[:1].tolist()


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="known statistic, got 'men'; did you mean 'mean'"):
        BagStatistics(("men",)).fit_transform([[[1.0]]])
    with pytest.raises(ConfigError, match="at least one statistic"):
        BagStatistics(()).fit_transform([[[1.0]]])
    with pytest.raises(NotFittedError):
        BagStatistics().transform([[[1.0]]])
    with pytest.raises(BagDataError, match=r"X has 1 features, but BagStatistics is expecting 2"):
        BagStatistics().fit([[[1.0, 2.0]]]).transform([[[1.0]]])


def test_names_of_bags_that_look_the_same_are_one_row():
    index = pd.MultiIndex.from_tuples([("x", 0), ("x ", 0), ("z", 0)])
    rows = BagStatistics(("mean",)).fit_transform(pd.DataFrame({"a": [1.0, 3.0, 5.0]}, index=index))
    assert rows["mean_a"].to_dict() == {"x": 2.0, "z": 5.0}


def test_patients_on_both_sides_of_a_split_are_warned_of(bags):
    patients = bags.replace(groups=[f"patient-{i // 2}" for i in range(120)])
    first, second = np.arange(0, 120, 2), np.arange(1, 120, 2)
    statistics = BagStatistics().fit(patients[first])
    statistics.transform(patients[first])  # no warning: the bags of fit
    statistics.transform(bags[second])  # nor for bags without groups
    with pytest.warns(UserWarning, match="60 of 60 bags are of groups of the training"):
        statistics.transform(patients[second])
