"""The page and the card of bags that are ranked by more than 0 and 1: their numbers are those of the summary."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests import judging
from tests.unit.test_report_page import CHOSEN, Reader

from midam.data.target_labels import TargetLabels
from midam.evaluate.subgroups import find_subgroups
from midam.export.card import card_text
from midam.export.run import describe, export_run
from midam.report.page.run_page import report_page
from midam.report.page.study import ScoredBags, Study
from midam.report.plot_scores import plot_survival
from midam.runs.apply import evaluate_bags, read_for
from midam.runs.data import SubgroupTable
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run
from midam.runs.report import recorded_parts, write_evaluation_report, write_run_report
from midam.runs.result import Result
from midam.settings import Settings

pytestmark = [pytest.mark.drawn, pytest.mark.filterwarnings("ignore:Expected scores that")]

TARGETS = ("multiclass", "multilabel", "ordinal", "continuous", "survival")
NAMES = {
    "multiclass": ["colon", "lung", "skin & <b>"],
    "multilabel": ["er", "pr", "her2"],
    "ordinal": ["low", "mid", "high"],
    "continuous": ["y"],
    "survival": ["time", "event"],
}


def outcome_of(target, count, *, seed=0):
    """An outcome that a number [N] decides, with some noise; returns both."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=count)
    noisy = signal + 0.5 * rng.normal(size=count)
    if target == "multilabel":
        values = np.stack([noisy > 0, noisy < 0.5, rng.random(count) < 0.4], axis=1).astype(float)
        values[rng.random(values.shape) < 0.1] = np.nan
        values[np.isnan(values).all(axis=1), 0] = 1
    elif target == "survival":
        values = np.stack([np.ceil(20 * np.exp(-noisy)), rng.random(count) < 0.6], axis=1).astype(float)
    elif target == "continuous":
        values = 10 * noisy
    else:
        values = np.digitize(noisy, [-0.5, 0.5])
    return TargetLabels.of(target, values, names=NAMES[target]), signal


def write_npz(path, target, *, count=120, seed=0):
    """Bags of 2 to 4 instances, of which the first knows the signal; two bags a patient."""
    outcome, signal = outcome_of(target, count, seed=seed)
    rng = np.random.default_rng(seed + 100)
    sizes = rng.integers(2, 5, count)
    x = rng.normal(size=(sizes.sum(), 3)).astype(np.float32)
    x[np.cumsum(sizes) - sizes, 0] += 2 * signal
    arrays = {
        "X": x,
        "bag": np.repeat(np.arange(count), sizes),
        "group": np.array([f"p{i // 2}" for i in range(count)]),
    }
    if target == "survival":
        arrays |= {"time": outcome.values[:, 0], "event": outcome.values[:, 1].astype(int)}
    elif target == "multilabel":
        arrays |= {"y": outcome.values, "names": np.array(outcome.names)}
    else:
        values = outcome.values[:, 0]
        arrays["y"] = values if target == "continuous" else np.array(outcome.names)[values.astype(int)]
    np.savez(path, **arrays)
    return path


def fit(folder, target, **settings):
    data = write_npz(folder / f"{target}.npz", target)
    grades = tuple(NAMES[target]) if target == "ordinal" else ()
    how = {"epochs": 2, "members": 1, "num_instances": 2, "lr": 0.05, "baseline": False, "grades": grades}
    fit_run(str(data), Settings(target=target, **how, **settings), RunFolder(folder / target))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of each target."""
    folder = tmp_path_factory.mktemp("outcomes")
    for target in TARGETS:
        fit(folder, target, test_fraction=0.2)
    return folder


def value_at(found, key):
    """What the dotted key names in a summary."""
    for part in key.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


WANTED = {
    "multiclass": [
        "auroc_macro",
        "accuracy",
        "balanced_accuracy",
        "per_class.lung.ap",
    ],
    "multilabel": ["auroc_macro", "auroc_weighted", "per_class.er.auroc", "per_class.her2.ap"],
    "ordinal": ["c_index", "quadratic_kappa", "accuracy"],
    "continuous": ["c_index", "spearman", "mae", "mae_constant"],
    "survival": ["c_index", "events", "median_follow_up", "risk_groups.0.events"],
}


@pytest.mark.parametrize("target", TARGETS)
def test_the_numbers_are_those_of_the_summary(made, target):
    page, summary = Reader(made / target / "report.html"), json.loads((made / target / "summary.json").read_text())
    assert set(WANTED[target]) <= set(page.numbers)
    assert all(value == value_at(summary["test"], key) for key, value in page.numbers.items())
    metric = next(key for key in ("auroc_macro", "c_index") if key in summary["test"])
    low, high = summary["test"][f"{metric}_ci95"]
    text = "".join(page.text)
    assert f"[{low:.3f}, {high:.3f}]" in text
    assert f"{summary['test'][metric]:.1%} of all" in text
    assert "--no-baseline" in text


@pytest.mark.drawn(False)  # `test_report_page.py` has pictures of one, and those of each target are of a single part
@pytest.mark.parametrize("target", TARGETS)
def test_the_page_of_a_cross_validated_run_has_the_numbers_of_its_summary(target, tmp_path):
    fit(tmp_path, target)
    page, summary = (
        Reader(tmp_path / target / "report.html"),
        json.loads((tmp_path / target / "summary.json").read_text()),
    )
    found, rows = summary["out_of_fold"], pd.read_csv(tmp_path / target / "predictions.csv")
    assert set(WANTED[target]) <= set(page.numbers)
    assert all(value == value_at(found, key) for key, value in page.numbers.items())
    metric = next(key for key in ("auroc_macro", "c_index") if key in found)
    low, high = found[f"{metric}_ci95"]
    text = " ".join(" ".join(page.text).split())
    assert f"{found[metric]:.1%} of all" in text
    assert f"[{low:.1%}, {high:.1%}]" in text
    assert f"{len(rows)} bags" in text
    assert "each scored by a model that has not seen it" in text
    assert f"cross-validated in {summary['folds']} folds" in text
    assert "compares bags of all folds" in text
    assert "bags of one fold" not in text
    run, other = tmp_path / target, write_npz(tmp_path / "other.npz", target, count=40, seed=5)
    trained = load_run(run)
    bags = read_for(trained, str(other))
    bags = bags.replace(ids=[f"new {number}" for number in range(40)], groups=[f"q{number}" for number in range(40)])
    path = write_evaluation_report(run, bags, evaluate_bags(trained, bags), data=str(other))
    card = card_text(trained, describe(trained), summary, ["safetensors"])
    for shown in (" ".join(Reader(path).text), card):  # the run has no validation bags
        assert "validation" not in shown
    assert "each bag was scored by a model of the other folds" in card


@pytest.mark.parametrize("target", TARGETS)
def test_the_page_stands_alone_and_counts_every_bag(made, target):
    content, page = (made / target / "report.html").read_text(), Reader(made / target / "report.html")
    assert re.findall(r"(?:https?:)?//[a-z]", content) == []
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= page.ids
    assert {"answer", "metrics", "caution", "bags", "made"} <= page.ids
    assert all(image["aria-label"] and image["role"] == "img" for image in page.images)
    assert content.count("<caption>") == content.count("<table")
    assert len(content) < 300_000
    assert "nan" not in re.findall(r"[a-z]+", " ".join(page.text).lower())
    table = " ".join(page.text).partition("Bags of each part")[2].partition("Reading")[0].split()
    for split, rows in pd.read_csv(made / target / "predictions.csv").groupby("split"):
        counts = {str(len(rows)), str(rows["group"].nunique()), f"{rows['instances'].sum():,}"}
        assert counts <= set(table), split


@pytest.mark.parametrize("target", TARGETS)
def test_the_predictions_are_read_as_they_were_written(made, target):
    run = load_run(made / target)
    bags = read_for(run, str(made / f"{target}.npz"))
    folder = RunFolder(made / target)
    parts, found = recorded_parts(folder, Result.read(folder), run.target), evaluate_bags(run, bags)
    order = {str(bag): i for i, bag in enumerate(bags.ids)}
    for name, part in parts.items():
        at = [order[bag] for bag in part.ids.tolist()]
        assert set(found.parts[at]) == {name}
        np.testing.assert_allclose(part.values, run.target.values(bags)[at], rtol=1e-8)
        np.testing.assert_allclose(part.scores, found.scores[at], rtol=1e-8)
        np.testing.assert_allclose(part.predicted, found.decision.predict(found.scores[at]), rtol=1e-8)
        assert part.groups.tolist() == bags.groups[at].tolist()
    assert sum(map(len, parts.values())) == len(bags)


def test_classes_have_names_that_are_no_markup(made):
    content = (made / "multiclass/report.html").read_text()
    assert "skin &amp; &lt;b&gt;" in content
    assert "skin & <b>" not in content


def test_the_bags_at_risk_are_counted(made):
    rows = pd.read_csv(made / "survival/predictions.csv").query("split == 'test'")
    codes = {risk: code for code, risk in enumerate(("low", "middle", "high"))}
    figure = plot_survival(
        time=rows["time"].to_numpy(), event=rows["event"].to_numpy(), groups=rows["risk"].map(codes).to_numpy()
    )
    ticks, texts = figure.axes[0].get_xticks(), [text.get_text() for text in figure.axes[0].texts]
    assert ticks[0] == 0
    assert len(ticks) > 1
    for risk, own in rows.groupby("risk"):
        at = texts.index(f"{risk.capitalize()} risk") + 1
        assert [int(count) for count in texts[at : at + len(ticks)]] == [sum(own["time"] >= tick) for tick in ticks]


def test_a_curve_of_survival_falls_at_each_event(made):
    rows = pd.read_csv(made / "survival/predictions.csv").query("split == 'test'")
    codes = {risk: code for code, risk in enumerate(("low", "middle", "high"))}
    figure = plot_survival(
        time=rows["time"].to_numpy(), event=rows["event"].to_numpy(), groups=rows["risk"].map(codes).to_numpy()
    )
    curves = {line.get_label().split()[0].lower(): line.get_ydata() for line in figure.axes[0].lines}
    for risk, own in rows.groupby("risk"):
        left = 1.0
        for time in sorted(own.loc[own["event"] == 1, "time"].unique()):
            left *= 1 - sum((own["time"] == time) & (own["event"] == 1)) / sum(own["time"] >= time)
        assert (curves[risk][0], curves[risk][-1]) == (1, pytest.approx(left)), risk


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.drawn(False)
def test_an_evaluation_is_about_the_new_bags(made, target, tmp_path):
    other = write_npz(tmp_path / "other.npz", target, count=40, seed=5)
    run = load_run(made / target)
    bags = read_for(run, str(other), groups="group")
    rows = {"bag": bags.ids, "site": ["north", "south"] * 20, "age": 30 + np.arange(40)}
    pd.DataFrame(rows).to_csv(tmp_path / "sites.csv", index=False)
    with pytest.warns(UserWarning, match="the results below are no test"):
        found = evaluate_bags(run, bags)
    table = SubgroupTable(tmp_path / "sites.csv", ["site", "age"])
    path = write_evaluation_report(
        made / target, bags, found, data=str(other), out=tmp_path / "page.html", table=table, notes=["2 rows left out"]
    )
    page, text = Reader(path), " ".join(Reader(path).text)
    assert set(WANTED[target]) <= set(page.numbers)
    assert all(value == value_at(found.result["new"], key) for key, value in page.numbers.items())
    said = [
        f"Trained on {target}.npz, tested on other.npz",
        "Subgroups: by site",
        "Subgroups: by age",
        "2 rows left out",
    ]
    said += ["40 bags", "the results below are no test"]
    assert [words for words in said if words not in text] == []


@pytest.mark.parametrize("target", ["multilabel", "survival"])  # of several columns, one of them with missing labels
def test_the_same_run_has_the_same_page_wherever_it_lies(made, target, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(made / target, moved)
    (moved / "report.html").unlink()
    assert write_run_report(moved).read_bytes() == (made / target / "report.html").read_bytes()


@pytest.mark.parametrize("target", TARGETS)
def test_the_card_tells_the_figures_of_the_target(made, target, tmp_path):
    summary = json.loads((made / target / "summary.json").read_text())
    export_run(made / target, tmp_path / "out", formats=["safetensors"])
    text, config = (tmp_path / "out/README.md").read_text(), json.loads((tmp_path / "out/config.json").read_text())
    metric = next(key for key in ("auroc_macro", "c_index") if key in summary["test"])
    low, high = summary["test"][f"{metric}_ci95"]
    assert f"| test | {summary['test']['bags']} | {summary['test'][metric]:.3f} ({low:.3f} to {high:.3f}) |" in text
    assert f"- labels: {target}" in text
    assert "positive ones above" not in text
    assert (config["target"], config["names"]) == (target, NAMES[target])
    run = load_run(made / target)
    bare = card_text(replace(run, decision=None), describe(run), {}, ["safetensors"])
    assert "the scores are not calibrated" in bare


def study(target, *, count=60, names=None, predicted=True, summary=None, **changes):
    """A study of bags whose scores follow their labels."""
    outcome, signal = outcome_of(target, count)
    names = list(names or NAMES[target])
    values = outcome.values if names == NAMES[target] else (np.arange(count) % len(names))[:, None].astype(float)
    scores = 1 / (1 + np.exp(-signal))
    if target in ("multiclass", "multilabel"):
        scores = np.random.default_rng(3).random((count, len(names)))
    says = {"ordinal": values[:, 0], "continuous": scores, "survival": np.digitize(scores, [0.3, 0.6]).astype(float)}
    bags = ScoredBags(
        ids=np.array([f"<i>{i}" for i in range(count)]),
        values=values,
        scores=scores,
        predicted=says.get(target, scores / scores.sum(axis=-1, keepdims=True)) if predicted else None,
        sizes=np.full(count, 2),
    )

    class Decision:
        """A decision that predicts what the bags hold."""

        def predict(self, _):
            return bags.predicted if target != "survival" else bags.predicted.astype(int)

    found = judging.summarize(target, names, values, scores, decision=Decision() if predicted else None)
    made = Study(
        data="<script>alert(1)</script>.csv",
        trained_on="own",
        method="attention",
        part="test",
        tested=bags,
        summary={**found, **(summary or {})},
        parts={"test": bags},
        explain_command="midam explain run data",
        history=[],
        changed=[],
        settings=[("epochs", "3")],
        facts=[("data", "x")],
        target=judging.target(target, names),
    )
    return replace(made, **changes)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("part", ["test", "val", "train"])
def test_a_page_of_scores_without_predictions(target, part, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(report_page(study(target, predicted=False, part=part, about={"auto": CHOSEN})), encoding="utf-8")
    page, text = Reader(path), " ".join(Reader(path).text)
    assert "<script>alert(1)</script>.csv" in "".join(page.text)
    assert "the run has none" in text
    assert ("so that this is no test" in text) == (part != "test")
    assert "What was tried" in text


@pytest.mark.parametrize("target", TARGETS)
def test_a_page_of_bags_that_nothing_orders(target, tmp_path):
    few = study(target, count=3)
    alone = ScoredBags(few.tested.ids[:1], few.tested.values[:1], few.tested.scores[:1], sizes=np.array([2]))
    found = judging.summarize(target, few.target.names, alone.values, alone.scores)
    path = tmp_path / "page.html"
    path.write_text(report_page(replace(few, tested=alone, parts={"test": alone}, summary=found)), encoding="utf-8")
    text = " ".join(Reader(path).text)
    assert "ranking cannot be measured" in text
    assert "nan" not in re.findall(r"[a-z]+", text.lower())


@pytest.mark.parametrize("target", TARGETS)
def test_a_page_shows_how_covariates_alone_rank(target, tmp_path):
    found = study(target)
    alone = {"method": "linear", "part": "test", "bags": len(found.tested), "difference": 0.1}
    alone |= {"difference_ci95": [0.02, 0.2], found.metric: 0.625, f"{found.metric}_ci95": [0.5, 0.75]}
    path, covariates = tmp_path / "page.html", {"names": ["age"], "kinds": ["number"], "alone": alone}
    path.write_text(report_page(replace(found, about={"covariates": covariates})), encoding="utf-8")
    page = Reader(path)
    assert page.numbers[f"covariates.alone.{found.metric}"] == 0.625
    assert "[0.500, 0.750]" in "".join(page.text)


@pytest.mark.parametrize("count", [2, 11, 32])
def test_many_classes_are_shown_in_part(count, tmp_path):
    names = [f"a class with a name that is long {number}" for number in range(count)]
    path = tmp_path / "page.html"
    path.write_text(report_page(study("multiclass", count=5 * count, names=names)), encoding="utf-8")
    page = Reader(path)
    drawn = [image["aria-label"].split()[0].rstrip(".") for image in page.images]
    confused = any(text.startswith("called a class") for text in page.text)
    assert ("ROC" in drawn, confused) == (count <= 10, count <= 12)
    assert set(names) <= {text.strip() for text in page.text}
    assert {f"per_class.{name}.auroc" for name in names} <= set(page.numbers)


def test_explanations_of_bags_with_one_score_are_asked_for():
    assert "midam explain run data --bags" in report_page(study("survival"))
    assert "midam explain" not in report_page(study("multiclass"))


@pytest.mark.parametrize("target", TARGETS)
def test_subgroups_have_the_figures_of_their_bags(target):
    found = study(target, count=90)
    levels = np.array(["a", "b", "c"] * 30)
    values, scores = found.tested.values, found.tested.scores
    metric = found.metric
    figures = {metric: judging.target(target, found.target.names).estimate}
    parts = find_subgroups(values, scores, levels, figures=figures)
    for part in parts:
        inside, figure = levels == part.level, part.figures[metric]
        alone = judging.summarize(target, found.target.names, values[inside], scores[inside])
        assert figure.value == alone[metric]
        assert [figure.low, figure.high] == alone[f"{metric}_ci95"]
        assert part.bags == 30
    assert parts[0].differences == {}
    gap = parts[1].figures[metric].value - parts[0].figures[metric].value
    assert parts[1].differences[metric].value == pytest.approx(gap)
