"""Batches balanced by site: shares of the sites in each class, resume, every target, and what cannot be balanced."""

import warnings

import numpy as np
import pytest
from tests.trainings import outcome_bags, witness_bags

from midam.compare import run_comparison
from midam.compare.folds import repeated_folds
from midam.data import write_npz
from midam.data.bags import Bags
from midam.data.sampling import BagSampler, StrataSampler
from midam.errors import BagDataError, CheckpointError, ConfigError, RunStoppedError
from midam.evaluate.ranking import auroc
from midam.methods.callbacks import Callbacks
from midam.report.words import as_flags
from midam.runs.apply import predict_run, read_for
from midam.runs.fit import fit_run, resume_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run
from midam.settings import Settings
from midam.sklearn import MIDAMClassifier
from midam.targets import target_of
from midam.train.side import Trial, train_trials
from midam.train.trainer import build_training

pytestmark = pytest.mark.filterwarnings("ignore:sites.*:UserWarning")
# Site A sends positive bags, site C negative ones.
LABELS = np.repeat([1, 1, 1, 0, 0, 0], [24, 9, 3, 3, 11, 22])
SITES = np.repeat(["A", "B", "C", "A", "B", "C"], [24, 9, 3, 3, 11, 22])


def sampler_of(kind, *, sites=SITES, labels=LABELS, **changes):
    how = {"num_positive": 4, "num_negative": 4, "num_instances": 2, "seed": 3, "sites": sites, **changes}
    return kind(labels, np.full(len(labels), 5), **how)


def drawn(sampler, epochs=6):
    return np.concatenate([sampler.epoch().bags.numpy() for _ in range(epochs)])


@pytest.mark.parametrize("kind", [BagSampler, StrataSampler])
def test_the_bags_of_each_class_come_from_the_sites_in_equal_shares(kind):
    steps = drawn(sampler_of(kind))
    assert all(len(set(row)) == 8 for row in steps.tolist())
    for label in (0, 1):
        counts = np.zeros(3, dtype=int)
        for row in steps:
            assert (LABELS[row] == label).sum() == 4
            own = [((LABELS[row] == label) & (SITES[row] == site)).sum() for site in "ABC"]
            assert max(own) - min(own) <= 1
            counts += own
            assert counts.max() - counts.min() <= 1
        for site in "ABC":
            visits = np.bincount(steps.ravel(), minlength=len(LABELS))[(label == LABELS) & (site == SITES)]
            assert visits.max() - visits.min() <= 1
            assert visits.min() >= 1


def test_batches_tell_nothing_of_the_class_by_the_site():
    # Two hospitals; of 60 bags of each, one sends 54 with the finding, the other 6.
    labels = np.repeat([1, 0, 1, 0], [54, 6, 6, 54])
    first = np.repeat([1, 1, 0, 0], [54, 6, 6, 54])

    def correlation(sites):
        steps = drawn(sampler_of(BagSampler, labels=labels, sites=sites))
        return np.corrcoef(labels[steps].ravel(), first[steps].ravel())[0, 1]

    assert correlation(None) == pytest.approx(0.8, abs=0.05)
    assert correlation(first) == pytest.approx(0.0, abs=1e-12)


def test_a_site_with_fewer_bags_than_its_turns_gives_all_and_the_others_the_rest():
    labels, sites = np.repeat([1, 0], 20), np.array(["big"] * 19 + ["small"] + ["big", "small"] * 10)
    for row in drawn(sampler_of(BagSampler, labels=labels, sites=sites, num_positive=6)):
        own = sites[row][labels[row] == 1]
        assert ((own == "small").sum(), (own == "big").sum()) == (1, 5)
    # All bags of a class, where it has no more than a batch asks for.
    with pytest.warns(UserWarning, match="a batch now holds 20 positive"):
        whole = sampler_of(BagSampler, labels=labels, sites=sites, num_positive=30)
    assert all(sorted(row[:20]) == list(range(20)) for row in drawn(whole, 2).tolist())


def test_without_sites_the_draws_are_keyed_as_ever():
    def order(members, purpose):
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([3, 0, purpose]))).permutation(members)

    row = sampler_of(BagSampler, sites=None).epoch().bags.numpy()[0]
    expected = [*order(np.flatnonzero(LABELS == 1), 1)[:4], *order(np.flatnonzero(LABELS == 0), 0)[:4]]
    assert row.tolist() == expected
    row = sampler_of(StrataSampler, sites=None).epoch().bags.numpy()[0]
    expected = [*order(np.flatnonzero(LABELS == 0), 3)[:4], *order(np.flatnonzero(LABELS == 1), 4)[:4]]
    assert row.tolist() == expected


@pytest.mark.parametrize("kind", [BagSampler, StrataSampler])
def test_a_sampler_goes_on_where_it_was_and_repeats_by_its_seed(kind):
    sampler = sampler_of(kind)
    before = sampler.epoch().bags.tolist()
    state, then = sampler.state_dict(), sampler.epoch().bags.tolist()
    other = sampler_of(kind)
    assert other.epoch().bags.tolist() == before
    fresh = sampler_of(kind)
    fresh.load_state_dict(state)
    assert fresh.epoch().bags.tolist() == then
    assert sampler_of(kind, seed=4).epoch().bags.tolist() != before
    with pytest.raises(CheckpointError, match="3 sites of a class"):
        fresh.load_state_dict(sampler_of(kind, sites=np.where(SITES == "A", "B", SITES)).state_dict())


def test_one_site_a_bag_is_needed():
    with pytest.raises(BagDataError, match="one site for each of the 72 bags"):
        sampler_of(BagSampler, sites=["A", "B"])


# Training.


def sited_bags(number=60, *, sites=("A",) * 6 + ("B",) * 2, **more):
    return witness_bags(number, **more).replace(sites=np.resize(sites, number))


def plan_of(bags, **changes):
    how = {"balance": "site", "epochs": 2, "num_positive": 3, "num_negative": 3, "num_instances": 2, **changes}
    return build_training(Settings(**how), bags)


@pytest.mark.parametrize("target", ["multiclass", "multilabel", "ordinal", "continuous", "survival"])
def test_every_target_is_balanced(target):
    bags = outcome_bags(target, 90).replace(sites=np.resize(["A"] * 5 + ["B"], 90))
    strata = target_of(bags).turns(target_of(bags).values(bags))
    steps = plan_of(bags).sampler.epoch().bags.numpy()
    for code in np.unique(strata):
        own = steps.ravel()[strata[steps.ravel()] == code]
        assert abs(np.sum(bags.sites[own] == "A") - np.sum(bags.sites[own] == "B")) <= 1
    # A step of the training goes through.
    assert np.isfinite(plan_of(bags).train_epoch(0)).all()


def test_sites_follow_the_bags_and_count_in_their_fingerprint():
    plain = witness_bags(6)
    bags = plain.replace(sites=["A", " B ", None, float("nan"), "", 3])
    assert bags.sites.tolist() == ["A", "B", "", "", "", "3"]
    assert bags.subset([5, 0]).sites.tolist() == ["3", "A"]
    assert bags.fingerprint() != plain.fingerprint() == bags.replace(sites=None).fingerprint()
    with pytest.raises(BagDataError, match="site"):
        plain.replace(sites=["A"])


def test_a_class_that_is_missing_at_a_site_is_named_once():
    # Positive bags have odd positions.
    bags = sited_bags(24, sites=("A", "A", "B", "A", "C", "C"))
    bags = bags.replace(sites=np.where((bags.sites == "C") & (bags.labels == 0), "D", bags.sites))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit = plan_of(bags, members=2)
    (warning,) = told
    assert str(warning.message) == (
        "balance by site: no training bags of stratum 0 at C; stratum 1 at B, D: "
        "class and site cannot be balanced there (in memory)"
    )
    sites = bags.sites[fit.sampler.epoch().bags.numpy()]
    assert {tuple(sorted(set(row[:3]))) for row in sites} <= {("A", "C")}
    outcome = outcome_bags("survival", 40)
    event = outcome.outcome.values[:, 1] == 1
    with pytest.warns(UserWarning, match=r"no training bags of stratum 1 at B: class"):
        plan_of(outcome.replace(sites=np.where(event, "A", np.resize(["A", "B"], 40)), outcome=few_events(outcome)))
    with pytest.warns(UserWarning, match="all training bags come from A: there is nothing to balance"):
        plan_of(sited_bags(sites=("A",)))


def few_events(bags):
    """The outcome with so few events that these are a stratum."""
    values = bags.outcome.values.copy()
    values[12:, 1] = 0
    return type(bags.outcome).of("survival", values, names=["time", "event"])


@pytest.mark.parametrize(
    ("sites", "error", "message"),
    [
        (None, ConfigError, r"bags with sites for `balance='site'`, got none .*site_column='site'"),
        (["A", "B", ""], BagDataError, r"a site of each training bag .*got none for 2, 5, 8, 11, 14 and 15 more"),
        (range(60), BagDataError, "several bags of each site"),
    ],
)
def test_what_cannot_be_balanced_is_refused(sites, error, message):
    bags = witness_bags(60).replace(sites=None if sites is None else np.resize(np.array(sites).astype(str), 60))
    with pytest.raises(error, match=f"(?s){message}"):
        plan_of(bags)


def test_a_site_that_sends_most_positive_bags_is_not_what_is_learned():
    rng = np.random.default_rng(0)

    def make(number, share):
        """Bags of two sites; at A this share is positive, at B the rest; a scanner shifts each instance from A."""
        first = np.arange(number) % 2 == 0
        labels = (rng.random(number) < np.where(first, share, 1 - share)).astype(np.int64)
        parts = rng.normal(size=(number, 8, 6))
        parts[:, 0, 0] += 1.5 * labels
        parts[:, :, 1] += first[:, None]
        return list(parts), labels, first

    (a, y, first), (more, others, at) = make(160, 0.9), make(200, 0.5)
    bags = Bags.from_list([*a, *more], np.append(y, others)).replace(sites=np.where(np.append(first, at), "A", "B"))
    trial = Trial(np.arange(160), np.arange(160, 360), seed=0)

    def scores(balance):
        config = Settings(balance=balance, epochs=30, members=1).resolve(bags.instance_shape)
        return train_trials(config, bags, [trial])[0].scores[-1]

    # How well the scores of new bags, in which the site tells nothing, rank the sites, and the classes.
    (by_site, by_class), (balanced_site, balanced_class) = (
        (auroc(at.astype(np.int64), found), auroc(others, found)) for found in (scores(None), scores("site"))
    )
    assert by_site > 0.9
    assert abs(balanced_site - 0.5) < 0.25
    assert balanced_class > by_class


def test_a_comparison_trains_on_balanced_batches():
    bags, settings = sited_bags(), Settings(balance="site", epochs=1, members=1)
    folds = repeated_folds(bags, repeats=1, folds=2)
    how = {"settings": settings, "measure_memory": False}
    names = ["midam", "instance-logistic-max"]
    found = run_comparison(bags, names, folds, **how).predictions
    plain = run_comparison(bags, names, folds, **{**how, "settings": settings.replace(balance=None)}).predictions
    scores = [table.loc[table["method"] == "midam", "score"] for table in (found, plain)]
    assert not np.allclose(*scores, rtol=1e-4)
    # What draws no batches is as it was.
    assert (found.drop(columns="score") == plain.drop(columns="score")).all(axis=None)
    others = [table.loc[table["method"] != "midam", "score"] for table in (found, plain)]
    np.testing.assert_array_equal(*others)


def test_a_classifier_takes_bags_with_sites():
    bags = sited_bags()
    with pytest.raises(ConfigError, match="bags with sites for `balance='site'`"):
        MIDAMClassifier(balance="site", epochs=1).fit(bags.replace(sites=None))
    model = MIDAMClassifier(balance="site", epochs=1, members=1).fit(bags)
    assert len(model.predict(bags.replace(sites=None))) == 60


# Runs.


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "bags.npz"
    write_npz(witness_bags(60), path)
    parts = dict(np.load(path))
    sites = np.repeat([1, 2], [44, 16])
    np.savez(path, **parts, site=sites, split=np.resize(["train"] * 4 + ["val", "val", "test", "test"], 60))
    return path


def settings_of(**changes):
    return Settings(epochs=3, members=2, balance="site", baseline=False, **changes)


@pytest.fixture(scope="module")
def run(data):
    with pytest.warns(UserWarning, match=r"sites: 2 in the column site \(1, 2\)"):
        fit_run(str(data), settings_of(), RunFolder(data.parent / "run"))
    return data.parent / "run"


def test_a_run_remembers_the_column_and_needs_it_no_more(run, data, tmp_path):
    assert "balance: site" in (run / "config.yaml").read_text()
    parts = dict(np.load(data))
    del parts["site"]
    np.savez(tmp_path / "new.npz", **parts)
    loaded = load_run(run)
    scores = [predict_run(loaded, read_for(loaded, str(path)))[0] for path in (data, tmp_path / "new.npz")]
    np.testing.assert_array_equal(*scores)


@pytest.mark.filterwarnings("ignore:the bag size predicts the label")
def test_a_table_with_the_column_is_scored_without_it(tmp_path):
    bags = witness_bags(40)
    of = np.repeat(np.arange(40), bags.sizes)
    rows = [f"{i},{bags.labels[i]},h{i // 2 % 3},{x[0]},{x[1]}" for i, x in zip(of, bags.instances)]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,label,hospital,x,y", *rows]))
    settings = Settings(epochs=1, members=1, balance="hospital", baseline=False)
    fit_run(str(tmp_path / "bags.csv"), settings, RunFolder(tmp_path / "run"))
    loaded = load_run(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_for(loaded, str(tmp_path / "bags.csv")).feature_names == ("x", "y")
    with pytest.raises(BagDataError, match="column 'place' of `site_column`"):
        fit_run(str(tmp_path / "bags.csv"), settings.replace(balance="place"), RunFolder(tmp_path / "no"))
    assert as_flags("'place' of `site_column`", ["balance"]) == "'place' of --balance"
    assert as_flags("'place' of `site_column`") == "'place' of --folds or --balance"
    with pytest.raises(ConfigError, match="`site_column`"):
        fit_run("digits", settings, RunFolder(tmp_path / "no"))
    with pytest.raises(ConfigError, match="no `balance` with the method"):
        fit_run("digits", Settings(balance="site"), RunFolder(tmp_path / "no"), method="bag-statistics-extratrees")


def test_a_stopped_run_goes_on_bit_for_bit_and_with_the_same_sites_alone(run, data, tmp_path):
    def stop(row, _):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    folder = RunFolder(tmp_path / "stopped")
    with pytest.raises(RunStoppedError, match="Continue with"):
        fit_run(str(data), settings_of(), folder, callbacks=Callbacks(on_epoch=stop))
    parts = dict(np.load(data))
    np.savez(tmp_path / "other.npz", **{**parts, "site": parts["site"][::-1]})
    with pytest.raises(CheckpointError, match="got other bags"):
        resume_run(str(tmp_path / "other.npz"), folder)
    resume_run(None, folder)
    for name in ("predictions.csv", "metrics.csv"):
        assert (folder.root / name).read_bytes() == (run / name).read_bytes()
