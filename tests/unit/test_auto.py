"""The method `auto`: what it tries, how it mixes, what it keeps, and that it never sees a test bag."""

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit
from tests.integration.commands import stop_at
from tests.quick import usual

from midam import MIDAMClassifier
from midam.cli import main, parse
from midam.compare import repeated_folds, run_comparison
from midam.data.bags import Bags
from midam.errors import CheckpointError, ConfigError, DivergedError
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.intervals import paired_delong
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.functional.poolings import bounded_logit
from midam.methods.auto import method as auto_method
from midam.methods.auto import search as searching
from midam.methods.auto.candidates import (
    PIXELS,
    PRIOR,
    SEARCH,
    VECTORS,
    Candidate,
    limited,
    make_candidate,
    usual_candidates,
)
from midam.methods.auto.method import Auto
from midam.methods.auto.search import (
    DIVERGED,
    SETTLED,
    areas_of,
    best_epochs,
    block_trials,
    fit_line,
    fit_mixture,
    mix,
    prior_weights,
    search,
)
from midam.methods.inner_folds import inner_folds, inner_trials
from midam.methods.method import ModelBaseline
from midam.methods.names import usual_method
from midam.methods.witness_search import WitnessSearch
from midam.nn.scorer import BagEnsemble
from midam.runs import load_run
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder, read_run_config
from midam.runs.folds import fold_trials
from midam.settings import Settings
from midam.train.side import Trial
from midam.train.trainer import Trainer
from studies.sets import catalog

EPOCHS = 2


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Few trees, epochs and strengths of a penalty."""
    made = make_candidate

    def short(name, instance_shape, count=0):
        found = made(name, instance_shape, count)
        config = None if found.config is None else found.config.replace(epochs=EPOCHS, members=2)
        return Candidate(name, config=config, baseline=found.baseline)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("midam.methods.baselines._LOGISTIC_C", np.ones(1))
        patch.setattr("midam.methods.baselines._KERNEL_C", np.array([1.0]))
        patch.setattr("midam.methods.baselines._MAP_GAMMAS", np.ones(1))
        patch.setattr("midam.methods.networks._EPOCHS", EPOCHS)
        patch.setattr("midam.methods.statistics_models._TREES", 5)
        patch.setattr("midam.methods.auto.candidates.make_candidate", short)
        yield


def make_bags(count=40, *, seed=0, groups=False, shift=1.0):
    rng, labels = np.random.default_rng(seed), np.arange(count) % 2
    tells = np.array([shift, 0, 0, 0, 0])
    parts = [rng.normal(size=(int(rng.integers(2, 6)), 5)) + label * tells for label in labels]
    names = [f"patient-{i // 4}" for i in range(count)] if groups else None
    return Bags.from_list(parts, labels, groups=names)


def _choose(bags, seed, **how):
    return Auto(**how).fit(bags, None, Settings(seed=seed).resolve(bags.instance_shape))


def logits_of(labels, gap, *, scorers=1, seed=0):
    return np.random.default_rng(seed).normal(size=(scorers, len(labels))) + gap * labels


def test_vectors_and_pixels_have_candidates_of_their_own():
    assert [candidate.name for candidate in usual_candidates((5,), 40)] == list(VECTORS)
    assert [candidate.name for candidate in usual_candidates((5,), 12_000)] == [*VECTORS[1:], VECTORS[0]]
    assert [candidate.name for candidate in usual_candidates((3, 16, 16), 40)] == list(PIXELS)
    with pytest.raises(ConfigError, match="Expected a method that can be a model, got 'bag-statistics-cox'"):
        make_candidate("bag-statistics-cox", (5,))


def test_witnesses_are_searched_last_in_large_bags_of_vectors_alone():
    large = usual_candidates((5,), 40, 4000)
    assert [candidate.name for candidate in large] == [*VECTORS, SEARCH]
    assert all(candidate.enough == np.inf for candidate in large[:-1])
    for shape, count, instances in (((5,), 40, 3999), ((5,), 501, 60_000), ((3, 16, 16), 40, 4000)):
        assert SEARCH not in [candidate.name for candidate in usual_candidates(shape, count, instances)]


def test_auto_finds_the_witness_of_a_bag_of_hundreds_that_no_other_candidate_finds():
    """The witnesses of all bags are alike, and no feature of theirs alone is unusual."""
    rng, labels = np.random.default_rng(0), np.arange(160) % 2
    x = rng.normal(size=(160, 100, 20)).astype(np.float32)
    x[labels == 1, 0] = rng.normal(0, 0.3, (80, 20)) + 1.8 * np.array([1, -1] * 10)
    bags = Bags.from_list(list(x), labels)
    train, test = bags.subset(np.arange(60)), bags.subset(np.arange(60, 160))
    found = Auto().fit(train, None, Settings().resolve((20,)))
    *others, searched = found.entries["auto"]["tried"]
    assert max(row["auroc"] for row in others) < 0.8
    assert searched["method"] == SEARCH
    assert searched["weight"] > 0.8
    assert auroc(test.require_labels(), predict(found.model, test)) > 0.95
    read = Auto().model((20,), found.model.state_dict(), found.parts)
    read.load_state_dict(found.model.state_dict())
    np.testing.assert_array_equal(predict(read, test), predict(found.model, test))


def test_witnesses_are_not_searched_where_another_candidate_ranks_well():
    bags = make_bags(40, shift=3.0)
    tried = [make_candidate(VECTORS[0], (5,)), Candidate(SEARCH, baseline=WitnessSearch(), enough=0.9)]
    found = search(tried, bags, seed=0)
    assert found.tried[1].note == SETTLED.format(VECTORS[0], 0.9)
    assert found.taken == [VECTORS[0]]


def test_witnesses_are_not_searched_where_no_folds_show_that_other_candidates_fail():
    bags = make_bags(8).replace(labels=[1, *[0] * 7], groups=None)
    found = search([make_candidate(VECTORS[0], (5,)), Candidate(SEARCH, baseline=WitnessSearch())], bags, seed=0)
    assert (found.folds, found.taken) == (0, [VECTORS[0]])


def test_held_out_bags_with_many_numbers_are_scored_after_the_last_epoch_alone():
    few, many = (usual_candidates((1024,), 100, instances)[len(VECTORS) - 1] for instances in (2**18, 2**18 + 1))
    assert len(few.epochs) > 1
    assert many.epochs == few.epochs[-1:]


def test_the_folds_of_a_candidate_are_told_as_they_are_done():
    told = []
    search(usual_candidates((5,), 40)[:2], make_bags(), seed=0, on_candidate=lambda *done: told.append(done))
    assert told == [(name, at, 2, share / 5) for at, name in enumerate(VECTORS[:2]) for share in range(6)]


def test_a_line_is_that_of_platt_through_all_scorers():
    labels = np.arange(30) % 2
    logits = logits_of(labels, 1.0, scorers=3)
    line, platt = fit_line(logits, labels), PlattCalibrator.fit(logits.ravel(), np.tile(labels, 3))
    np.testing.assert_allclose(
        line.probabilities(logits), platt.predict(logits.ravel()).reshape(3, -1).mean(axis=0), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("logits", [-logits_of(np.arange(30) % 3 // 2, 1.0, scorers=2), np.zeros((1, 30))])
def test_the_line_of_scores_at_chance_is_nearly_flat_and_keeps_the_order(logits):
    line = fit_line(logits, np.arange(30) % 3 // 2)
    assert line.slope > 0
    assert line.slope * logits.std() == pytest.approx(0.5 if logits.any() else 0)
    assert line.probabilities(logits.mean(keepdims=True)) == pytest.approx(1 / 3)


def test_weights_are_p_values_of_being_as_good_as_the_best():
    labels = np.arange(60) % 2
    logits = [logits_of(labels, gap, seed=seed) for seed, gap in enumerate((1.5, 1.3, 0.4))]
    areas = [auroc(labels, own[0]) for own in logits]
    mixture = fit_mixture(logits, areas, labels)
    found = [fit_line(own, labels).probabilities(own) for own in logits]
    best = int(np.argmax(areas))
    p = np.array([paired_delong(labels, found[best], own)[3] for own in found])
    assert p[best] == 1
    p[p < 0.01 * p.sum()] = 0
    np.testing.assert_allclose(mixture.weights, p / p.sum(), rtol=0, atol=1e-15)
    wanted = sum(w * own for w, own in zip(p / p.sum(), found))
    np.testing.assert_allclose(mixture.scores(logits), wanted, rtol=0, atol=1e-15)


def test_what_is_worse_beyond_doubt_has_no_weight():
    labels = np.arange(200) % 2
    logits = [logits_of(labels, 3.0), logits_of(labels, 0.2, seed=1), -logits_of(labels, 1.0, seed=2)]
    assert fit_mixture(logits, [0.98, 0.55, 0.2], labels).weights.tolist() == [1, 0, 0]


def test_what_is_at_chance_in_few_bags_is_weighted_by_its_p_value_too():
    labels, before = np.arange(20) % 2, np.array([0.6, 0.4])
    logits = [-logits_of(labels, 0.2, seed=7), logits_of(labels, 0.3, seed=10)]
    areas = [auroc(labels, own[0]) for own in logits]
    shares = [fit_line(own, labels).probabilities(own) for own in logits]
    assert areas[0] < 0.5 < areas[1]
    p = paired_delong(labels, shares[1], shares[0])[3]
    found = fit_mixture(logits, areas, labels, None, before).weights
    np.testing.assert_allclose(found[0], 0.6 * p / (0.6 * p + 0.4), rtol=1e-9)
    assert found[0] > 0.1


def test_the_prior_decides_where_the_bags_cannot():
    labels = np.arange(60) % 2
    alike = [logits_of(labels, 1.5), logits_of(labels, 1.5) + 1e-9]
    before = prior_weights(["bag-statistics-extratrees", "bag-statistics-logistic"])
    assert before[0] == pytest.approx(0.34 / 0.49)
    np.testing.assert_allclose(fit_mixture(alike, [0.9, 0.9], labels, None, before).weights, before, rtol=0, atol=1e-12)
    apart = [logits_of(labels, 0.3, seed=1), logits_of(labels, 4.0)]
    areas = [auroc(labels, own[0]) for own in apart]
    assert fit_mixture(apart, areas, labels, None, before).weights[1] > 0.95
    assert prior_weights(["a method of one's own", "another"]).tolist() == [0.5, 0.5]


def test_groups_widen_the_doubt():
    labels = np.repeat([0, 1, 0, 1, 0, 1, 0, 1], 10)
    groups = np.repeat([f"g{i}" for i in range(8)], 10)
    rng = np.random.default_rng(0)
    shared = np.repeat(rng.normal(size=8), 10)
    logits = [(labels + shared + 0.1 * rng.normal(size=80))[None], (labels + rng.normal(size=80))[None]]
    areas = [auroc(labels, own[0]) for own in logits]
    alone, grouped = fit_mixture(logits, areas, labels), fit_mixture(logits, areas, labels, groups)
    assert alone.weights.min() < grouped.weights.min()


def test_the_model_is_the_mixture_of_its_parts():
    bags = make_bags()
    chosen = _choose(bags, 3)
    tried = {row["method"]: row["weight"] for row in chosen.entries["auto"]["tried"]}
    assert sum(tried.values()) == pytest.approx(1)
    at, wanted = 0, np.zeros(len(bags))
    for part in chosen.parts:
        for member in list(chosen.model.members)[at : at + part["scorers"]]:
            inner = type(member)(member.encoder, member.pooling.inner, standardizer=member.standardizer)
            logit = bounded_logit(torch.from_numpy(predict(inner, bags))).numpy()
            own = expit(float(member.pooling.scale) * logit + float(member.pooling.offset))
            wanted += tried[part["method"]] / part["scorers"] * own
        at += part["scorers"]
    np.testing.assert_allclose(predict(chosen.model, bags), wanted, rtol=0, atol=1e-5)


def test_inner_folds_hold_groups_together_and_the_choice_is_that_of_the_seed():
    bags = make_bags(48, groups=True)
    for test in inner_folds(bags, np.arange(48), seed=1):
        assert not set(bags.groups[test]) & set(np.delete(bags.groups, test))
    first, other = (_choose(bags, seed) for seed in (1, 2))
    assert first.entries["auto"]["folds"] == 5
    assert predict(first.model, bags).tolist() != predict(other.model, bags).tolist()


def test_a_search_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    bags, journal, calls = make_bags(), tmp_path / "candidates.jsonl", []
    real = Candidate.held_out

    def counted(self, bags, trials, **limit):
        calls.append(self.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, bags, trials, **limit)

    few = usual_candidates((5,), 40)[:3]
    wanted = search(few, bags, seed=0)
    monkeypatch.setattr(Candidate, "held_out", counted)
    with pytest.raises(KeyboardInterrupt):
        search(few, bags, seed=0, journal=journal)
    assert [json.loads(line)["method"] for line in journal.read_text().splitlines()] == [VECTORS[0]]
    found = search(few, bags, seed=0, journal=journal)
    assert calls == [VECTORS[0], VECTORS[1], *VECTORS[1:3]]
    assert found.mixture.weights.tolist() == wanted.mixture.weights.tolist()
    assert found.auroc == wanted.auroc
    search(few, bags, seed=1, journal=journal)  # of another seed nothing is known
    assert calls[4:] == list(VECTORS[:3])


def test_the_mixture_of_a_fold_is_that_of_a_search_without_the_fold():
    bags = make_bags()
    names = VECTORS[1:3]
    tried = [make_candidate(name, bags.instance_shape) for name in names]
    trials = fold_trials(np.arange(len(bags)) // 2 % 5, seed=0)
    found = search(tried, bags, seed=0, trials=trials)
    for fold, trial in enumerate(trials):
        blocks = [block for block in ((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1)) if fold in block]
        kept: dict[int, np.ndarray] = {}
        for block in blocks:
            held = np.concatenate([trials[each].score for each in block])
            for other in (each for each in block if each != fold):
                kept.setdefault(other, np.setdiff1d(np.arange(len(bags)), held))
        inner = [Trial(train, trials[other].score, 0) for other, train in kept.items()]
        rows = [
            {
                "method": one.name,
                "note": None,
                "seconds": 0.0,
                "scores": [x.tolist() for x in one.held_out(bags, inner)],
            }
            for one in tried
        ]
        alone = mix(bags, inner, rows)
        logits = [bounded_logit(torch.as_tensor(next(one.held_out(bags, [trial])))).numpy() for one in tried]
        kept = [logits[names.index(name)] for name in alone.taken]
        own = found.out_of_fold.scores[found.out_of_fold.folds == fold]
        np.testing.assert_allclose(own, alone.mixture.scores(kept), rtol=1e-9)


@pytest.mark.parametrize(("folds", "trainings", "partners"), [(2, 0, 0), (3, 3, 2), (4, 6, 3), (5, 5, 4), (9, 9, 4)])
def test_each_fold_shares_a_block_with_four_others_at_most(folds, trainings, partners):
    bags = make_bags()
    trials = fold_trials(np.arange(len(bags)) // 2 % folds, seed=0)
    blocks = block_trials(bags, trials)
    assert len(blocks) == trainings
    for fold in range(folds):
        near = {other % folds for other in range(fold - 2, fold + 3)} - {fold} if partners else set()
        assert len(near) == partners
        assert near <= {other for block, _ in blocks if fold in block for other in block}
    for block, trial in blocks:
        held = np.concatenate([trials[fold].score for fold in block])
        assert trial.score.tolist() == held.tolist()
        assert sorted([*trial.train, *held]) == list(range(len(bags)))


def test_a_block_whose_other_folds_have_one_class_is_left_out():
    bags = make_bags(20)
    numbers = np.where(bags.labels == 1, np.arange(20) // 2 % 3, np.arange(20) // 2 % 5)  # folds 3 and 4 are negative
    blocks = block_trials(bags, fold_trials(numbers, seed=0))
    assert [block for block, _ in blocks] == [(1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1)]


def test_two_folds_are_mixed_by_the_prior():
    bags = make_bags()
    tried = [make_candidate(name, bags.instance_shape) for name in VECTORS[1:3]]
    found = search(tried, bags, seed=0, trials=fold_trials(np.arange(len(bags)) // 2 % 2, seed=0))
    for fold, trial in enumerate(fold_trials(np.arange(len(bags)) // 2 % 2, seed=0)):
        scores = [next(one.held_out(bags, [trial]))[0] for one in tried]
        own = found.out_of_fold.scores[found.out_of_fold.folds == fold]
        np.testing.assert_allclose(own, prior_weights(VECTORS[1:3]) @ np.array(scores), rtol=1e-4)


def test_fewer_epochs_are_taken_where_they_gain_more_than_their_error():
    bags = make_bags(40)
    candidate = Candidate("midam", config=make_candidate("midam", (5,)).config.replace(epochs=100))
    assert candidate.epochs == [5, 10, 20, 50, 100]
    trials = [Trial(np.arange(20, 40), np.arange(20), 0), Trial(np.arange(20), np.arange(20, 40), 0)]

    def path(*misplaced):
        """Scores of a fold after each number of epochs: so many of its ten positive bags score below all others."""
        labels = bags.labels[:20].astype(float)
        return np.stack([labels - 2 * (labels * (np.cumsum(labels) <= count)) for count in misplaced])

    def best(paths):
        return candidate.epochs[best_epochs(areas_of(bags.labels, trials, paths))]

    assert best([path(3, 1, 5, 5, 5), path(4, 2, 5, 5, 5)]) == 10
    assert best([path(9, 9, 9, 1, 5), path(9, 9, 9, 6, 5)]) == 100  # in doubt, all epochs
    assert best([path(3, 3, 3, 3, 3)] * 2) == 100
    lost = [path(9, 2, 3, 4, 5), path(9, 2, 3, 4, 5)]
    for own in lost:
        own[3:] = np.nan
    assert best(lost) == 10


def test_the_epochs_of_a_fold_are_chosen_on_the_other_folds():
    bags, low = make_bags(40), np.arange(20)
    trials = [Trial(np.arange(20, 40), low, 0), Trial(low, np.arange(20, 40), 0)]
    labels = bags.labels[:20].astype(float)
    right, wrong = (0.2 + 0.6 * labels).tolist(), (0.8 - 0.6 * labels).tolist()
    row = {"method": "midam", "seconds": 0.0, "note": None, "after": [1, 2]}
    # Each fold alone would take what is wrong on the other.
    found = mix(bags, trials, [{**row, "scores": [[right, wrong], [wrong, right]]}])
    assert auroc(labels, found.out_of_fold.scores[:20]) == auroc(labels, found.out_of_fold.scores[20:]) == 0.0
    assert found.auroc == 0.0


def test_many_bags_have_fewer_epochs_and_inner_folds(monkeypatch):
    monkeypatch.setattr("midam.methods.auto.candidates._MOST_DRAWS", usual["_MOST_DRAWS"])
    config = make_candidate("midam", (5,)).config.replace(epochs=100)
    assert [limited(config, count).training.epochs for count in (10, 480, 960, 10**6)] == [100, 100, 50, 1]
    most = [
        make_candidate("midam", shape, count).epochs[-1] for shape, count in (((5,), 480), ((5,), 490), ((1, 8, 8), 9))
    ]
    assert most == [50, 98, 100]
    bags = make_bags(30)
    assert len(inner_trials(bags, np.arange(30), seed=0)) == 5
    monkeypatch.setattr("midam.methods.inner_folds.MANY", 29)
    few = inner_trials(bags, np.arange(30), seed=0)
    assert len(few) == 3
    for trial in few:
        assert sorted([*trial.train, *trial.score]) == list(range(30))


def test_many_bags_that_are_ranked_perfectly_need_no_other_method(monkeypatch):
    bags = make_bags(40, shift=30.0)
    assert all(row.note is None for row in search(usual_candidates((5,), 40), bags, seed=0).tried)
    monkeypatch.setattr("midam.methods.auto.candidates.MANY", 39)
    found = search(usual_candidates((5,), 40), bags, seed=0)
    assert [row.note for row in found.tried] == [None, *[SETTLED.format(VECTORS[0], 0.998)] * (len(VECTORS) - 1)]
    assert found.taken == [VECTORS[0]]


def test_of_many_bags_a_candidate_far_behind_the_best_stops_after_a_fold(monkeypatch):
    bags = make_bags(240, shift=1.5)
    good, same, bad = (make_candidate(name, (5,)) for name in (VECTORS[1], VECTORS[0], VECTORS[2]))
    chance = np.random.default_rng(0)

    def random_scores(some, trials):
        return (chance.random(len(trial.score)) for trial in trials)

    monkeypatch.setattr(bad.baseline, "held_out", random_scores)
    unstopped = search([good, same, bad], bags, seed=0)
    assert [row.note for row in unstopped.tried] == [None] * 3
    monkeypatch.setattr(searching, "MANY", 239)
    raced = search([good, same, bad], bags, seed=0)
    behind = f"stopped: behind {raced.tried[0].method} after 1 of 5 folds (p < 0.01)"
    assert [row.note for row in raced.tried] == [None, None, behind]
    assert raced.taken == unstopped.taken
    whole = search([good, same, bad], bags, seed=0, trials=inner_trials(bags, np.arange(240), seed=0))
    assert [row.note for row in whole.tried] == [None] * 3  # a race on all folds would tell of a fold's own bags


def test_a_candidate_that_diverges_is_left_out():
    bags = make_bags()
    candidates = usual_candidates((5,), 40)
    wild = Candidate("midam", config=candidates[-1].config.replace(lr=1e30))
    found = search([candidates[0], wild], bags, seed=0)
    assert [row.note for row in found.tried] == [None, DIVERGED]
    assert found.tried[1].auroc is None
    assert found.taken == [VECTORS[0]]


def test_a_model_of_all_bags_that_contradicts_its_folds_is_left_out(monkeypatch):
    bags, fit = make_bags(shift=3.0), Candidate.fit
    name = _choose(bags, 0).parts[0]["method"]

    def turned(candidate, train, **how):
        """As if its labels had been exchanged when it was fitted again."""
        of = train.replace(labels=1 - train.labels) if candidate.name in wrong else train
        return fit(candidate, of, **how)

    monkeypatch.setattr(Candidate, "fit", turned)
    wrong = {name}
    chosen = _choose(bags, 0)
    assert name not in {part["method"] for part in chosen.parts}
    note = chosen.entries["auto"]["note"]
    assert f"{name} is left out: Expected an AUROC of the training bags near that of the inner" in note
    assert chosen.model.weights.sum().item() == pytest.approx(1)
    wrong = set(VECTORS)
    with pytest.raises(DivergedError, match=r"left out: .*left out: "):
        _choose(bags, 0)


def test_what_does_not_take_the_bags_is_left_out_with_its_reason():
    rng, labels = np.random.default_rng(0), np.arange(20) % 2
    thin = Bags.from_list([rng.normal(size=(2, 1, 2, 8, 8)) + label for label in labels], labels)
    found = search(usual_candidates((1, 2, 8, 8), 40)[:2], thin, seed=0)
    assert found.tried[0].method == "patch-statistics-extratrees"
    assert found.tried[0].note.startswith("left out: Expected")
    assert found.taken == ["rgb-logistic"]
    with pytest.raises(ConfigError, match="Expected a method that takes these bags, got none"):
        search(usual_candidates((1, 2, 8, 8), 40)[:1], thin, seed=0)


@pytest.mark.filterwarnings("ignore:Expected 8 positive")
def test_images_have_a_model_of_several_kinds(monkeypatch):
    made = make_candidate

    def short(name, instance_shape, count=0):
        found = made(name, instance_shape, count)
        config = None if found.config is None else found.config.replace(epochs=1, num_instances=2)
        return Candidate(name, config=config, baseline=found.baseline)

    monkeypatch.setattr("midam.methods.auto.candidates.make_candidate", short)
    rng, labels = np.random.default_rng(0), np.arange(20) % 2
    bags = Bags.from_list([rng.random((3, 3, 8, 8)) + 0.05 * label for label in labels], labels)
    chosen = _choose(bags, 0)
    assert [row["method"] for row in chosen.entries["auto"]["tried"]] == list(PIXELS)
    again = Auto().model((3, 8, 8), chosen.model.state_dict(), chosen.parts)
    again.load_state_dict(chosen.model.state_dict())
    assert predict(again, bags).tolist() == predict(chosen.model, bags).tolist()


@pytest.mark.filterwarnings("ignore:Expected 8 positive")
def test_too_few_bags_for_inner_folds_are_trained_unseen():
    bags = make_bags(3)
    chosen = _choose(bags, 0)
    assert chosen.entries["auto"]["folds"] == 0
    assert chosen.entries["auto"]["auroc"] is None
    assert "too few" in chosen.entries["auto"]["note"]
    assert [row["weight"] for row in chosen.entries["auto"]["tried"]] == pytest.approx(
        [PRIOR[name] / sum(PRIOR.values()) for name in VECTORS]
    )
    assert np.isfinite(predict(chosen.model, bags)).all()


def test_an_honest_figure_of_the_mixture_is_fitted_without_the_fold_that_it_scores(monkeypatch):
    bags, seen = make_bags(), []
    real = searching.fit_mixture
    monkeypatch.setattr(searching, "fit_mixture", lambda *a: seen.append(len(a[2])) or real(*a))
    found = search(usual_candidates((5,), 40)[:2], bags, seed=0)
    assert seen == [40, *[32] * 5]
    assert 0 <= found.auroc <= 1


def planted(labels_of, *, at):
    """Bags of noise, of which those at some positions tell their label in one feature."""
    rng = np.random.default_rng(5)
    parts = [rng.normal(size=(4, 5)) for _ in labels_of]
    for i in at:
        parts[i][:, 0] = 100 * labels_of[i]
    return parts


def test_test_bags_are_never_seen(tmp_path):
    """A feature that tells the label in test bags alone changes neither the choice nor the model."""
    labels = np.arange(40) % 2
    splits = np.array(["train"] * 24 + ["val"] * 8 + ["test"] * 8)
    digests, chosen = [], []
    for name, at in (("plain", []), ("planted", np.flatnonzero(splits == "test"))):
        parts = planted(labels, at=at)
        rows = [[f"bag-{i}", labels[i], splits[i], *row] for i, part in enumerate(parts) for row in part]
        table = tmp_path / f"{name}.csv"
        lines = ["bag,label,split,a,b,c,d,e", *(",".join(map(str, row)) for row in rows)]
        table.write_text("\n".join(lines) + "\n")
        out = tmp_path / name
        assert main(["fit", str(table), "--method", "auto", "--split", "split", "--out", str(out)]) == 0
        digests.append(load_run(out).digest())
        tried = json.loads((out / "summary.json").read_text())["auto"]["tried"]
        chosen.append([(row["method"], row["auroc"], row["weight"]) for row in tried])
    assert digests[0] == digests[1]
    assert chosen[0] == chosen[1]


@pytest.mark.long
def test_a_comparison_chooses_inside_each_training_part(monkeypatch):
    bags, seen = make_bags(42), []
    folds, real = repeated_folds(bags, repeats=1, folds=3), Auto.fit

    def watched(self, bags, *how):
        seen.append(bags.ids.tolist())
        return real(self, bags, *how)

    monkeypatch.setattr(Auto, "fit", watched)
    found = run_comparison(bags, ["auto", VECTORS[0]], folds)
    assert seen == [bags.ids[fold.train].tolist() for fold in folds]
    model = _choose(bags.subset(folds[0].train), 0).model
    own = found.trials.query("method == 'auto' and fold == 0")["auroc"].iloc[0]
    assert auroc(bags.labels[folds[0].test], predict(model, bags.subset(folds[0].test))) == own


def test_bags_of_inner_folds_have_scores_of_mixtures_that_did_not_see_them():
    bags = make_bags()
    found = search(usual_candidates((5,), 40)[:2], bags, seed=0)
    index = np.concatenate([trial.score for trial in inner_trials(bags, np.arange(40), seed=0)])
    assert found.out_of_fold.values.tolist() == bags.labels[index].tolist()
    parts = np.split(np.arange(40), np.cumsum([len(own) for own in inner_folds(bags, np.arange(40), seed=0)])[:-1])
    areas = [auroc(found.out_of_fold.values[own], found.out_of_fold.scores[own]) for own in parts]
    assert np.mean(areas) == pytest.approx(found.auroc, abs=1e-12)


def test_a_method_without_epochs_scores_training_bags_by_inner_folds():
    bags, forest = make_bags(), make_candidate(VECTORS[0], (5,)).baseline
    found = forest.fit(bags, None, Settings(seed=1).resolve((5,))).out_of_fold
    first = inner_trials(bags, np.arange(40), seed=1)[0]
    wanted = predict(forest.scorer(bags.subset(first.train), seed=1), bags.subset(first.score))
    assert found.scores[: len(wanted)].tolist() == wanted.tolist()
    assert forest.fit(make_bags(3), None, Settings().resolve((5,))).out_of_fold is None


def test_a_search_that_a_full_disk_ends_is_kept_and_continues(tmp_path, monkeypatch, capsys):
    data, out = save_bags(make_bags(), tmp_path), tmp_path / "run"

    def full(*_):
        raise OSError(28, "No space left on device", "model.pt")

    with monkeypatch.context() as patch:
        patch.setattr("midam.runs.results.save_checkpoint", full)
        assert main(["fit", str(data), "--method", "auto", "--out", str(out)]) == 2
    assert f"Continue with `midam fit {data} --resume {out}`" in capsys.readouterr().err
    kept = (out / "candidates.jsonl").read_bytes()
    assert [json.loads(line)["method"] for line in kept.splitlines()] == list(VECTORS)
    assert main(["fit", str(data), "--resume", str(out)]) == 0
    assert (out / "candidates.jsonl").read_bytes() == kept
    assert (out / "report.html").exists()


def test_a_run_that_was_killed_before_its_summary_is_no_saved_model(tmp_path, capsys):
    data, out = save_bags(make_bags(), tmp_path), tmp_path / "run"
    words = ["fit", str(data), "--method", VECTORS[0], "--out", str(out)]
    assert main(words) == 0
    for name in ("summary.json", "report.html"):
        (out / name).unlink()
    capsys.readouterr()
    assert main(words) == 2
    assert f"continue with `midam fit --resume {out}`" in capsys.readouterr().err
    assert main(["fit", "--resume", str(out)]) == 0
    assert (out / "report.html").exists()


def test_a_finished_run_gets_the_page_that_a_kill_has_cost_and_refuses_other_bags(tmp_path, capsys):
    data, out = save_bags(make_bags(), tmp_path), tmp_path / "run"
    assert main(["fit", str(data), "--method", VECTORS[0], "--out", str(out)]) == 0
    page = (out / "report.html").read_text()
    (out / "report.html").unlink()
    resumed = ["fit", str(data), "--resume", str(out)]
    assert main(resumed) == 0
    assert (out / "report.html").read_text() == page
    save_bags(make_bags(seed=1), tmp_path)
    assert main(resumed) == 2
    assert "got others" in capsys.readouterr().err


def test_enough_validation_bags_need_no_inner_folds(tmp_path, monkeypatch):
    for place in ("midam.targets.binary", "midam.methods.method"):
        monkeypatch.setattr(f"{place}.FEW_BAGS", 1)
    data = save_bags(make_bags(60), tmp_path)
    found = fit_run(str(data), Settings(test_fraction=0.2), RunFolder(tmp_path / "run"), method=VECTORS[0])[
        "thresholds"
    ]
    assert (found["bags"], found["out_of_fold"]) == (12, 0)


def save_bags(bags, folder):
    data = folder / "bags.npz"
    np.savez(data, X=bags.instances, bag=np.repeat(np.arange(len(bags)), bags.sizes), y=bags.require_labels())
    return data


def test_the_rule_of_the_threshold_is_kept_and_used_everywhere(tmp_path, capsys):
    data, out = save_bags(make_bags(60, shift=2.0), tmp_path), tmp_path / "run"
    words = ["fit", str(data), "--method", VECTORS[0], "--threshold", "sensitivity=.9", "--test-fraction", "0.2"]
    assert main([*words, "--out", str(out)]) == 0
    assert "(sensitivity=0.9), chosen on 48 held-out bags (24 positive)" in (capsys.readouterr().out)
    found, run = json.loads((out / "summary.json").read_text()), load_run(out)
    first, *others = found["thresholds"]["points"]
    assert first["rule"] == run.settings.run.threshold == "sensitivity=0.9"
    assert first["threshold"] == run.threshold == found["test"]["at_threshold"]["threshold"]
    assert {"youden", "specificity=0.95", "f1", "ppv=0.5", "cost=10:1"} < {row["rule"] for row in others}
    table = pd.read_csv(out / "predictions.csv")
    assert (table["class"] == (table["score"] >= run.threshold)).all()
    page = (out / "report.html").read_text()
    assert all(row["rule"] in page for row in others)
    assert "sensitivity=0.9 (the threshold of the run)" in page
    assert main(["evaluate", str(out), str(data)]) == 0
    assert run.decision.thresholds.words in capsys.readouterr().out
    assert "sensitivity=0.9 (the threshold of the run)" in (out / "report-bags.html").read_text()
    again = MIDAMClassifier.load(out)
    assert (again.threshold, again.threshold_) == ("sensitivity=0.9", run.threshold)
    assert again.to_run().decision.to_dict() == run.decision.to_dict()
    assert main(["export", str(out), "--out", str(tmp_path / "card"), "--format", "safetensors"]) == 0
    assert run.decision.thresholds.words in (tmp_path / "card" / "README.md").read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, bags = tmp_path_factory.mktemp("auto"), make_bags()
    names = [f"gene {number}" for number in range(bags.instance_shape[0])]
    data = write_bags(folder / "bags.npz", bags, feature_names=names)
    assert main(["fit", str(data), "--method", "auto", "--test-fraction", "0.2", "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.mark.filterwarnings("ignore:.*is finished")
def test_a_run_says_what_was_tried(run, capsys):
    summary = json.loads((run / "summary.json").read_text())
    found = summary["auto"]
    assert [row["method"] for row in found["tried"]] == list(VECTORS)
    assert all(row["interval"][0] <= row["auroc"] <= row["interval"][1] for row in found["tried"])
    names = summary["data"]["features"]
    report = (run / "report.html").read_text()
    assert ", ".join(names) in report
    assert found["note"].startswith("Chosen by the mean AUROC over 5 inner folds")
    assert load_run(run).method == "auto"
    assert main(["fit", "--resume", str(run)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in VECTORS)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"method": "evil.Net"}, CheckpointError),
        ({"method": "bag-statistics-cox"}, (CheckpointError, ConfigError)),
        ({"scorers": 5}, CheckpointError),
        ({"scorers": 0}, CheckpointError),
    ],
    ids=str,
)
def test_parts_that_are_no_parts_of_the_model_are_refused(run, tmp_path, change, error):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    content = torch.load(copy / "model.pt", weights_only=True)
    content["parts"][0] |= change
    torch.save(content, copy / "model.pt")
    with pytest.raises(error):
        load_run(copy)


def test_weights_that_are_none_are_refused(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    content = torch.load(copy / "model.pt", weights_only=True)
    content["model"]["weights"] *= 2
    torch.save(content, copy / "model.pt")
    with pytest.raises(CheckpointError):
        load_run(copy)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "auto", "--lr", "0.1"], "Expected no `lr` with the method 'auto'"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(tmp_path, capsys, words, message):
    assert main(["fit", "digits", *words, "--out", str(tmp_path / "run")]) == 2
    assert message.replace("`lr`", "--lr") in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def fit_and_name(data, out, *words):
    assert main(["fit", str(data), *words, "--out", str(out)]) == 0
    return load_run(out).method


def write_bags(path, bags, **more):
    np.savez(path, X=bags.instances, bag=np.repeat(np.arange(len(bags)), bags.sizes), y=bags.require_labels(), **more)
    return path


def test_what_names_no_training_is_chosen_on_the_bags(tmp_path, capsys, monkeypatch):
    data = write_bags(tmp_path / "bags.npz", make_bags())
    assert fit_and_name(data, tmp_path / "usual", "--seed", "1", "--threads", "1", "--val_fraction", "0.1") == "auto"
    assert "training auto on" in (told := capsys.readouterr().err)
    assert "--method midam trains one model alone" in told
    again = ["--config", str(tmp_path / "usual" / "config.yaml")]
    assert fit_and_name(data, tmp_path / "again", *again) == "auto"
    assert (tmp_path / "again" / "predictions.csv").read_bytes() == (
        tmp_path / "usual" / "predictions.csv"
    ).read_bytes()
    store = tmp_path / "bags.store"
    assert main(["data", "import", str(data), "--out", str(store)]) == 0
    stop_at(monkeypatch, auto_method, "search", 1)
    assert main(["fit", str(store), "--out", str(tmp_path / "stored")]) == 130
    assert "training auto on" in capsys.readouterr().err


QUICKLY = ["--epochs", "1", "--members", "1"]


@pytest.mark.parametrize("words", [["--method", "midam"], ["--method", "midam-att"], ["--epochs", "100"]], ids=str)
def test_the_method_alone_is_trained_though_nothing_differs_from_the_defaults(tmp_path, monkeypatch, words):
    data, run = write_bags(tmp_path / "bags.npz", make_bags(20)), tmp_path / "run"
    stop_at(monkeypatch, Trainer, "train_epoch", 2)
    assert main(["fit", str(data), *words, "--out", str(run)]) == 130
    assert read_run_config(RunFolder(run))[2] is None


@pytest.mark.parametrize("words", [QUICKLY, ["--method", "midam", *QUICKLY], ["--config", "FILE"]], ids=str)
def test_a_setting_of_a_training_asks_for_midam_alone(tmp_path, words):
    config = tmp_path / "config.yaml"
    config.write_text("epochs: 1\nmembers: 1\n")
    data = write_bags(tmp_path / "bags.npz", make_bags())
    assert fit_and_name(data, tmp_path / "run", *[str(config) if word == "FILE" else word for word in words]) is None
    assert fit_and_name(data, tmp_path / "again", "--config", str(tmp_path / "run" / "config.yaml")) is None


def test_a_setting_that_is_named_as_it_is_by_default_counts(tmp_path):
    assert parse(["fit", "bags.csv", "--epochs", "100"]).method == "midam"
    assert parse(["fit", "bags.csv", "--seed", "3", "--encoder", "efficientnet-lite0"]).method is None


@pytest.mark.parametrize("kind", ["images", "classes", "covariates", "wide", "large", "settings"])
def test_other_bags_are_trained_as_the_settings_say(kind, monkeypatch):
    bags, settings = make_bags(), Settings()
    if kind == "images":
        bags = Bags.from_list([np.zeros((2, 3, 8, 8)) for _ in range(4)], [0, 1] * 2)
    elif kind == "classes":
        bags = catalog.load("digits-classes")
    elif kind == "covariates":
        bags = bags.replace(covariates={"age": np.arange(40.0)})
    elif kind == "wide":
        monkeypatch.setattr("midam.methods.names._MOST_STATISTICS", 4 * 40 * 5 - 1)
        assert usual_method(bags.subset(np.arange(10)), settings) == "auto"
    elif kind == "large":
        monkeypatch.setattr("midam.methods.names._MOST_NUMBERS", bags.num_instances * 5 - 1)
        assert usual_method(bags.subset(np.arange(39)), settings) == "auto"
    else:
        settings = Settings(epochs=99)
    assert usual_method(make_bags(), Settings(seed=5)) == (None if kind in ("wide", "large") else "auto")
    assert usual_method(bags, settings) is None


@pytest.mark.long
def test_a_stopped_run_keeps_what_it_has_tried(tmp_path, monkeypatch, capsys):
    bags, calls = make_bags(), []
    data, out = tmp_path / "bags.npz", tmp_path / "run"
    np.savez(data, X=bags.instances, bag=np.repeat(np.arange(40), bags.sizes), y=bags.require_labels())
    real = Candidate.held_out

    def counted(self, bags, trials, **limit):
        calls.append(self.name)
        if len(calls) == len(VECTORS):
            raise KeyboardInterrupt
        return real(self, bags, trials, **limit)

    monkeypatch.setattr(Candidate, "held_out", counted)
    assert main(["fit", str(data), "--method", "auto", "--out", str(out)]) == 130
    assert f"--resume {out}" in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert main(["fit", "--resume", str(out)]) == 0
    assert calls == [*VECTORS, VECTORS[-1]]
    whole = tmp_path / "whole"
    assert main(["fit", str(data), "--method", "auto", "--out", str(whole)]) == 0
    assert (whole / "predictions.csv").read_bytes() == (out / "predictions.csv").read_bytes()


def test_one_model_of_one_part_is_an_ensemble_too(monkeypatch):
    bags, one = make_bags(), usual_candidates((5,), 40)[:1]
    monkeypatch.setattr(auto_method, "usual_candidates", lambda *_: one)
    chosen = _choose(bags, 0)
    assert [part["method"] for part in chosen.parts] == [VECTORS[0]]
    assert isinstance(chosen.model, BagEnsemble)
    again = Auto().model((5,), chosen.model.state_dict(), chosen.parts)
    again.load_state_dict(chosen.model.state_dict())
    assert predict(again, bags).tolist() == predict(chosen.model, bags).tolist()


@pytest.mark.parametrize("name", ["bag-statistics-extratrees", "bag-statistics-logistic"])
def test_statistics_of_bags_are_computed_once_for_all_folds_to_the_same_scores(name, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.arange(24) % 2
    bags = Bags.from_list([rng.normal(label, 1, (rng.integers(2, 9), 5)) for label in labels], labels)
    trials, method, seen = inner_trials(bags, np.arange(24), seed=0), make_candidate(name, (5,)).baseline, []
    expected = ModelBaseline.held_out(method, bags, trials)
    computed = type(method).statistics
    monkeypatch.setattr(type(method), "statistics", staticmethod(lambda *of: seen.append(len(of[1])) or computed(*of)))
    found = [*method.held_out(bags, trials)]
    assert seen == [24]
    for one, other in zip(found, expected, strict=True):
        assert one.tobytes() == other.tobytes()
