"""A trial is a trainer of its own; what diverges leaves the others alone."""

import numpy as np
import pytest
from tests.trainings import witness_bags

from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from midam.train.trainer import Trainer


def make_config(**settings):
    return Settings(**{"epochs": 3, "num_positive": 4, "num_negative": 4, "num_instances": 3, "members": 1, **settings})


def make_trials(bags, *, count=3, held=10):
    orders = [np.random.default_rng(k).permutation(len(bags)) for k in range(count)]
    return [Trial(np.sort(order[held:]), np.sort(order[: held - k]), seed=k) for k, order in enumerate(orders)]


def alone(config, bags, trial):
    trainer = Trainer(config.replace(seed=trial.seed), bags.subset(trial.train))
    scores = []
    trainer.fit(callbacks=[lambda own, row: scores.append(predict(own.model, bags.subset(trial.score)))])
    return np.stack(scores), [row["loss"] for row in trainer.history]


@pytest.mark.parametrize(
    "settings",
    [{}, {"members": 2}, {"anneal": 0.7, "pooling": "smoothed-max", "estimator": "minibatch"}, {"estimator": "exact"}],
    ids=str,
)
def test_every_trial_is_that_of_a_trainer_of_its_own(settings):
    bags, config = witness_bags(30), make_config(**settings)
    trials = make_trials(bags)
    for trial, result in zip(
        trials, train_trials(config, bags, trials, after=range(1, config.training.epochs + 1)), strict=True
    ):
        scores, loss = alone(config, bags, trial)
        assert result.scores.shape == (3, len(trial.score))
        np.testing.assert_array_equal(result.scores, scores)
        assert result.loss.tolist() == loss


def test_scores_are_those_after_the_epochs_that_are_asked_for():
    bags, config = witness_bags(30), make_config()
    trials = make_trials(bags, count=1)
    every, some, last = (train_trials(config, bags, trials, after=a)[0].scores for a in ((1, 2, 3), (1, 3), None))
    np.testing.assert_array_equal(every[[0, 2]], some)
    np.testing.assert_array_equal(every[[2]], last)


def test_a_trial_that_diverges_leaves_the_others_alone():
    bags = witness_bags(30)
    trials = make_trials(bags)
    # A training bag of the first trial alone holds values as large as bags may hold.
    only = sorted(set(trials[0].train) - set(trials[1].train))[0]
    x = np.array(bags.instances)
    x[bags.starts[only] : bags.starts[only] + bags.sizes[only]] = 1.8e19
    spoilt = Bags(x, starts=bags.starts, sizes=bags.sizes, labels=bags.labels)
    config = make_config(standardize=False, lr=1e30)
    lost = train_trials(config, spoilt, trials[:1], after=range(1, config.training.epochs + 1))[0]
    assert np.isnan(lost.scores[-1]).all()
    assert len(lost.loss) == 3
    other = Trial(trials[1].train, np.setdiff1d(trials[1].score, [only]), 1)
    sane = make_config(standardize=False)
    found = train_trials(sane, spoilt, [Trial(trials[0].train, trials[0].train[:2], 0), other])[1]
    np.testing.assert_array_equal(found.scores[0], alone(sane, bags, other)[0][-1])
