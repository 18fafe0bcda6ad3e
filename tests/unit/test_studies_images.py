"""The studies on images: splits, both views of a set, costs, intervals and verdicts by hand; each study in seconds."""

import dataclasses
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.nn.pooling import AttentionPooling, MaxPooling
from midam.nn.scorer import BagScorer
from midam.settings import Settings
from studies import paper_tables
from studies.__main__ import main
from studies.images import (
    changes,
    defaults,
    deletion,
    features,
    figure_attention,
    fine_tuning,
    table3,
)
from studies.images.cost import Cost, forward_flop, job_cost
from studies.images.design import (
    COLOR_BASELINES,
    METHODS,
    SMALLER,
    STACKED,
    VOXEL_BASELINES,
    Design,
    Recipe,
    limited,
)
from studies.images.results import Results
from studies.images.sets import image_splits, make_set
from studies.images.statistics import BagScores, compare_trials, weighted_aurocs
from studies.images.table3_page import body
from studies.images.trials import make_jobs, run_job, score_epochs, search
from studies.options import StudyOptions
from studies.registry import STUDIES, find_study

SIDE = 8


def draw(seed, *, channels=3, count=40, grouped=True, splits=False, size=4):
    """Bags of patches; the first patch of a positive bag is brighter."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    arrays = [rng.integers(0, 120, (size, channels, SIDE, SIDE)).astype(np.uint8) for _ in labels]
    for array, label in zip(arrays, labels):
        array[0] += np.uint8(120 * label)
    places = [np.stack([np.arange(size) * SIDE, np.zeros(size, int)], axis=1) for _ in labels]
    if channels == 1:
        places = [place[:, :1] // SIDE for place in places]
    return Bags.from_list(
        arrays,
        labels,
        coords=places,
        groups=[f"g{i // 2}" for i in range(count)] if grouped else None,
        splits=["train"] * (count * 3 // 4) + ["test"] * (count - count * 3 // 4) if splits else None,
    )


@pytest.fixture(scope="module")
def sets():
    """The three sets of the study, small."""
    volumes = draw(2, channels=1, grouped=False, splits=True)
    return {"breast": make_set(draw(0)), "colon": make_set(draw(1)), "adrenal": make_set(volumes, volumes=True)}


@pytest.fixture(scope="module")
def few():
    """The same with half the bags."""
    volumes = draw(2, channels=1, count=20, grouped=False, splits=True)
    own = {"breast": make_set(draw(0, count=20)), "colon": make_set(draw(1, count=20))}
    return {**own, "adrenal": make_set(volumes, volumes=True)}


def options(folder, **settings):
    return StudyOptions(out=folder / "out", cache=folder / "cache", smaller=True, **settings)


def page(folder, name):
    text = (folder / "out" / f"{name}.md").read_text(encoding="utf-8")
    for figure in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (folder / "out" / figure).exists()
    if name in STUDIES.names() and not re.search(r"^- Command: .*--quick", text, re.MULTILINE):
        assert find_study(name).store in ("", *re.findall(r"\[trials/(\S+)\.jsonl\.gz\]", text))
    return text


def test_weighted_aurocs_are_those_of_repeated_bags():
    rng = np.random.default_rng(0)
    labels, scores = np.arange(30) % 2, np.round(rng.random(30), 1)
    weights = rng.integers(0, 4, (5, 30))
    found = weighted_aurocs(labels, scores, weights.astype(float))
    assert found == pytest.approx([auroc(np.repeat(labels, w), np.repeat(scores, w)) for w in weights], abs=1e-12)
    assert weighted_aurocs(labels, scores, np.ones((1, 30)))[0] == pytest.approx(auroc(labels, scores), abs=1e-12)


def test_a_paired_interval_knows_equal_methods_and_better_ones():
    rng = np.random.default_rng(1)
    labels = np.arange(60) % 2
    units = np.arange(60)
    good, poor = labels + 0.8 * rng.random(60), rng.random(60)
    test = [np.arange(0, 30), np.arange(30, 60)]
    first, second = ([BagScores(t, scores[t]) for t in test] for scores in (good, poor))
    same = compare_trials(labels, units, first, first, ratio=1.0)
    assert (same.grouped.mean, same.grouped.low, same.grouped.high) == (0.0, 0.0, 0.0)
    better = compare_trials(labels, units, first, second, ratio=1.0)
    by_hand = np.mean([1.0 - auroc(labels[t], poor[t]) for t in test])
    assert better.grouped.mean == pytest.approx(by_hand)
    assert 0 < better.grouped.low < by_hand < better.grouped.high
    assert better.corrected[0] < better.grouped.mean < better.corrected[1]
    assert np.isnan(compare_trials(labels, units, first, second).corrected[0])


def test_the_interval_is_wider_for_groups_of_like_bags():
    rng = np.random.default_rng(2)
    scores, labels = np.repeat(rng.normal(size=40), 5), np.repeat(np.arange(40) % 2, 5)
    scores = scores + 0.8 * labels
    tested = [BagScores(np.arange(200), scores)]
    single = compare_trials(labels, np.arange(200), tested).grouped
    grouped = compare_trials(labels, np.repeat(np.arange(40), 5), tested).grouped
    assert grouped.high - grouped.low > 1.5 * (single.high - single.low)


def test_splits_test_each_bag_once_and_share_no_group(sets):
    bags = sets["breast"].bags
    recipe = Recipe(METHODS, (), epochs=1, instances=2, repeats=2, search=0.1)
    splits = image_splits(bags, recipe)
    assert len(splits) == 10
    for repeat in (0, 1):
        tested = np.concatenate([s.test for s in splits if s.split == repeat])
        assert sorted(tested.tolist()) == list(range(40))
    for split in splits:
        parts = [set(bags.groups[part]) for part in (split.train, split.val, split.test)]
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert len(split.train) + len(split.val) + len(split.test) == 40
    assert all(len(s.val) == 0 for s in image_splits(bags, dataclasses.replace(recipe, search=0.0)))


def test_published_test_bags_stay_the_test(sets):
    bags = sets["adrenal"].bags
    for split in image_splits(bags, Recipe(METHODS, (), epochs=1, instances=2, search=0.1)):
        assert split.test.tolist() == bags.where_split("test").tolist()
        assert len(split.val) == 6
        assert len(split.train) == 24


def test_a_stacked_bag_holds_its_patches_in_order_and_slices_at_their_places():
    arrays = [np.full((2, 1, 4, 4), 8, np.uint8), np.full((1, 1, 4, 4), 16, np.uint8)]
    bags = Bags.from_list(arrays, [0, 1], coords=[[[1], [3]], [[2]]])
    patches = make_set(bags).stacked
    assert patches.instance_shape == (1, 2, 4, 4)
    assert patches[0][0, 0, :, 0, 0].tolist() == [8, 8]
    volumes = make_set(bags, volumes=True)
    assert volumes.stacked[0][0, 0, :, 0, 0].tolist() == [0, 8, 0, 8]
    assert volumes.stacked[1][0, 0, :, 0, 0].tolist() == [0, 0, 16, 0]
    half = make_set(bags, volumes=True, halve=True)
    assert half.stacked[0][0, 0, :, 0, 0].tolist() == [4, 4]
    assert half.bags.sizes.tolist() == [2, 1]
    assert half.bags[1][0, 0, 0, 0] == 8
    assert half.bags.places(1).tolist() == [[1]]
    assert half.bags.labels.tolist() == [0, 1]


def test_a_limited_set_takes_from_all_groups():
    found = limited(draw(0), Design("d", {}, bags=5, instances=3))
    assert (found.labels.sum(), len(found)) == (5, 10)
    assert set(found.sizes) == {3}
    assert len(set(found.groups)) >= 5


def test_costs_by_hand(sets):
    recipe = Recipe(("dam-mb-att", "dam-att", "ce-3d"), (), epochs=10, instances=2, search=0.2, score_every=4, bags=2)
    cost = {job.method: job_cost(job) for job in make_jobs("breast", sets["breast"], recipe) if job.split.fold == 0}
    # 24 bags train, 8 validate, 8 test; 5 runs of 2 epochs search (3 rates, 2 more margins), 3 for cross-entropy.
    epochs = 10 + 5 * 2
    assert cost["dam-mb-att"] == Cost((3, 8, 8), epochs * 24 * 2, 3 * 16 * 4 + 5 * 8 * 4, epochs * 6)
    assert cost["dam-att"] == Cost((3, 8, 8), epochs * 24 * 4, 3 * 16 * 4 + 5 * 8 * 4, epochs * 6)
    assert cost["ce-3d"] == Cost((3, 4, 8, 8), 16 * 24, 3 * 16 + 3 * 8, 16 * 6)
    assert score_epochs(10, 4) == [4, 8, 10]
    assert cost["dam-mb-att"].flop == forward_flop((3, 8, 8)) * (3 * 960 + 352)


def test_flop_of_the_encoder_by_hand():
    # A product and a sum for each weight at each place; sides 32, 16, 8.
    first = 3 * 16 * 9 + 6 * 16 * 16 * 9
    second, third = (w * w // 2 * 9 + 5 * w * w * 9 for w in (32, 64))
    assert forward_flop((3, 32, 32)) == 2 * (first * 1024 + second * 256 + third * 64)


@pytest.mark.long
def test_the_search_takes_the_best_rate_and_then_the_best_margin(sets):
    recipe = Recipe(("dam-mb-att",), (), epochs=2, instances=2, lrs=(0.1, 1e-6), search=0.5, bags=2)
    lr, margin, tried = search(make_jobs("breast", sets["breast"], recipe)[0])
    assert [row[:2] for row in tried] == [[0.1, 1.0], [1e-6, 1.0], [lr, 0.5], [lr, 0.1]]
    assert lr == max(tried[:2], key=lambda row: row[2])[0]
    assert margin == max((row for row in tried if row[0] == lr), key=lambda row: row[2])[1]


def test_a_divergence_is_a_row_without_scores(sets):
    recipe = Recipe(("dam-mb-att",), (), epochs=2, instances=2, lrs=(1e30,), margins=(1.0,), bags=2)
    rows = run_job(make_jobs("breast", sets["breast"], recipe)[0])
    assert [row["test_last"] for row in rows] == [None]


@pytest.mark.long
def test_table3_runs_each_row_and_goes_on_where_it_was(tmp_path, few, monkeypatch):
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 10)
    table3.study(options(tmp_path), few)
    text = page(tmp_path, "table3")
    assert "No result" in text
    assert text.count("ran") >= 3 * len(METHODS)
    assert not re.search(r"0\.\d{3} \(", text)
    path = tmp_path / "cache" / "images.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    trials = [row for row in rows if "wall" not in row]
    assert {row["method"] for row in trials} == {*METHODS, *COLOR_BASELINES, *VOXEL_BASELINES}
    assert len(trials) == 3 * len(METHODS) + 2 * len(COLOR_BASELINES) + len(VOXEL_BASELINES)
    lost = next(row for row in trials if row["method"] == "midam-printed-att")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row is not lost))
    table3.study(options(tmp_path), few)
    added = [json.loads(line) for line in path.read_text().splitlines()][len(rows) - 1 :]
    assert [row.get("method") for row in added] == ["midam-printed-att", None]
    assert added[0]["test_last"] == lost["test_last"]


def written(sets, scores):
    """The page of a study whose test scores are given: a function of method and labels."""
    recipe = Recipe(
        ("dam-mb-att", "midam-printed-att"),
        COLOR_BASELINES,
        epochs=1,
        instances=2,
        search=0.1,
        lrs=(0.1,),
        margins=(1.0,),
    )
    design = Design("full", {"colon": recipe})
    own = {"colon": sets["colon"]}
    jobs, rows = make_jobs("colon", sets["colon"], recipe), []
    labels = sets["colon"].bags.labels
    for job in jobs:
        found = scores(job.method, labels[job.split.test]).tolist()
        trained = {"lr": None if job.method in COLOR_BASELINES else 0.1, "margin": 1.0, "epochs": 1, "device": "CPU"}
        rows.append({**job.trial, **trained, "test_best": found, "test_last": found, "seconds": 1.0})
    expected = {("colon", method): 1.0 for method in recipe.methods}
    return "\n".join(body(design, own, jobs, rows, expected=expected))


@pytest.mark.parametrize(("best", "verdict"), [("midam-printed-att", "Target met"), ("rgb-trees", "Target not met")])
def test_the_verdict_on_colon_is_that_of_the_scores(sets, best, verdict):
    rng = np.random.default_rng(0)
    text = written(sets, lambda method, y: y + 0.5 * rng.random(len(y)) if method == best else rng.random(len(y)))
    assert verdict in text
    sign = "+" if best == "midam-printed-att" else "-"
    assert re.search(
        rf"colon, MIDAM \(att\) minus {'rgb-trees' if sign == '-' else 'rgb-logistic'} \| 5 \| \d+ \| \{sign}0\.", text
    )
    assert ("above 0" if sign == "+" else "below 0") in text
    assert "| MIDAM (att) | " + ("1.000 (0.000)" if sign == "+" else "0.") in text
    assert "0.893 (0.080)" in text  # the paper's
    assert "Not run at this size: CE (3D)" in text


def test_equal_scores_resolve_nothing_and_do_not_meet_the_target(sets):
    text = written(sets, lambda method, y: np.linspace(0, 1, len(y)))
    assert "Target not met" in text
    assert re.search(r"minus DAM \(MB-att\) \| 5 \| \d+ \| \+0\.000 \[\+0\.000, \+0\.000\] \| - \| no \|", text)


def test_trials_that_diverged_are_left_out_of_both_methods(sets):
    recipe = Recipe(("dam-mb-att", "midam-printed-att"), (), epochs=1, instances=2, search=0.1)
    jobs = make_jobs("colon", sets["colon"], recipe)
    rows = {}
    for job in jobs:
        found = (
            None
            if (job.method, job.split.fold) == ("midam-printed-att", 2)
            else np.arange(len(job.split.test)).tolist()
        )
        rows.setdefault((job.name, job.method), []).append((job, {"test_best": found, "test_last": found}))
    results = Results(sets, rows)
    assert results.compare("colon", "midam-printed-att", "dam-mb-att").trials == 4
    assert results.compare("colon", "dam-mb-att").trials == 5


@pytest.mark.long
def test_a_trial_is_the_same_in_another_process(sets):
    recipe = dataclasses.replace(SMALLER.recipes["breast"], methods=("midam-printed-att", STACKED[0]), baselines=())
    for job in make_jobs("breast", sets["breast"], recipe):
        there = pickle.loads(pickle.dumps(job))
        assert there.trial == job.trial
        assert run_job(there)[0]["test_last"] == run_job(job)[0]["test_last"]


@pytest.mark.long
def test_optimizer_and_rate_of_a_set_are_chosen_by_the_other_sets(tmp_path, few):
    defaults.study(options(tmp_path), {name: found.bags for name, found in few.items()})
    text = page(tmp_path, "image-defaults")
    names = {defaults.name_of(*candidate) for candidate in defaults.CANDIDATES}
    assert set(re.findall(r"^\| ((?:sgd|adam) [\d.]+) \|", text, flags=re.MULTILINE)) == names
    chosen = dict(re.findall(r"^\| (breast|colon|adrenal) \| (.*) \|$", text, flags=re.MULTILINE))
    assert chosen.keys() == few.keys()
    assert set(chosen.values()) <= names
    rows = [json.loads(line) for line in (tmp_path / "cache" / "image-curves.jsonl").read_text().splitlines()]
    assert sum("wall" not in row for row in rows) == len(few) * len(names)


@pytest.mark.filterwarnings("ignore:freeze=")  # random weights are what is asked about
@pytest.mark.long
def test_each_change_for_images_is_trained_alone(tmp_path, few):
    changes.study(options(tmp_path), {name: found.bags for name, found in few.items()})
    text = page(tmp_path, "image-changes")
    found = re.findall(r"^\| ([^|]+) \|( [^|]+ \|){6} ([^|]+) \|$", text, flags=re.MULTILINE)
    assert [name for name, *_ in found] == ["change", *changes.CHANGES]
    assert found[1][-1] == "-"
    assert all(re.fullmatch(r"[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\]", told) for *_, told in found[2:])
    assert "By the rule: **" in text
    recipe = changes.recipes(options(tmp_path))["colon"]
    settings = {name: changes.make_arm(name, recipe, few["colon"].bags).recipe.others for name in changes.CHANGES}
    assert len({str(own) for own in settings.values()}) == len(changes.CHANGES)


def test_the_default_for_images_is_what_the_page_says_was_chosen():
    text = (Path(__file__).parents[2] / "records" / "image-defaults.md").read_text()
    way, lr = re.findall(r"Choice of all sets: \*\*(\w+) ([\d.]+)\*\*", text)[0]
    chosen = Settings().resolve((3, 32, 32)).training
    assert (chosen.optimizer, chosen.lr) == (way, float(lr))


def test_the_choice_of_a_set_knows_the_others_alone():
    found = {"a": {"x": 0.9, "y": 0.1}, "b": {"x": 0.4, "y": 0.6}, "c": {"x": 0.45, "y": 0.5}}
    assert defaults.choose({name: found[name] for name in "bc"}) == "y"
    assert defaults.choose({name: found[name] for name in "ac"}) == "x"  # equal ranks: the higher mean
    assert defaults.choose({"a": {"x": -1.0, "y": 0.5}}) == "y"


def test_the_figure_of_attention_shows_a_positive_and_a_negative_image(tmp_path, sets):
    figure_attention.study(options(tmp_path), sets["breast"].bags)
    text = page(tmp_path, "figure-attention")
    rows = re.findall(r"^\| \d+ \| 0\.\d{3} \| 4 \|.*\| (\w+) \| (\w+) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 2
    # By weight, and by what patches add to the score.
    assert {verdict for row in rows for verdict in row} <= {"lowers", "raises", "neither"}


@pytest.mark.parametrize("pooling", [AttentionPooling, MaxPooling])
def test_a_deletion_curve_is_the_scores_of_what_is_left_of_the_bag(pooling):
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(47, 3)).astype("f4"), rng.normal(size=(1, 3)).astype("f4")])
    model = BagScorer(torch.nn.Identity(), pooling(3))
    curve, alone = (deletion_of(model, bags, index, order) for index, order in enumerate((np.arange(47), np.arange(1))))
    assert alone is None
    for number in (0, 1, 20):
        leaves = deletion.step_of_each(np.arange(47), 20, 0)[number]
        left = [bags[0][leaves >= step] for step in range(20)]
        np.testing.assert_allclose(curve.share, [1 - len(part) / 47 for part in left], rtol=0, atol=1e-12)
        scores = curve.score if number == 0 else curve.random[number - 1]
        np.testing.assert_allclose(scores, predict(model, Bags.from_list(left)), rtol=0, atol=2e-6)


def deletion_of(model, bags, index, order):
    return deletion.measure_deletion(deletion.PooledBags(model, bags.subset([index]), chunk_size=10), order)


@pytest.mark.parametrize(
    ("area", "verdict"),
    [(0.4, "lowers"), (0.4989, "lowers"), (0.49999, "neither"), (0.60001, "neither"), (0.61, "raises")],
)
def test_a_difference_that_prints_as_nothing_is_none(area, verdict):
    chance = np.linspace(0.5, 0.6, 20)[:, None].repeat(2, axis=1)
    assert deletion.Deletion(np.array([0.0, 1.0]), np.array([area, area]), chance).verdict == verdict


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table3", "--size", "huge"], "size as one of full, small,"),
        (["table3", "--size", "small", "--quick"], "--quick or a --size"),
        (["table3", "--device", "tpu"], "device auto, cpu or cuda"),
        (["table2", "--size", "small"], "no --size with the study table2"),
        (["table3", "--margin", "0.1"], "no --margin with the study table3"),
    ],
)
def test_a_mistake_is_one_message_and_leaves_nothing(tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert main([*words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def vectors(seed, **how):
    """Bags of vectors of the patches of `draw`."""
    bags = draw(seed, **how)
    return features.with_means(bags.replace(instances=bags.instances.reshape(len(bags.instances), -1)[:, :12] / 255))


def few_rows(design, methods, *, name="breast"):
    """Rows of one set alone, each training of one epoch."""
    recipes = {
        key: dataclasses.replace(recipe, methods=methods if recipe.methods else (), baselines=recipe.baselines[1:])
        for key, recipe in features.smaller(design).recipes.items()
        if key.startswith(name)
    }
    return dataclasses.replace(features.smaller(design), recipes=recipes)


def test_table3_on_features_has_rows_by_group_and_as_the_paper(tmp_path):
    found, methods = {"breast": vectors(0)}, ("dam-3d", "midam-printed-att", "ce-smx")
    design = few_rows(features.FEATURES, methods)
    features.study(options(tmp_path), found, design)
    text = page(tmp_path, "table3-features")
    for method in methods:
        assert re.search(rf"^\| {re.escape(paper_tables.label(method))} \| \d.*? \| \d", text, re.MULTILINE)
    # A stacked bag is one vector, so that one row of it needs no pooling.
    jobs = make_jobs("x", found["breast"], design.recipes["breast"])
    assert {job.bags.sizes.max() for job in jobs if job.method in STACKED} == {1}
    assert main(["table3-features", "--size", "small", "--out", str(tmp_path)]) == 2


@pytest.mark.long
def test_fine_tuning_is_beside_the_frozen_vectors_of_the_same_patches(tmp_path):
    rng = np.random.default_rng(0)
    images = Bags.from_list([rng.integers(0, 255, (2, 3, 32, 32), dtype=np.uint8) for _ in range(40)], [0, 1] * 20)
    one = vectors(0).bags
    design = fine_tuning.smaller(fine_tuning.SMALL)
    kept = {name: recipe for name, recipe in design.recipes.items() if name.startswith("breast")}
    fine_tuning.study(options(tmp_path), {"breast": (images, one)}, dataclasses.replace(design, recipes=kept))
    text = page(tmp_path, "fine-tuning")
    for method in ("MIDAM (att)", "MIDAM (att), relative"):
        assert re.search(rf"^\| breast, fine-tuned \| {re.escape(method)} \| 1 \| \d", text, re.MULTILINE)
    assert "breast, fine-tuned: MIDAM (att) minus frozen: MIDAM (att) | 1 |" in text
