"""The study of the defaults: choice without the judged set, the synthetic sets, and the page in a small version."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from midam.data.bags import Bags
from midam.methods.auto.candidates import PRIOR
from midam.methods.auto.method import Auto
from midam.settings import Settings
from midam.train.side import train_trials
from studies.engine import Store
from studies.options import StudyOptions
from studies.registry import find_study
from studies.synthetic import synthetic_sets
from studies.tabular import defaults_trials
from studies.tabular.defaults import finalists, study
from studies.tabular.defaults_page import frozen_section
from studies.tabular.defaults_trials import (
    CANDIDATES,
    CHOSEN,
    DEFAULT,
    KERNEL,
    LINEAR,
    SYNTHETIC,
    TREES,
    Fit,
    config_of,
    nested_fits,
    outer_folds,
    search_of,
    train_fit,
    trials_of,
)

NAMES = list(CANDIDATES)


def test_the_judged_kind_has_no_say_and_kinds_weigh_the_same():
    kinds = {"one": ["x"], "other": ["y", "z"]}
    found = {NAMES[0]: {"x": 0.9, "y": 0.6, "z": 0.6}, NAMES[1]: {"x": 0.5, "y": 0.8, "z": 0.8}}
    assert finalists(found, kinds, without=None, count=2) == NAMES[:2]  # 0.75 and 0.65; over sets it is the same mean
    assert finalists(found, kinds, without="one", count=1) == [NAMES[1]]
    assert finalists(found, kinds, without="other", count=1) == [NAMES[0]]


def test_the_folds_part_the_bags_and_inner_folds_stay_inside():
    bags = synthetic_sets()["shift"]
    folds = outer_folds(bags, 3)
    assert sorted(np.concatenate([fold.score for fold in folds])) == list(range(len(bags)))
    for fold in folds:
        *inner, last = trials_of(bags, fold)
        assert last is fold
        assert sorted(np.concatenate([trial.score for trial in inner])) == fold.train.tolist()
        for trial in inner:
            assert not set(trial.train) & {*trial.score, *fold.score}


@pytest.mark.long
def test_auto_in_the_study_is_auto(monkeypatch):
    """Scores of all folds, mixed afterwards, are those of the method inside each training part."""
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 10)
    monkeypatch.setattr(defaults_trials, "_FOLDS", 2)
    methods = [TREES, LINEAR, KERNEL, DEFAULT]
    monkeypatch.setattr("midam.methods.auto.candidates.VECTORS", methods)
    bags = synthetic_sets()["shift"]
    fold, parts = outer_folds(bags, 0)[0], {}
    config = config_of("width at least 128", bags, epochs=None)
    fits = {
        fit.method: fit for fit in nested_fits("shift", bags, config, 0) if fit.nested == "epochs" or not fit.config
    }
    for method in methods:
        (row,) = train_fit(fits[method])
        parts[method] = [np.array(own) for own in row["scores"][0]]
    found = search_of(bags, fold, parts, PRIOR)
    settings = Settings(seed=fold.seed).resolve(bags.instance_shape)
    chosen = Auto().fit(bags.subset(fold.train), None, settings).entries["auto"]
    assert [row["method"] for row in chosen["tried"]] == methods
    weights = [row["weight"] for row in chosen["tried"]]
    np.testing.assert_allclose([row.weight for row in found.tried], weights, rtol=0, atol=1e-3)


@pytest.mark.long
def test_instances_with_noise_of_no_size_train_as_the_default(monkeypatch):
    bags = synthetic_sets()["shift"]
    monkeypatch.setitem(defaults_trials.AROUND, "none", defaults_trials.CANDIDATES[CHOSEN] | {"noise": 0.0})
    monkeypatch.setitem(defaults_trials.AROUND, "some", defaults_trials.CANDIDATES[CHOSEN] | {"noise": 0.5})
    trials = outer_folds(bags, 0)[:2]
    usual, none, some = (
        [own.scores for own in train_trials(config_of(name, bags, epochs=2), bags, trials)]
        for name in (CHOSEN, "none", "some")
    )
    np.testing.assert_array_equal(none, usual)
    assert (np.array(some) != np.array(usual)).any()


def test_a_mixture_of_members_is_the_mean_of_their_scores_or_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(defaults_trials, "_FOLDS", 2)
    bags = synthetic_sets()["shift"]
    rng, folds = np.random.default_rng(0), outer_folds(bags, 0)
    attention = [[rng.random((3, 4)).tolist(), rng.random((3, len(fold.score))).tolist()] for fold in folds]
    mean = [rng.random(len(fold.score)).tolist() for fold in folds]
    fits = [
        Fit("shift", bags, DEFAULT, config_of(CHOSEN, bags, epochs=None), 0, nested=True),
        Fit("shift", bags, DEFAULT, config_of(f"{CHOSEN}, mean", bags, epochs=None), 0),
    ]
    with Store(tmp_path, "defaults") as store:
        for fit, scores in zip(fits, (attention, mean)):
            store.keep(fit.group().names, [{"scores": scores}])
        areas = defaults_trials.Areas(store, epochs=None)
        for ranks in (False, True):
            found = areas.mixed("shift", bags, ("attention", "attention", "mean"), ranks=ranks)
            for area, fold, own, other in zip(found, folds, attention, mean):
                members = [*own[-1][:2], other]
                parts = [np.argsort(np.argsort(x)) for x in members] if ranks else members
                labels = bags.require_labels()[fold.score]
                assert area == pytest.approx(roc_auc_score(labels, np.sum(parts, axis=0)))


def test_synthetic_sets_repeat_and_differ_between_the_classes():
    sets, again, others = synthetic_sets(), synthetic_sets(), synthetic_sets(seed=1)
    for name, bags in sets.items():
        np.testing.assert_array_equal(bags.instances, again[name].instances)
        assert bags.instances.shape != others[name].instances.shape or (bags.instances != others[name].instances).any()
        positive = bags.require_labels() == 1
        means = np.array([bags[i][:, :16].max(axis=0).mean() for i in range(len(bags))])
        assert positive.sum() == 60
        assert means[positive].mean() > means[~positive].mean()
    pair = sets["pair"]
    assert pair.sizes.min() >= 4


def test_the_library_has_the_default_that_the_page_judges():
    text = (Path(__file__).parents[2] / "records" / "defaults.md").read_text()
    (judged,) = re.findall(r"^The default is '([^']*)'\.", text, re.MULTILINE)
    for width in (7, 40, 64, 100, 166):
        bags = Bags.from_list([np.zeros((2, width))] * 2, [0, 1])
        usual = Settings(members=1, accelerator="cpu").resolve((width,)).flat()
        assert config_of(judged, bags, epochs=None).flat() == usual


def test_vectors_of_images_join_the_kinds_and_each_kind_counts_once():
    def areas(auto: float, trees: float) -> dict[str, np.ndarray]:
        given = {"auto": auto, TREES: trees, DEFAULT: 0.5, LINEAR: 0.5, "best": 0.99}
        return {name: np.array([value, value]) for name, value in given.items()}

    judged = {"x": areas(0.8, 0.7), "y": areas(0.7, 0.7), "made": areas(0.1, 0.9)}
    frozen = {"images": {"z, vectors": areas(0.6, 0.8)}}
    text = "\n".join(frozen_section(judged, {"one": ["x", "y"], SYNTHETIC: ["made"]}, frozen))
    assert "| z, vectors | 0.600 | 0.500 | 0.800 | 0.500 | -0.200 |" in text
    assert "mean over 2 kinds: -0.075 [" in text  # +0.05 of two sets, and -0.2
    assert "Over the 3 sets, taken for independent: -0.033 [" in text
    assert "mean over the kinds: -0.075 (" in text


@pytest.mark.filterwarnings("ignore:Expected at least")
@pytest.mark.long
def test_a_small_study_writes_its_page_and_computes_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 10)
    monkeypatch.setattr("midam.methods.baselines._LOGISTIC_C", [1.0])
    monkeypatch.setattr(defaults_trials, "_FOLDS", 2)
    bags = synthetic_sets()
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    study(options, {"musk1": bags["witness"]}, {"shift": bags["shift"]})
    text = (tmp_path / "out" / "defaults.md").read_text(encoding="utf-8")
    assert "| musk1 | " in text
    assert "| mean of the real sets | " in text
    assert (options.out / "trials" / f"{find_study('defaults').store}.jsonl.gz").is_file()
    with Store(options.cache, "defaults") as store:
        rows = store.select({"study": "defaults"})
    assert sum(row["method"] == TREES for row in rows) == 2
    study(options, {"musk1": bags["witness"]}, {"shift": bags["shift"]})
    with Store(options.cache, "defaults") as store:
        assert store.select({"study": "defaults"}) == rows
    keys = {tuple(value for name, value in row.items() if name != "scores") for row in rows}
    assert len(keys) == len(rows)
