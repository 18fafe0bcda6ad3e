"""The studies of further methods for `auto`, of a network fitted to made-up bags, and of large sets, made small."""

import re

import numpy as np
import pytest
import torch

from midam.data.bags import Bags
from midam.errors import DataNotFoundError
from midam.evaluate.ranking import auroc
from midam.train.side import Trial
from studies.engine import Store
from studies.options import StudyOptions
from studies.synthetic import synthetic_sets
from studies.tabular import candidates, defaults_trials, large_sets, prior_fitted
from studies.tabular.prior_fitted import Prior, PriorFitted, Shape, predict


@pytest.fixture(scope="module")
def network() -> PriorFitted:
    torch.manual_seed(0)
    return PriorFitted(width=16, depth=2).eval()


def test_made_up_tasks_have_finite_features_and_both_labels():
    x, labels = Prior(torch.Generator().manual_seed(0)).draw(Shape(30, 48, 6, 5, 30))
    assert x.shape == (30, 48, 6, 5)
    assert torch.isfinite(x).all()
    assert set(labels.unique().tolist()) == {0.0, 1.0}
    assert ((labels.mean(dim=1) > 0.05) & (labels.mean(dim=1) < 0.95)).all()


def test_the_order_of_instances_features_and_labeled_bags_does_not_matter(network):
    for block in network.blocks:  # the last layer of a part begins at zero, which would hide every part
        for part in (block.rows, block.columns, block.bags):
            torch.nn.init.normal_(part.out.weight, std=0.5)
    x, labels = torch.randn(1, 12, 4, 5), (torch.arange(9) % 2).float()[None]
    bags = torch.cat([torch.randperm(9), torch.arange(9, 12)])
    moved = x[:, bags][:, :, torch.randperm(4)][..., torch.randperm(5)]
    with torch.no_grad():
        usual, permuted, flipped = (
            network(*args) for args in ((x, labels), (moved, labels[:, bags[:9]]), (x, 1 - labels))
        )
    torch.testing.assert_close(usual, permuted, rtol=1e-4, atol=1e-4)
    assert (usual - flipped).abs().max() > 1e-3


def test_a_bag_to_score_changes_no_other(network):
    x, labels = torch.randn(1, 12, 4, 5), (torch.arange(9) % 2).float()[None]
    other = x.clone()
    other[:, -1] += 5.0
    with torch.no_grad():
        torch.testing.assert_close(network(x, labels)[:, :-1], network(other, labels)[:, :-1])


def test_large_bags_and_many_features_are_sampled_and_seeds_repeat(network):
    sizes = torch.tensor([1, 40, 7, 13, 20, 3])
    instances = torch.randn(int(sizes.sum()), 70)
    instances[:, 0] = 1.0  # a constant
    given = (instances, sizes.cumsum(0) - sizes, sizes)
    known = torch.tensor([[0, 0], [1, 1], [2, 0], [3, 1]])
    first, again = (
        predict(network, *given, labels=known, test=torch.tensor([4, 5]), seed=0, views=2) for _ in range(2)
    )
    assert first.shape == (2,)
    assert torch.equal(first, again)
    assert ((first > 0) & (first < 1)).all()


@pytest.mark.long
def test_a_network_learns_from_made_up_bags(tmp_path):
    torch.manual_seed(0)
    network = PriorFitted(width=16, depth=1)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    prior_fitted.fit(network, seconds=3.0, device=torch.device("cpu"), cells=20_000)
    assert any((value != before[name]).any() for name, value in network.state_dict().items())
    prior_fitted.save(network, tmp_path / "network.pt")
    x, labels = torch.randn(1, 6, 2, 3), torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    with torch.no_grad():
        torch.testing.assert_close(
            network(x, labels), prior_fitted.load(tmp_path / "network.pt")(x, labels), rtol=0.05, atol=0.05
        )


@pytest.mark.parametrize("name", candidates.METHODS)
def test_each_method_ranks_bags_with_a_clear_witness(name):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    bags = [rng.normal(size=(6, 5)) for _ in labels]
    for bag, label in zip(bags, labels, strict=True):
        bag[0, :2] += 5.0 * label
    every = np.arange(60)
    found = candidates.METHODS[name](Bags.from_list(bags, labels), Trial(every[:40], every[40:], seed=0))
    assert auroc(labels[40:], found) >= 0.9


@pytest.mark.filterwarnings("ignore:Expected at least")
@pytest.mark.long
def test_a_small_study_of_methods_writes_its_page(tmp_path, monkeypatch, network):
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 10)
    monkeypatch.setattr("midam.methods.baselines._LOGISTIC_C", [1.0])
    monkeypatch.setattr("midam.methods.baselines._KERNEL_C", np.array([1.0]))
    monkeypatch.setattr("midam.methods.baselines._MAP_GAMMAS", np.ones(1))
    monkeypatch.setattr("midam.methods.auto.candidates._SHARES", (0.02,))
    monkeypatch.setattr("midam.methods.networks._EPOCHS", 2)
    monkeypatch.setattr(defaults_trials, "_FOLDS", 2)
    bags = synthetic_sets(bags=60)
    sets = {"musk1": bags["witness"], "fox": bags["sparse"], "colon_nuclei": bags["shift"]}
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    with pytest.raises(DataNotFoundError, match=r"prior-fitted\.pt"):
        candidates.study(options, sets)
    prior_fitted.save(network, options.cache / candidates.WEIGHTS)
    candidates.study(options, sets)
    text = (options.out / "candidates.md").read_text(encoding="utf-8")
    for name in (candidates.NETWORK, *candidates.METHODS):
        assert re.search(rf"^\| {name} \| [+-][\d.]+ \[[^\]]+\] \| [\d.]+ \| [^|]+ \| (yes|no) \|$", text, re.MULTILINE)
    assert len(re.findall(r"^\| (?:musk1|fox|colon_nuclei) \| ", text, re.MULTILINE)) == 6
    with Store(options.cache, candidates.NAME) as store:
        rows = store.select({"study": candidates.NAME})
    assert len(rows) == 3 * 2 * len(candidates.EVERY)
    for name in (*candidates.NETWORKS, candidates.POOLED):
        assert re.search(rf"^\| {name} \| [^|]+ \| - \| [^|]+ \| (yes|passes|no) \|$", text, re.MULTILINE)
    candidates.study(options, sets)
    with Store(options.cache, candidates.NAME) as store:
        assert store.select({"study": candidates.NAME}) == rows


@pytest.mark.long
def test_a_small_study_of_large_sets_writes_its_page(tmp_path):
    bags = synthetic_sets()
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    large_sets.study(options, {"physionet2012_icu": bags["witness"], "shift": bags["shift"]})
    text = (options.out / "large-sets.md").read_text(encoding="utf-8")
    assert text.count("By the rule: **") == 2
    assert (
        len(re.findall(r"^\| (?:physionet2012_icu|shift) \|(?: [\d.]+ \([+-][\d.]+\) \|){6}$", text, re.MULTILINE)) == 2
    )
    assert (
        len(re.findall(r"^\| (?:physionet2012_icu|shift) \|(?: [\d.]+ \([+-][\d.]+\) \|){8}$", text, re.MULTILINE)) == 2
    )


def test_one_bag_in_so_many_is_positive():
    bags = synthetic_sets(bags=99, every=33)["sparse"]
    assert (len(bags), int(bags.require_labels().sum())) == (99, 3)
