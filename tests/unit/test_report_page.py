"""The page about a run, an evaluation and a comparison: its numbers are those of the files, and it stands alone."""

import csv
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from tests import quick

from midam.compare import repeated_folds, run_comparison
from midam.data.sources import read_bags
from midam.errors import BagDataError, CheckpointError
from midam.evaluate.calibrate import one_scale
from midam.evaluate.proportions import auroc_estimate, operating_points
from midam.evaluate.ranking import auroc
from midam.report.page.checks import subgroups
from midam.report.page.comparison import MethodsStudy, comparison_page
from midam.report.page.render import render
from midam.report.page.run_page import report_page
from midam.report.page.study import ScoredBags, Study
from midam.runs import report
from midam.runs.apply import evaluate_bags, read_for
from midam.runs.data import SubgroupTable
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run
from midam.runs.report import evaluation_path, write_evaluation_report, write_run_report
from midam.runs.result import Result
from midam.settings import Settings
from midam.targets import target_named

_IGNORED = ("ignore:Expected scores that rank held-out bags", "ignore:covariates. age")
pytestmark = [pytest.mark.drawn, pytest.mark.filterwarnings(*_IGNORED)]


HOW = {"groups": "patient", "epochs": 6, "members": 1, "num_instances": 2, "lr": 0.05}


class Reader(HTMLParser):
    """Numbers by their key, ids, links, sources and all text of a page; and whether each element is closed."""

    def __init__(self, path):
        super().__init__()
        self.numbers, self.ids, self.links, self.text, self.open, self.images = {}, set(), [], [], [], []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if given.get("data-key"):
            self.numbers.setdefault(given["data-key"], float(given["value"]))
        if "id" in given:
            assert given["id"] not in self.ids
            self.ids.add(given["id"])
        if tag == "a":
            self.links.append(given["href"])
        if tag == "svg" and "aria-hidden" not in given:
            self.images.append(given)
        assert "src" not in given
        assert tag not in ("img", "iframe", "object")
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def write_table(path, *, patients, seed):
    """Two bags a patient, of 2 to 5 instances."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["bag", "label", "patient", "f0", "f1", "f2"])
        for bag in range(2 * patients):
            label = bag % 2
            for instance in range(int(rng.integers(2, 6))):
                values = rng.normal(size=3) + (1.5 * label if instance == 0 else 0)
                writer.writerow([f"b{seed}-{bag}", label, f"p{seed}-{bag // 2}", *values.round(4)])
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    data = write_table(folder / "own.csv", patients=60, seed=1)
    other = write_table(folder / "other.csv", patients=30, seed=2)
    fit_run(str(data), Settings(**HOW, test_fraction=0.2), RunFolder(folder / "run"))
    return folder / "run", data, other


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    """A cross-validated run whose model takes the age of patients, and its data."""
    folder = tmp_path_factory.mktemp("crossed")
    table = pd.read_csv(write_table(folder / "own.csv", patients=60, seed=1))
    patients = table["patient"].str.partition("-")[2].astype(int)
    table.assign(age=40 + patients % 30 + 10 * table["label"]).to_csv(folder / "own.csv", index=False)
    with quick.usual_folds():
        fit_run(str(folder / "own.csv"), Settings(**HOW, covariates=["age"]), RunFolder(folder / "run"))
    return folder / "run", folder / "own.csv"


def test_the_numbers_are_those_of_the_summary(made):
    run, _, _ = made
    page, summary = Reader(run / "report.html"), json.loads((run / "summary.json").read_text())["test"]
    for key in ("auroc", "auprc", "brier", "calibration_slope", "calibration_intercept"):
        assert page.numbers[key] == summary[key], key
    for key in ("threshold", "sensitivity", "specificity"):
        assert page.numbers[f"at_threshold.{key}"] == pytest.approx(summary["at_threshold"][key], abs=0), key
    low, high = summary["auroc_ci95"]
    assert f"[{low:.3f}, {high:.3f}]" in "".join(page.text)


def test_the_page_of_a_cross_validated_run_has_the_numbers_of_its_summary(crossed):
    run, _ = crossed
    page, summary = Reader(run / "report.html"), json.loads((run / "summary.json").read_text())
    text, rows, found = (
        " ".join(" ".join(page.text).split()),
        pd.read_csv(run / "predictions.csv"),
        summary["out_of_fold"],
    )
    for key in ("auroc", "auprc", "brier", "calibration_slope", "calibration_intercept"):
        assert page.numbers[key] == found[key], key
    for key in ("threshold", "sensitivity", "specificity"):
        assert page.numbers[f"at_threshold.{key}"] == found["at_threshold"][key], key
    assert page.numbers["baseline.auroc"] == summary["baseline"]["auroc"]
    assert "On 120 bags, 60 positive, of 60 groups, each scored by a model that has not seen it, a positive bag" in text
    low, high = found["auroc_ci95"]
    assert f"in {found['auroc']:.1%} of all pairs within a fold [{low:.1%}, {high:.1%}]" in text
    right = rows[rows["class"] == rows["label"]]["label"].value_counts()
    assert f"it found {right[1]} of 60 positive bags and cleared {right[0]} of 60 negative ones" in text
    assert "cross-validated in 5 folds of groups: each of the 120 bags is scored by a model" in text
    assert "The AUROC compares bags of one fold only" in text


def test_the_other_folds_choose_the_operating_points_of_a_cross_validated_run(crossed):
    run, _ = crossed
    text, rows = " ".join(" ".join(Reader(run / "report.html").text).split()), pd.read_csv(run / "predictions.csv")
    assert "the bags of a fold are called by what the other folds choose, new bags by the threshold shown" in text
    first, *others = json.loads((run / "summary.json").read_text())["thresholds"]["points"]
    called, by_one = {first["rule"]: rows["class"] == 1}, []
    # Of the scores as the models of the folds gave them: those of predictions.csv are moved to one threshold.
    given = pd.Series(np.nan, index=rows.index)
    for row in map(json.loads, (run / "folds.jsonl").read_text().splitlines()):
        given[rows["fold"] == row["fold"]] = row["scores"]
    given[:] = one_scale(given, rows["fold"], groups=rows["group"])
    for point in others:
        of_rule = pd.Series(False, index=rows.index)
        for fold, own in rows.groupby("fold"):
            chosen = rows["fold"] != fold
            (cut,) = operating_points(rows["label"][chosen], given[chosen], [point["rule"]])
            of_rule[own.index] = given[own.index] >= cut.threshold
        called[point["rule"]] = of_rule
        by_one.append((of_rule == (rows["score"] >= point["threshold"])).all())
    assert not all(by_one), "one threshold for all folds has other results"
    table = text.partition("Operating points on")[2]
    for rule, positive in called.items():
        words = r"(?: \(the threshold of the run\))?(?: \*)? [\d.]+ ([\d.]+) \[.*?\] ([\d.]+) .*? (\d+) of 120"
        hits = [(positive == rows["label"])[rows["label"] == label].mean() for label in (1, 0)]
        found = re.search(rf" {re.escape(rule)}{words}", table)
        assert found.groups() == (*(f"{hit:.3f}" for hit in hits), str(positive.sum())), rule


def test_covariates_alone_rank_the_bags_of_a_fold_by_the_other_folds(crossed):
    run, data = crossed
    rows, ages = pd.read_csv(run / "predictions.csv"), pd.read_csv(data).groupby("bag")["age"].first()
    x = ((ages - ages.mean()) / ages.std(ddof=0))[rows["bag"]].to_numpy()[:, None]
    alone = np.empty(len(rows))
    for fold in rows["fold"].unique():
        own, others = (rows["fold"] == fold).to_numpy(), (rows["fold"] != fold).to_numpy()
        alone[own] = LogisticRegression().fit(x[others], rows["label"][others]).predict_proba(x[own])[:, 1]
    expected = auroc(rows["label"], alone, folds=rows["fold"])
    assert Reader(run / "report.html").numbers["covariates.alone.auroc"] == pytest.approx(expected)


@pytest.mark.drawn(False)
def test_an_evaluation_of_the_bags_of_a_cross_validated_run_is_no_test(crossed, tmp_path):
    run, data = crossed
    loaded = load_run(run)
    bags = read_for(loaded, str(data))
    found = evaluate_bags(loaded, bags)
    page = Reader(write_evaluation_report(run, bags, found, data=str(data), out=tmp_path / "page.html"))
    text = " ".join(" ".join(page.text).split())
    assert page.numbers["auroc"] == found.result["train"]["auroc"]
    assert "which trained the model, so that this is no test" in text
    assert "Probabilities were fitted on the out-of-fold bags" in text
    assert "within a fold" not in text
    assert "cross-validated in" not in text


def test_the_flow_counts_every_bag(made):
    run, data, _ = made
    text, bags = " ".join(Reader(run / "report.html").text), read_bags(str(data), groups="patient")
    table = " ".join(Reader(run / "report.html").text).partition("Bags of each part")[2].partition("Reading")[0].split()
    assert {str(len(bags)), f"{bags.num_instances:,}"} <= set(table)
    for split, rows in pd.read_csv(run / "predictions.csv").groupby("split"):
        counts = {str(len(rows)), str(rows["group"].nunique()), f"{rows['instances'].sum():,}"}
        assert counts <= set(table), split
    assert bags.fingerprint() in text
    assert "--groups patient" in text


def test_the_page_stands_alone(made):
    run, _, _ = made
    content, page = (run / "report.html").read_text(), Reader(run / "report.html")
    assert re.findall(r"(?:https?:)?//[a-z]", content.replace("https://doi", "")) == []
    assert "url(" not in content.replace("url(#", ""), "drawings refer to their own parts alone"
    assert "@import" not in content
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= page.ids
    assert len(page.images) >= 8
    assert all(image["aria-label"] and image["role"] == "img" for image in page.images)
    assert content.count("<caption>") == content.count("<table")
    assert len(content) < 400_000


def test_the_same_run_has_the_same_page_wherever_it_lies(made, tmp_path):
    run, _, _ = made
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    (moved / "report.html").unlink()
    assert write_run_report(moved).read_bytes() == (run / "report.html").read_bytes()
    assert str(run) not in (run / "report.html").read_text()


@pytest.mark.drawn(False)
def test_an_evaluation_is_about_the_new_bags(made, tmp_path):
    run, _, other = made
    loaded = load_run(run)
    bags = read_for(loaded, str(other))
    found = evaluate_bags(loaded, bags)
    path = write_evaluation_report(run, bags, found, data=str(other), out=tmp_path / "page.html")
    page, text = Reader(path), " ".join(Reader(path).text)
    assert page.numbers["auroc"] == found.result["new"]["auroc"]
    assert page.numbers["at_threshold.threshold"] == loaded.threshold
    assert "Trained on own.csv, tested on other.csv" in text
    assert "60 bags" in text
    assert evaluation_path(run, str(other)) == run / "report-other.html"


@pytest.mark.drawn(False)
def test_relatives_of_training_bags_are_told(made, tmp_path):
    run, data, _ = made
    frame = pd.read_csv(data)
    frame.assign(bag="x" + frame["bag"], f0=frame["f0"] + 0.1).to_csv(tmp_path / "again.csv", index=False)
    loaded = load_run(run)
    bags = read_for(loaded, str(tmp_path / "again.csv"))
    with pytest.warns(UserWarning, match="belong to groups"):
        found = evaluate_bags(loaded, bags)
    notes = ["2 of 6 rows have no file and are left out: a, b"]
    path = write_evaluation_report(run, bags, found, data="again.csv", out=tmp_path / "page.html", notes=notes)
    text = " ".join(Reader(path).text)
    assert "the results below are no test." in text
    assert notes[0] in text


def test_subgroups_of_a_table_of_bags_and_of_patients(made, tmp_path):
    run, _, _ = made
    rows = pd.read_csv(run / "predictions.csv")
    by_bag, by_patient = tmp_path / "bags.csv", tmp_path / "patients.tsv"
    sites = np.where(np.arange(len(rows)) % 3 == 0, "north", "south")
    pd.DataFrame({"scan": rows["bag"], "site": sites, "age": 30 + np.arange(len(rows)) % 50}).to_csv(
        by_bag, index=False
    )
    patients = rows["group"].drop_duplicates()
    sexes = np.where(np.arange(len(patients)) % 2, "f", "m")
    pd.DataFrame({"who": patients, "sex": sexes}).to_csv(by_patient, index=False, sep="\t")
    path = write_run_report(run, out=tmp_path / "a.html", table=SubgroupTable(by_bag, ["site", "age"]))
    text = " ".join(Reader(path).text)
    assert "Subgroups: by site" in text
    assert "Subgroups: by age" in text
    test = rows[rows["split"] == "test"]
    count = int((sites[rows["split"] == "test"] == "north").sum())
    assert f"north (n = {count})" in text
    text = " ".join(
        Reader(write_run_report(run, out=tmp_path / "b.html", table=SubgroupTable(by_patient, ["sex"]))).text
    )
    assert "Subgroups: by sex" in text
    assert f"all (n = {len(test)})" in text


def test_tables_that_do_not_fit_are_refused(made, tmp_path):
    _, data, _ = made
    ids, groups = np.array(["b1-0", "b1-1"]), np.array(["p1-0", "p1-0"])
    file = tmp_path / "t.csv"
    file.write_text("bag,site\nb1-0,a\nb1-0,b\n")
    with pytest.raises(BagDataError, match="Expected one site for b1-0, got a and b"):
        SubgroupTable(file, ["site"]).levels(ids, groups)
    with pytest.raises(BagDataError, match="did you mean 'site'"):
        SubgroupTable(file, ["sites"]).levels(ids, groups)
    file.write_text("bag,site\nx,a\n")
    with pytest.raises(BagDataError, match="such as b1-0"):
        SubgroupTable(file, ["site"]).levels(ids, groups)
    file.write_text("bag,site\nb1-0,a\n")
    with pytest.warns(UserWarning, match="1 of 2 bags have no row"):
        found = SubgroupTable(file, ["site"]).levels(ids, None)
    assert found["site"].tolist() == ["a", "(missing)"]
    assert SubgroupTable(data, ["label"]).levels(ids, None)["label"].tolist() == ["0", "1"]


def test_subgroups_of_patients_with_the_numbers_of_bags_are_those_of_patients(tmp_path):
    (tmp_path / "t.csv").write_text("patient_id,sex\n1,f\n2,m\n3,m\n")
    ids = np.array(["1", "2", "3"])
    table = SubgroupTable(tmp_path / "t.csv", ["sex"])
    assert table.levels(ids, ids[::-1])["sex"].tolist() == ["m", "m", "f"]
    assert table.levels(ids, None)["sex"].tolist() == ["f", "m", "m"]
    (tmp_path / "t.csv").write_text("visits,bag,sex\n3,1,f\n2,2,m\n1,3,m\n")
    assert table.levels(ids, ids[::-1])["sex"].tolist() == ["f", "m", "m"]


def test_an_unfinished_run_has_no_page(made, tmp_path):
    run, _, _ = made
    (tmp_path / "config.yaml").write_text((run / "config.yaml").read_text())
    with pytest.raises(CheckpointError, match="Expected a finished run"):
        write_run_report(tmp_path)


@pytest.mark.parametrize("name", ["summary.json"])
@pytest.mark.parametrize("content", [b'{"test": ', b"[1, 2]", b"\xff\xfe"])
def test_a_damaged_file_is_named(made, tmp_path, name, content):
    shutil.copytree(made[0], tmp_path / "run")
    (tmp_path / "run" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"got a damaged one \(in .*{name}\); copy it again"):
        write_run_report(tmp_path / "run")


def study(labels, scores, **changes):
    ids = np.array([f"<b>&{number}" for number in range(len(labels))])
    tested = ScoredBags(ids, np.asarray(labels), np.asarray(scores, dtype=float))
    summary = {"auroc": 0.5, "auroc_ci95": [0.2, 0.8], "auroc_method": "score", "auprc": 0.5, "warnings": []}
    if len(set(labels)) == 1:
        summary |= {"auroc": None, "auroc_ci95": None, "auprc": None}
    made = Study(
        data="<script>alert(1)</script>.csv",
        trained_on="own",
        method="attention",
        part="test",
        tested=tested,
        summary=summary,
        parts={"test": tested},
        explain_command="midam explain run data",
        history=[],
        changed=[],
        settings=[("epochs", "3")],
        facts=[("data", "x")],
        target=target_named(None),
    )
    return replace(made, **changes)


def test_subgroups_of_cross_validated_bags_compare_bags_of_one_fold():
    rng = np.random.default_rng(0)
    labels, folds = rng.integers(0, 2, 100), np.arange(100) % 5
    scores = rng.normal(labels + 3.0 * folds)
    plain = study(labels, scores)
    crossed = replace(plain, tested=replace(plain.tested, folds=folds.astype(str)))
    _, table, _ = subgroups(crossed, "site", np.repeat(["all"], 100)).blocks
    assert table.rows[0][2][:3] == auroc_estimate(labels, scores, folds=folds)[:3]
    assert table.rows[0][2].value > auroc(labels, scores) + 0.1


def test_a_column_that_is_named_group_is_shown(tmp_path):
    (tmp_path / "t.csv").write_text("bag,group\n" + "".join(f"<b>&{i},{'ab'[i % 2]}\n" for i in range(6)))
    tested = replace(study([0, 1] * 3, range(6)).tested, groups=np.array(list("pppqqq")))
    levels = report._columns(tested, SubgroupTable(tmp_path / "t.csv", ["group"]), None)
    assert levels["group"].tolist() == ["a", "b"] * 3


MEANS = (("a", 0.8), ("b", 0.9), ("c", 0.3 * 3))  # which differ by an error of rounding
ENDS = ("auroc_low", "auroc_high", "difference", "difference_low", "difference_high")
TRIED = [
    {"method": "trees", "auroc": 0.8125, "seconds": 12.5, "weight": 0.75, "note": None},
    {"method": "midam", "auroc": 0.6, "seconds": 30.0, "weight": 0.25, "note": None},
    {"method": "logistic", "auroc": 0.5, "seconds": 1.5, "weight": 0.0, "note": None},
    {"method": "slow", "auroc": None, "seconds": 0.0, "weight": 0.0, "note": "not tried: <no time>"},
]
CHOSEN = {"tried": TRIED, "auroc": 0.83, "folds": 5, "note": "Chosen by the inner folds."}


def test_a_chosen_model_says_what_was_tried(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(report_page(study([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], about={"auto": CHOSEN})), encoding="utf-8")
    page = Reader(path)
    text = " ".join(page.text)
    assert "What was tried" in text
    assert "along the epochs" not in text, "there are no epochs"
    assert all(words in text for words in ("Chosen by the inner folds.", "not tried: <no time>", "taken", "left out"))
    found = {key.removeprefix("auto."): value for key, value in page.numbers.items() if key.startswith("auto.")}
    expected = {f"tried.{n}.{key}": row[key] for n, row in enumerate(TRIED) for key in ("auroc", "weight")}
    assert found == {key: value for key, value in {**expected, "auroc": 0.83}.items() if value is not None}


def test_methods_that_were_taken_unseen_have_no_figures():
    rows = [{**row, "auroc": None, "weight": 0.5, "seconds": 0.0, "note": None} for row in TRIED[:2]]
    chosen = {"tried": rows, "auroc": None, "folds": 0, "note": "Too few."}
    section = report_page(study([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], about={"auto": chosen})).partition(
        "<h3>What was tried"
    )[2]
    section = section.partition("<h3>")[0]
    assert section.count("taken") == 1 + len(rows)
    assert "Too few." in section
    assert "inner folds but one" not in section


@pytest.mark.drawn(False)
def test_what_a_run_has_tried_stands_on_its_page(made, tmp_path):
    run, _, _ = made
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    Result(**{**Result.read(RunFolder(moved)).entries(), "auto": CHOSEN}).write(RunFolder(moved))
    page = Reader(write_run_report(moved))
    assert page.numbers["auto.auroc"] == CHOSEN["auroc"]


def test_rows_of_charts_keep_the_end_of_long_names():
    levels = np.array(["University clinic of the northern and the western islands"] * 4 + ["b"] * 4)
    content = report_page(study([0, 0, 1, 1] * 2, np.arange(8), columns={"clinic": levels}))
    assert re.search(r">Univers[^<]*\N{HORIZONTAL ELLIPSIS}[^<]*\(n = 4\)</text>", content)


@pytest.mark.parametrize(
    "made_of",
    [
        study([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]),
        study([0, 1, 0, 1], [0.5] * 4),
        study([1, 1], [0.1, 0.4]),
        study([0], [0.1], part="new"),
        study([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], left_out=["2 of 6 rows have no file and are left out: a, b"]),
        study([0, 1] * 30, np.arange(60), columns={"site": np.array(["a"] * 59 + ["b"])}),
    ],
    ids=["no validation", "equal scores", "one class", "one bag", "left out", "tiny subgroup"],
)
def test_a_page_of_little(made_of, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(report_page(made_of), encoding="utf-8")
    page = Reader(path)
    assert "nan" not in re.findall(r"[a-z]+", " ".join(page.text).lower())
    assert "<script>alert(1)</script>.csv" in "".join(page.text)
    assert {link.removeprefix("#") for link in page.links} <= page.ids


def test_bags_that_are_all_ranked_rightly_have_no_interval_without_width():
    content = report_page(study([0] * 5 + [1] * 5, np.arange(10.0)))
    assert 'data-key="auprc"' in content
    assert re.findall(r"\[(\d\.\d+), \1\]|(\d\.\d{3}) to \2\b", content) == []


def test_the_classes_have_their_names(tmp_path):
    content = report_page(
        study([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], about={"data": {"classes": ["benign", "malignant"]}})
    )
    assert "Positive is malignant, negative benign." in content


def test_the_page_of_a_comparison_has_the_numbers_of_the_summary(made, tmp_path):
    _, data, _ = made
    bags = read_bags(str(data), groups="patient")
    folds = repeated_folds(bags, repeats=2, folds=3)
    methods = ["mean-map-svm", "bag-statistics-logistic"]
    found = run_comparison(bags, methods, folds, out=tmp_path / "out")
    page = Reader(tmp_path / "out/report.html")
    for row in found.summary.to_dict("records"):
        assert page.numbers[f"{row['method']}.auroc"] == pytest.approx(row["auroc"], rel=1e-8)
    second = found.summary.iloc[1]
    assert page.numbers["bag-statistics-logistic.difference"] == pytest.approx(second["difference"], rel=1e-8)
    assert "2 repeats of 3 folds" in " ".join(page.text)
    scores = pd.read_csv(tmp_path / "out/predictions.csv")
    assert scores.groupby(["method", "repeat"])["bag"].nunique().eq(len(bags)).all()
    assert list(scores.columns) == ["bag", "method", "repeat", "fold", "score", "label", "positive", "group"]
    assert Path(tmp_path / "out/report.html").stat().st_size < 300_000


def test_methods_that_share_the_highest_mean_are_all_named():
    rows = [{"method": name, "auroc": mean, "folds": 2, "seconds": 1.0, "auprc": 0.9} for name, mean in MEANS]
    rows = [{**row, **dict.fromkeys(ENDS, np.nan)} for row in rows]
    scores = pd.DataFrame(columns=["bag", "method", "repeat", "fold", "label", "positive"])
    page = comparison_page(MethodsStudy("bags", rows, scores, "No interval.", [], [], []))
    assert "Of 3 methods, <strong>b, c</strong> share the highest mean AUROC: " in page


def test_control_characters_of_names_are_made_visible_in_pages():
    page = render("page.html", title="bags \x1b[2J", kicker="run", sections=[])
    assert r"bags \x1b[2J" in page
    assert "\x1b" not in page
