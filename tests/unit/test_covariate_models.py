"""Covariates in the model: the term and its gradients, all ways to score bags, trainings and ensembles."""

import copy

import numpy as np
import pytest
import torch
from tests.reference.cases import ALL, COLUMNED, make_bags, make_columns, make_model, sampled_batch, whole_batch
from tests.trainings import covariate_bags, train

from midam.data import CovariateCoder, Covariates, InstanceReader
from midam.data.batch import WholeBatch
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, ConfigError
from midam.evaluate.pooled import instance_scores
from midam.evaluate.predict import covariates_of, predict, stream_bags
from midam.evaluate.ranking import auroc
from midam.explain.explanation import explain_bag
from midam.nn import BagEnsemble, BagScorer, CovariateTerm
from midam.nn.objectives import BCELoss, PairwiseAUCLoss
from midam.nn.scorer import column_of, without_standardizer
from midam.runs.instance_files import write_instance_scores
from midam.settings import Settings
from midam.sklearn import MIDAMClassifier
from midam.train.estimators import MiniBatch, VarianceReduced
from midam.train.exact import Exact, ExactPoint
from midam.train.trainer import Trainer, build_training

AREA = 0.75  # of the covariate of `covariate_bags`


def beside(count, seed=0):
    rng = np.random.default_rng(seed)
    return Covariates.of({"age": rng.normal(60, 9, count), "sex": np.resize(["f", "m"], count)})


def with_term(model, bags, *, seed=1):
    """The same scorer with a term of some weights."""
    term = CovariateTerm(CovariateCoder.fit(bags.covariates), columns=model.pooling.columns)
    torch.manual_seed(seed)
    torch.nn.init.normal_(term.weight)
    return BagScorer(model.encoder, model.pooling, covariates=term).to(next(model.parameters()).dtype)


def known_bags(**how):
    bags = make_bags(**how)
    return bags.replace(covariates=beside(len(bags)))


def flat(parameters):
    return torch.cat([p.grad.flatten() for p in parameters])


# The term.


@pytest.mark.parametrize(("pooling", "options"), COLUMNED)
def test_the_logit_is_that_of_the_pooling_and_the_term(pooling, options):
    for plain in (make_model(pooling), make_columns(pooling, **options)):
        bags = known_bags()
        model, batch = with_term(plain, bags), whole_batch(bags)
        x, sizes = batch.reader.all, batch.sizes
        known = covariates_of(model, bags)
        alone, found = plain(x, sizes), model(x, sizes, covariates=known)
        w = model.covariates.weight.detach().numpy().reshape(plain.pooling.columns, -1)
        added = [[sum(float(a) * b for a, b in zip(row, own)) for own in w] for row in known.tolist()]
        expected = alone.logit.detach().numpy().reshape(len(bags), -1) + np.array(added)
        np.testing.assert_allclose(found.logit.detach().numpy().reshape(len(bags), -1), expected, rtol=1e-9)
        np.testing.assert_allclose(found.score.detach(), torch.sigmoid(found.logit.detach()), rtol=1e-12)
        assert found.score.shape == alone.score.shape


def test_a_new_term_changes_no_score():
    bags = known_bags()
    plain, coder = make_model("attention"), CovariateCoder.fit(bags.covariates)
    model = BagScorer(plain.encoder, plain.pooling, covariates=CovariateTerm(coder).double())
    x, sizes = torch.from_numpy(bags.instances), torch.from_numpy(bags.sizes)
    found = model(x, sizes, covariates=covariates_of(model, bags))
    np.testing.assert_array_equal(found.logit.detach(), plain(x, sizes).logit.detach())


def estimators(model, bags):
    size, branches = model.pooling.value_size, model.pooling.branches
    return {
        "exact": Exact(chunk_size=100),
        "exact in chunks": Exact(chunk_size=5),
        "minibatch": MiniBatch(),
        "vrsp": VarianceReduced(len(bags), size, branches=branches, state_rate=1.0),
        "exact-point": ExactPoint(num_instances=50, chunk_size=5),
    }


@pytest.mark.parametrize("objective", [PairwiseAUCLoss, BCELoss])
@pytest.mark.parametrize("pooling", ALL)
def test_gradients_of_any_estimator_that_sees_all_equal_autograd_of_the_whole(pooling, objective):
    bags = known_bags()
    raw = not objective.squash and pooling in ("mean", "max", "smoothed-max")
    model = with_term(make_model(pooling, objective="bce" if raw else "minmax-auc"), bags)
    known, batch = covariates_of(model, bags), whole_batch(bags)
    loss = objective()
    parameters = list(model.parameters())
    loss(model(batch.reader.all, batch.sizes, covariates=known), batch.labels.double()).backward()
    expected = flat(parameters)
    # The last column, of rare categories, is 0 in all bags.
    assert (model.covariates.weight.grad != 0).tolist() == [True, True, True, False]
    for name, estimator in estimators(model, bags).items():
        if not model.pooling.statistic.trackable and estimator.needs_trackable:
            continue
        given = batch if estimator.whole else sampled_batch(bags, [range(n) for n in bags.sizes])
        given = type(given)(**{**vars(given), "covariates": known})
        for p in parameters:
            p.grad = None
        loss(estimator(model, given), batch.labels.double()).backward()
        np.testing.assert_allclose(flat(parameters), expected, rtol=1e-6, atol=1e-12, err_msg=name)


def test_the_state_is_that_of_the_pooling_alone():
    bags = known_bags()
    plain = make_model("attention")
    states = []
    for model in (plain, with_term(plain, bags)):
        estimator = VarianceReduced(len(bags), model.pooling.value_size)
        batch = sampled_batch(bags, [range(min(n, 3)) for n in bags.sizes])
        batch = type(batch)(**{**vars(batch), "covariates": covariates_of(model, bags)})
        estimator.commit(estimator(model, batch).score.sum().detach())
        states.append(estimator.bag_state.clone())
    assert torch.equal(*states)


def test_covariates_that_are_not_passed_are_missed():
    bags = known_bags()
    model, batch = with_term(make_model("mean"), bags), whole_batch(bags)
    with pytest.raises(ConfigError, match=r"Expected the covariates of the model \(age, sex\)"):
        model(batch.reader.all, batch.sizes)
    for estimator in (Exact(chunk_size=5), Exact(chunk_size=100)):
        with pytest.raises(ConfigError, match="Expected the covariates of the model"):
            estimator(model, batch)
    with pytest.raises(BagDataError, match="Expected the covariates age, sex"):
        predict(model, bags.replace(covariates=None))


# What scores bags.


@pytest.mark.parametrize("columns", [1, 3])
def test_all_ways_to_score_bags_agree(columns, tmp_path):
    bags = known_bags(dtype=np.float32)
    made = [make_model("attention", seed=seed, columns=columns, dtype=torch.float32) for seed in (0, 1)]
    coder = CovariateCoder.fit(bags.covariates)
    members = [with_term(model, bags, seed=seed) for seed, model in enumerate(made)]
    for member in members:
        member.covariates.coder = coder
    model = BagEnsemble(members)
    known = covariates_of(model, bags)
    x, sizes = torch.from_numpy(bags.instances), torch.from_numpy(bags.sizes)
    expected = model(x, sizes, covariates=known).detach().numpy()
    np.testing.assert_allclose(predict(model, bags), expected, rtol=1e-5)
    np.testing.assert_allclose(predict(model, bags, chunk_size=3), expected, rtol=1e-5)
    np.testing.assert_allclose(predict(without_standardizer(model), bags), expected, rtol=1e-5)
    batch = WholeBatch.unlabeled(InstanceReader(bags), torch.tensor([4, 0]), known)
    of_first = model.members[0](x, sizes, covariates=known).score.detach()
    np.testing.assert_allclose(stream_bags(model.members[0], batch, chunk_size=3).score, of_first[[4, 0]], rtol=1e-5)
    # Of a bag of one instance, that instance scores as the bag does.
    single = int(np.flatnonzero(bags.sizes == 1)[0])
    for column in range(columns):
        found = instance_scores(model, bags, single, column=column)
        np.testing.assert_allclose(found.score[0], expected.reshape(len(bags), -1)[single, column], rtol=1e-5)
    explained = explain_bag(model, bags, 0, column=columns - 1)
    of_column = expected.reshape(len(bags), -1)[:, columns - 1]
    np.testing.assert_allclose(explained.score, of_column[0], rtol=1e-5)
    alone = explain_bag(model, bags.subset([single]), 0, column=columns - 1)
    np.testing.assert_allclose(alone.contribution, of_column[[single]], rtol=1e-5)
    names = [f"c{column}" for column in range(columns)]
    np.testing.assert_allclose(write_instance_scores(model, bags, tmp_path, columns=names), expected, rtol=1e-5)


def test_members_take_the_same_covariates():
    bags = known_bags()
    one, other = with_term(make_model("mean"), bags), with_term(make_model("mean"), bags.subset([0, 1, 2, 3, 4]))
    for members in ([one, other], [one, make_model("mean")]):
        with pytest.raises(ValueError, match=r"Expected .*covariates in all members"):
            BagEnsemble(members)
    assert column_of(one, 0) is one


# Trainings.


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_covariate_of_a_known_auroc_is_found_where_instances_are_noise(missing):
    bags, held = covariate_bags(200, missing=missing), covariate_bags(2000, seed=1, missing=missing)
    trainer = train(Trainer(Settings(epochs=12, members=1, pooling="mean", estimator="minibatch", hidden=()), bags))
    known = np.isfinite(held.covariates.columns[0])
    found = auroc(held.labels[known], trainer.scores(held, trainer.reader(held))[known])
    # 0.02 is two standard errors of an AUROC of .75 on these bags; the training bags cost as much again.
    assert abs(found - AREA) < 0.04
    assert abs(auroc(held.labels[known], held.covariates.columns[0][known]) - AREA) < 0.025


def test_without_covariates_bags_train_bit_for_bit_as_ever():
    bags = covariate_bags(24)
    settings = Settings(epochs=2, members=1)
    plain = train(Trainer(settings, bags.replace(covariates=None)))
    again = train(Trainer(settings, bags.replace(covariates=None)))
    own = train(Trainer(settings, bags))
    first, second = plain.model.state_dict(), again.model.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert own.model.state_dict().keys() - first.keys() == {
        "members.0.covariates.weight",
        "members.0.covariates._extra_state",
    }
    # First weights are those of a scorer without the term: it draws nothing.
    fresh, other = Trainer(settings, bags).model.state_dict(), Trainer(settings, bags.replace(covariates=None))
    assert all(torch.equal(fresh[name], x) for name, x in other.model.state_dict().items())


@pytest.mark.parametrize("how", [{"estimator": "vrsp"}, {"estimator": "exact"}])
def test_a_resumed_training_goes_on_bit_for_bit(how):
    bags = covariate_bags(30, sex=np.resize(["f", "m", None], 30))
    settings = Settings(epochs=4, members=2, **how)
    whole, first, second = (Trainer(settings, bags) for _ in range(3))
    train(whole)
    train(first, 2)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(second)
    one, other = whole.model.state_dict(), second.model.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert whole.history == second.history


def test_codes_are_learned_from_training_bags_alone():
    bags = covariate_bags(40, site=np.repeat(["a", "b", "c", "late"], 10))
    rows = np.arange(40)
    with pytest.warns(UserWarning, match="10 of 10 bags have a site that no training bag had: late"):
        trainer = Trainer(Settings(epochs=1), bags.subset(rows[:30]), bags.subset(rows[30:]))
    assert trainer.model.members[0].covariates.coder == CovariateCoder.fit(bags.covariates.subset(rows[:30]))
    ages = bags.covariates.columns[0][:30]
    assert trainer.model.members[0].covariates.coder.codes[0].center == pytest.approx(ages.mean())


def test_every_target_takes_covariates():
    rng = np.random.default_rng(0)
    plain = covariate_bags(36)
    outcomes = {
        "multiclass": (rng.integers(0, 3, 36), ("a", "b", "c")),
        "multilabel": (rng.integers(0, 2, (36, 2)), ("p", "q")),
        "ordinal": (rng.integers(0, 3, 36), ("1", "2", "3")),
        "survival": (np.stack([rng.integers(1, 9, 36), rng.integers(0, 2, 36)], axis=1), ("time", "event")),
    }
    for target, (values, names) in outcomes.items():
        bags = plain.replace(labels=None, outcome=TargetLabels.of(target, values, names=names))
        trainer = train(Trainer(Settings(epochs=1, members=1, attention="per-class"), bags))
        term = trainer.model.members[0].covariates
        columns = trainer.target.count
        assert term.weight.shape == ((1,) if columns == 1 else (columns, 1))
        assert (term.weight != 0).all()
        assert np.isfinite(trainer.scores(bags, trainer.reader(bags))).all()


def test_a_loop_of_ones_own_sees_covariates():
    bags = covariate_bags(20)
    for estimator in ("vrsp", "exact"):
        training = build_training(Settings(estimator=estimator), bags)
        with training.epoch(0) as batches:
            output = training.estimator(training.trained, next(batches))
        output.logit.sum().backward()
        assert output.shift.shape == output.score.shape
        assert training.model.covariates.weight.grad is not None


def test_counts_are_chosen_with_covariates():
    bags = covariate_bags(24)
    settings = Settings(epochs=2, members=1, num_instances="auto")
    trainer = Trainer(settings, bags)
    assert np.isfinite(train(trainer).history[-1]["loss"])


def test_a_classifier_takes_bags_with_covariates(tmp_path):
    bags = covariate_bags(40)
    found = MIDAMClassifier(epochs=3, members=1).fit(bags)
    assert found.predict_proba(bags).shape == (40, 2)
    found.save(tmp_path / "run")
    again = MIDAMClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(found.bag_scores(bags), again.bag_scores(bags))
    assert found.model_.members[0].covariates.coder == again.model_.members[0].covariates.coder
    with pytest.raises(BagDataError, match="Expected the covariates age"):
        found.predict(bags.replace(covariates=None))
