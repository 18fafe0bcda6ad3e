"""Folds of a split table: a run for each, their mean, and comparisons on them."""

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

import midam.cli.fit_folds
from midam.cli import main
from midam.cli.fit_folds import fold_table, mean_of, mean_words
from midam.compare.folds import table_folds
from midam.compare.summary import corrected_interval
from midam.data.left_out import LeftOut
from midam.data.sources import read_bags
from midam.data.sources.split_table import fold_numbers
from midam.errors import BagDataError, ConfigError, LeakageError, Note
from midam.runs.folder import RunFolder

PATIENTS = [f"P{number}" for number in range(20)]
GROUPS = ["--groups", "patient"]


@pytest.fixture
def data(tmp_path):
    """40 bags of 20 patients, a table with Patho-Bench's folds of patients, and a folder of CLAM's splits of bags."""
    rng = np.random.default_rng(0)
    bags = np.repeat(np.arange(40), 3)
    table = pd.DataFrame({"bag": [f"b{bag}" for bag in bags], "label": bags // 2 % 2})
    table["patient"] = [PATIENTS[bag // 2] for bag in bags]
    table = table.assign(a=rng.normal(size=120) + table.label, b=rng.normal(size=120))
    table.to_csv(tmp_path / "t.csv", index=False)
    places = [[number // 2 % 4 for number in range(20)]] * 2
    folds = {f"fold_{fold}": ["test" if place == fold else "train" for place in places[0]] for fold in range(2)}
    pd.DataFrame({"case_id": PATIENTS, **folds}).to_csv(tmp_path / "folds.tsv", sep="\t", index=False)
    (tmp_path / "clam").mkdir()
    for fold in range(2):
        part = {fold: "test", fold + 1: "val"}
        named = {name: [] for name in ("train", "val", "test")}
        for bag in range(40):
            named[part.get(bag // 4 % 4, "train")].append(f"b{bag}")
        columns = {name: pd.Series(names) for name, names in named.items()}
        pd.DataFrame(columns).to_csv(tmp_path / "clam" / f"splits_{fold}.csv")
    return tmp_path


@pytest.mark.parametrize("splits", ["folds.tsv", "clam"])
def test_every_fold_is_trained_once_and_their_figures_are_averaged(data, splits, capsys):
    words = ["fit", str(data / "t.csv"), *GROUPS, "--method", "mean-map-svm"]
    words += ["--split-file", str(data / splits), "--fold", "all", "--out", str(data / "runs")]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    table = pd.read_csv(data / "runs" / "folds.csv")
    assert table.fold.tolist() == [0, 1]
    assert table.test_bags.tolist() == [12, 12]
    assert mean_words(table) in said
    assert "are not pooled" in said
    assert mean_words(table) in (data / "runs" / "folds.md").read_text()
    found = mean_of(table)
    share = (table.test_bags / (table.train_bags + table.val_bags)).mean()
    assert found == corrected_interval(table.auroc, ratio=share)
    folders = {fold: RunFolder(data / "runs" / f"fold-{fold}") for fold in (0, 1)}
    assert fold_table(folders).auroc.tolist() == pytest.approx(table.auroc.tolist(), abs=1e-8)
    before = folders[0].summary.stat().st_mtime_ns
    folders[1].summary.unlink()
    for path in folders[1].root.iterdir():
        path.unlink()
    assert main(words) == 0
    assert folders[0].summary.stat().st_mtime_ns == before
    assert pd.read_csv(data / "runs" / "folds.csv").equals(table)
    assert main([*words, "--seed", "3"]) == 2
    assert "Expected the seed that these folds were started with" in " ".join(capsys.readouterr().err.split())


def test_finished_folds_are_read_once_and_repeat_no_notes(data, monkeypatch, capsys):
    words = ["fit", str(data / "t.csv"), *GROUPS, "--method", "mean-map-svm"]
    words += ["--split-file", str(data / "folds.tsv"), "--fold", "all", "--out", str(data / "runs")]
    assert main(words) == 0
    read, reads = midam.cli.fit_folds.read_data, []

    def noted(*arguments):
        reads.append(arguments)
        warnings.warn("a note on the data", Note, stacklevel=2)
        return read(*arguments)

    monkeypatch.setattr(midam.cli.fit_folds, "read_data", noted)
    capsys.readouterr()
    assert main(words) == 0
    assert len(reads) == 2
    printed = capsys.readouterr()
    assert "fold 1 is done" in printed.err
    assert "a note on the data" not in printed.err
    assert "Mean test AUROC" in printed.out
    assert main([*words, "--out", str(data / "others"), "--label-column", "a"]) == 2
    assert not (data / "others").exists(), "refused, it leaves nothing"


@pytest.mark.parametrize("changed", ["t.csv", "folds.tsv"])
def test_folds_of_other_bags_or_splits_are_not_averaged_with_new_ones(data, changed, capsys):
    words = ["fit", str(data / "t.csv"), *GROUPS, "--method", "mean-map-svm"]
    words += ["--split-file", str(data / "folds.tsv"), "--fold", "all", "--out", str(data / "runs")]
    assert main(words) == 0
    shutil.rmtree(data / "runs" / "fold-1")
    path, apart = data / changed, "\t" if changed.endswith("tsv") else ","
    table = pd.read_csv(path, sep=apart)
    if changed == "t.csv":
        table.loc[table.patient == "P0", "label"] = 1
    else:
        table = table.rename(columns={"fold_0": "fold_1", "fold_1": "fold_0"})
    table.to_csv(path, sep=apart, index=False)
    before = (data / "runs" / "folds.csv").read_bytes()
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "Expected the bags and splits on which fold 0 was trained, got others" in error
    assert f"or remove {data / 'runs'} to train all folds again" in error
    assert (data / "runs" / "folds.csv").read_bytes() == before


@pytest.mark.parametrize("fault", ["no test", "one class", "leak"])
def test_what_is_wrong_with_a_fold_is_said_before_any_is_trained(data, fault, capsys):
    parts = {"no test": "val", "one class": "test", "leak": "test"}
    for fold in range(2):
        number = np.arange(40)
        tested = number // 4 % 4 == fold
        named = {"train": number[~tested], parts[fault] if fold else "test": number[tested]}
        if fault == "one class" and fold:
            named["train"] = named["train"][named["train"] // 2 % 2 == 0]
        if fault == "leak" and fold:
            named = {"train": number[::2], "test": number[1::2]}
        columns = {name: pd.Series([f"b{bag}" for bag in bags]) for name, bags in named.items()}
        pd.DataFrame(columns).to_csv(data / "clam" / f"splits_{fold}.csv")
    words = ["fit", str(data / "t.csv"), *GROUPS, "--method", "mean-map-svm", "--out", str(data / "runs")]
    assert main([*words, "--split-file", str(data / "clam"), "--fold", "all"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "clam, fold 1)." in said
    assert "training" not in said.partition("error:")[0]
    assert not (data / "runs").exists()


def test_a_column_fold_of_numbers_names_the_fold_that_tests_each_row(data):
    bags = read_bags(data / "t.csv", groups="patient")
    table = pd.DataFrame({"patient": PATIENTS, "fold": [float(number % 3) for number in range(19)] + [np.nan]})
    table.to_csv(data / "fold.csv", index=False)
    assert fold_numbers(data / "fold.csv") == [0, 1, 2]
    for number, fold in enumerate(table_folds(bags, data / "fold.csv")):
        assert fold.test.tolist() == [bag for bag in range(38) if bag // 2 % 3 == number]
        assert len(fold.train) + len(fold.test) == 38
    table.rename(columns={"fold": "cv"}).to_csv(data / "fold.csv", index=False)
    with pytest.raises(ConfigError, match=r"got patient, cv .*; rename them, or leave `fold` out"):
        read_bags(data / "t.csv", groups="patient", split_file=data / "fold.csv", fold=0)


def test_a_comparison_on_folds_leaves_out_what_was_left_out(data):
    bags = read_bags(data / "t.csv", groups="patient")
    part = bags.subset(np.arange(1, 40)).replace(left_out=[LeftOut("b0", "b0.h5", "no instances")])
    assert [len(fold.train) + len(fold.test) for fold in table_folds(part, data / "clam")] == [39, 39]


@pytest.mark.parametrize("change", [{"test": 3}, {"test": {"bags": 4}}, {"test": None, "train": []}])
def test_a_damaged_summary_of_a_fold_is_refused_by_name(data, change, capsys):
    words = ["fit", str(data / "t.csv"), *GROUPS, "--method", "mean-map-svm"]
    words += ["--split-file", str(data / "folds.tsv"), "--fold", "all", "--out", str(data / "runs")]
    assert main(words) == 0
    summary = RunFolder(data / "runs" / "fold-1").summary
    summary.write_text(json.dumps(json.loads(summary.read_text()) | change))
    capsys.readouterr()
    assert main(words) == 2
    assert "fold-1/summary.json" in "".join(capsys.readouterr().err.split())


def test_folds_are_refused_where_there_are_none(data, capsys):
    words = ["fit", str(data / "t.csv"), *GROUPS, "--fold", "all", "--out", str(data / "runs")]
    assert main(words) == 2
    assert "--split-file with --fold all" in capsys.readouterr().err
    assert main([*words, "--split-file", str(data / "clam" / "splits_0.csv")]) == 2
    assert "got one split" in " ".join(capsys.readouterr().err.split())
    assert not (data / "runs").exists()


@pytest.mark.long
def test_compare_takes_the_folds_of_a_table(data, capsys):
    methods = ["--methods", "mean-map-svm,bag-statistics-logistic", "--jobs", "1", "--out", str(data / "c")]
    words = ["compare", str(data / "t.csv"), *GROUPS, *methods, "--split-file", str(data / "clam")]
    assert main(words) == 0
    assert "2 folds of" in " ".join(capsys.readouterr().out.split())
    trials = pd.read_csv(data / "c" / "trials.csv")
    assert sorted(zip(trials.method, trials.fold)) == [
        (name, fold) for name in ("bag-statistics-logistic", "mean-map-svm") for fold in (0, 1)
    ]
    assert main([*words, "--cv", "1x2"]) == 2
    assert "Expected --cv or --split-file, got both" in capsys.readouterr().err


def test_the_folds_of_a_table_are_positions_of_bags(data):
    bags = read_bags(data / "t.csv", groups="patient")
    assert fold_numbers(data / "folds.tsv") == fold_numbers(data / "clam") == [0, 1]
    for path in ("folds.tsv", "clam"):
        for number, fold in enumerate(table_folds(bags, data / path)):
            assert (fold.repeat, fold.fold) == (0, number)
            assert sorted([*fold.train, *fold.test]) == list(range(40))
            assert {place // 4 % 4 for place in fold.test.tolist()} == {number}
    lines = ["bag,split", *(f"b{bag},{'test' if bag < 13 else 'train'}" for bag in range(40))]
    (data / "one.csv").write_text("\n".join(lines))
    with pytest.raises(LeakageError):
        table_folds(bags, data / "one.csv")
    (data / "one.csv").write_text("\n".join([*lines[:1], *(f"b{bag},train" for bag in range(40))]))
    with pytest.raises(BagDataError, match="training and test bags in each fold, got 40 and 0"):
        table_folds(bags, data / "one.csv")
