"""`witness-search`: whose marks decide, what is found, and that it reads bags in parts."""

import json

import numpy as np
import pytest

from midam.cli import main
from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.explain.explanation import explain_bag
from midam.methods import witness_search
from midam.methods.witness_search import MOST_MARKS, Layout, Marks, WitnessSearch, next_marks, pooled, top_marks
from midam.nn.pooling.maximum import MaxPooling, SmoothedMaxPooling


def needle_bags(count: int = 60, size: int = 20, *, seed: int = 0, **fields) -> tuple[Bags, np.ndarray]:
    """Bags of which the odd ones hold one witness, far from all others; and which instances are witnesses."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, size, 6)).astype(np.float32)
    witness = np.zeros((count, size), dtype=bool)
    witness[np.arange(1, count, 2), rng.integers(size, size=count // 2)] = True
    x[witness, :2] += 4.0
    labels = np.arange(count) % 2
    return Bags.from_list(list(x), labels, **fields), witness.reshape(-1)


def search_of(bags: Bags) -> tuple[witness_search._Search, witness_search._Space]:
    return witness_search._Search(bags, seed=0), witness_search._space(bags, seed=0, shared=False)


def other_mark(marks: Marks, bag: int, first: np.ndarray) -> Marks:
    """The same marks, but for another instance of one bag."""
    rows, at = marks.rows.copy(), int(np.flatnonzero(marks.bag == bag)[0])
    rows[at] = first[bag] + (rows[at] - first[bag] + 1) % 20
    return Marks(rows, marks.bag, marks.weight)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_mark_of_a_bag_never_decides_its_next_mark(grouped):
    """Not a bit of the scores of a bag, or of another bag of its group, depends on its mark; other bags' scores do."""
    groups = np.arange(60) // 4 if grouped else None
    bags, _ = needle_bags(groups=groups)
    search, space = search_of(bags)
    layout, bag = search.layout, 7
    marks, none = top_marks(layout, np.arange(len(layout.bag)) % 20 * 1.0), [np.empty(0, np.int64)] * layout.folds

    def marked_twice(first: Marks) -> tuple[np.ndarray, Marks]:
        scores, hard = search.one_round(space, first, none)
        between = next_marks(layout, scores, scores, share=0.0, several=False)
        # In the second round the bag's changed mark has trained the models of other folds; its own is put back.
        second = Marks(np.where(between.bag == bag, first.rows, between.rows), between.bag, between.weight)
        again, _ = search.one_round(space, second, hard)
        return scores, next_marks(layout, again, again, share=0.0, several=True)

    scores, changed = (marked_twice(each)[0] for each in (marks, other_mark(marks, bag, layout.first)))
    inside = layout.fold[layout.bag] == layout.fold[bag]
    assert np.array_equal(scores[inside], changed[inside])
    assert not np.array_equal(scores[~inside], changed[~inside])
    novelty = np.zeros(len(scores))
    for several in (False, True):
        both = [next_marks(layout, s, novelty, share=1.0, several=several) for s in (scores, changed)]
        rows, weights = zip(*((m.rows[m.bag == bag], m.weight[m.bag == bag]) for m in both))
        assert np.array_equal(*rows)
        assert np.array_equal(*weights)
    if grouped:
        folds = [set(layout.fold[np.asarray(bags.groups) == group]) for group in np.unique(bags.groups)]
        assert all(len(fold) == 1 for fold in folds)


def test_it_finds_the_witnesses_and_shows_them():
    bags, _ = needle_bags()
    model = WitnessSearch().scorer(bags, seed=0)
    test, known = needle_bags(seed=1)
    assert auroc(test.require_labels(), predict(model, test)) > 0.95
    tops = [int(explain_bag(model, test, bag).order[0]) for bag in range(1, 60, 2)]
    assert np.mean([known[bag * 20 + top] for bag, top in zip(range(1, 60, 2), tops)]) > 0.9
    scores = predict(model, test)
    assert abs(scores[1::2].mean() - scores[::2].mean()) > 0.5
    assert 0 < scores.min() < scores.max() < 1


def test_bags_on_disk_in_small_chunks_give_the_same_model(tmp_path, monkeypatch):
    bags, _ = needle_bags()
    wanted = predict(WitnessSearch().scorer(bags, seed=0), bags)
    np.save(tmp_path / "x.npy", np.asarray(bags.instances))
    on_disk = bags.replace(instances=np.load(tmp_path / "x.npy", mmap_mode="r"), digests=None)
    monkeypatch.setattr(witness_search, "usual_chunk", lambda _: 37)
    np.testing.assert_allclose(predict(WitnessSearch().scorer(on_disk, seed=0), bags), wanted, rtol=0, atol=1e-3)


def test_of_larger_bags_equally_many_instances_are_searched_at_random():
    x = [np.full((size, 2), number) + [[0.0, row] for row in range(size)] for number, size in enumerate((9, 3, 400))]
    bags = Bags.from_list(x, [0, 1, 1], groups=["a", "b", "b"], weights=[1, 2, 3])
    assert witness_search._some_instances(bags, np.inf, seed=0) is bags
    some = witness_search._some_instances(bags, 10, seed=0)
    assert some.sizes.tolist() == [9, 3, 128]
    assert (some.labels.tolist(), some.groups.tolist(), some.weights.tolist()) == (
        [0, 1, 1],
        ["a", "b", "b"],
        [1, 2, 3],
    )
    np.testing.assert_array_equal(some[1], bags[1])
    rows = some[2][:, 1] - 2
    assert len(np.unique(rows)) == 128
    assert rows.max() > 300
    assert witness_search._some_instances(bags, 3 * 2 * 200, seed=0).sizes.tolist() == [9, 3, 200]


def test_a_subset_of_bags_reads_its_own_instances():
    """The numbers of instances are not their positions in the array, once bags are left out or in another order."""
    bags, _ = needle_bags()
    order = np.random.default_rng(0).permutation(60)[:50]
    some = bags.subset(order)
    alone = Bags.from_list([np.asarray(bags[i]) for i in order], bags.require_labels()[order])
    found = [predict(WitnessSearch().scorer(part, seed=0), bags) for part in (some, alone)]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)


def test_features_with_one_unit_keep_it():
    """A witness in four loud features beside 196 that only rustle: one scale for all is chosen."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 20, 200)) * np.where(np.arange(200) < 4, 1.0, 0.02)
    x[1::2, 3, :2] += 3.0
    model = WitnessSearch().scorer(Bags.from_list(list(x.astype(np.float32)), np.arange(60) % 2), seed=0)
    assert len(np.unique(model.standardizer.scale.numpy())) == 1


def test_wrong_labels_of_bags_get_little_weight():
    """A positive bag whose best instance is below the median of the negative bags is trusted little."""
    layout = Layout(np.arange(0, 12, 2), np.full(6, 2), np.arange(6) % 2 == 1, np.zeros(6, np.int64))
    highest = np.array([0.3, 0.9, 0.4, 0.2, 0.5, 0.8])
    scores = np.stack([highest, highest - 1], axis=1).reshape(-1)
    marks = next_marks(layout, scores, np.zeros(12), share=0.0, several=False)
    assert marks.bag.tolist() == [1, 3, 5]
    assert marks.weight.tolist() == [1.0, 0.02, 1.0]


def test_several_marks_share_the_weight_of_their_bag():
    layout = Layout(np.array([0, 20]), np.array([20, 3]), np.array([True, False]), np.zeros(2, np.int64))
    scores = np.append(np.linspace(0, 1, 20), [0.1, 0.2, 0.48])
    marks = next_marks(layout, scores, np.zeros(23), share=0.0, several=True)
    assert marks.rows.tolist() == list(range(10, 20))
    assert len(marks.rows) == MOST_MARKS
    assert marks.weight.sum() == pytest.approx(1)
    assert next_marks(layout, scores, np.zeros(23), share=0.0, several=False).rows.tolist() == [19]


def test_pooled_scores_are_those_of_the_poolings():
    layout = Layout(np.array([0, 2]), np.array([2, 1]), np.array([True, False]), np.zeros(2, np.int64))
    scores = np.array([1.0, 3.0, -2.0])
    assert pooled(layout, scores, 0.0).tolist() == [3.0, -2.0]
    np.testing.assert_allclose(pooled(layout, scores, 1e4), [2.0, -2.0], atol=1e-3)
    smooth = pooled(layout, scores, 0.5)
    np.testing.assert_allclose(smooth, [0.5 * np.log((np.exp(2) + np.exp(6)) / 2), -2.0])


def test_where_all_instances_matter_scores_are_pooled_smoothly():
    rng, labels = np.random.default_rng(0), np.arange(120) % 2
    x = rng.normal(size=(120, 30, 3)) + 0.3 * labels[:, None, None]
    bags = Bags.from_list(list(x.astype(np.float32)), labels)
    model = WitnessSearch().scorer(bags, seed=0)
    assert isinstance(model.pooling, SmoothedMaxPooling)
    filled = WitnessSearch().empty(bags.instance_shape, model.state_dict())
    filled.load_state_dict(model.state_dict())
    assert predict(filled, bags).tolist() == predict(model, bags).tolist()


@pytest.mark.parametrize("count", [2, 3])
def test_few_bags_without_folds_are_marked_by_novelty(count):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(8, 4)) for _ in range(count)]
    parts[1][5] += 20
    bags = Bags.from_list(parts, [0, 1, 0][:count])
    model = WitnessSearch().scorer(bags, seed=0)
    assert isinstance(model.pooling, MaxPooling)
    assert int(explain_bag(model, bags, 1).order[0]) == 5


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 3)])
def test_any_shape_of_instances(shape):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(5, *(shape or (1,)))) for _ in range(20)]
    for part in parts[1::2]:
        part[0] += 3
    bags = Bags.from_list(parts, np.arange(20) % 2)
    assert auroc(bags.require_labels(), predict(WitnessSearch().scorer(bags, seed=0), bags)) > 0.8


def test_bags_that_are_all_alike_have_a_model():
    bags = Bags.from_list([np.ones((3, 2), np.float32)] * 20, np.arange(20) % 2)
    scores = predict(WitnessSearch().scorer(bags, seed=0), bags)
    assert len(set(scores.tolist())) == 1
    assert np.isfinite(scores).all()


@pytest.mark.long
def test_the_command_line_fits_explains_and_exports(tmp_path, capsys):
    bags, _ = needle_bags()
    data, run = tmp_path / "bags.npz", str(tmp_path / "run")
    np.savez(data, X=bags.instances, bag=np.repeat(np.arange(60), 20), y=bags.require_labels())
    assert main(["fit", str(data), "--method", "witness-search", "--out", run]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["method"] == {"name": "witness-search"}
    assert main(["predict", run, str(data), "--out", str(tmp_path / "scores.csv")]) == 0
    assert main(["explain", run, str(data), "--bags", "1", "--out", str(tmp_path / "why")]) == 0
    assert main(["export", run, "--out", str(tmp_path / "export")]) == 0
    assert (tmp_path / "export" / "chunk.pt2").exists()
