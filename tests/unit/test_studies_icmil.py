"""The study of ICMIL's splits: what it reads, and the study itself, small."""

import re

import numpy as np
import pytest

from midam.errors import DataNotFoundError
from studies.engine import Store
from studies.options import StudyOptions
from studies.tabular import icmil


def splits(seed, count=2):
    rng, made = np.random.default_rng(seed), []
    for _ in range(count):
        labels = np.arange(40) % 2
        x = rng.normal(size=(40, 4, 3)) + 2 * labels[:, None, None]
        made.append(
            icmil.split_of({"X_train": x[:30], "y_train": labels[:30], "X_test": x[30:], "y_test": labels[30:]})
        )
    return made


def test_a_split_trains_on_its_training_bags_and_scores_the_others():
    x, labels = np.random.default_rng(0).normal(size=(7, 2, 3)), np.array([0, 1, 1, 0, 1, 0, 1])
    bags, trial = icmil.split_of({"X_train": x[:5], "y_train": labels[:5], "X_test": x[5:], "y_test": labels[5:]})
    assert (trial.train.tolist(), trial.score.tolist()) == ([0, 1, 2, 3, 4], [5, 6])
    assert bags.labels.tolist() == labels.tolist()
    np.testing.assert_array_equal(bags[6], x[6])


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MIDAM_DATA", str(tmp_path))
    with pytest.raises(DataNotFoundError, match=r"andrews_mil_benchmark\.h5 from github\.com/injurise/ICMIL"):
        icmil.read_splits()


@pytest.mark.data
def test_the_splits_are_five_folds_of_each_set(data_root, monkeypatch):
    monkeypatch.setenv("MIDAM_DATA", str(data_root))
    found = icmil.read_splits()
    assert list(found) == list(icmil.SETS)
    for own in found.values():
        assert [(len(bags), len(trial.train), bags.instance_shape) for bags, trial in own] == [(200, 160, (25,))] * 5


@pytest.mark.long
def test_a_small_study_writes_its_page_and_computes_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 5)
    monkeypatch.setattr("midam.methods.baselines._LOGISTIC_C", np.array([1.0]))
    monkeypatch.setattr("midam.methods.baselines._KERNEL_C", np.array([1.0]))
    monkeypatch.setattr("midam.methods.baselines._MAP_GAMMAS", np.ones(1))
    monkeypatch.setattr("midam.methods.auto.candidates._SHARES", (0.02,))
    monkeypatch.setattr("midam.methods.auto.candidates._MOST_DRAWS", 40)
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    sets = {"fox": splits(0), "tiger": splits(1)}
    icmil.study(options, sets)
    text = (options.out / "icmil.md").read_text(encoding="utf-8")
    means = re.findall(r"^\| mean \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)[0]
    assert min(map(float, means)) > 0.8
    assert "Written before the run." in text
    with Store(options.cache, icmil.NAME) as store:
        rows = store.select({"study": "icmil"})
    assert len(rows) == 2 * 2 * 3
    icmil.study(options, sets)
    with Store(options.cache, icmil.NAME) as store:
        assert store.select({"study": "icmil"}) == rows
