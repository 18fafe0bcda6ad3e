"""Folds of a split table, and comparisons on them."""

import numpy as np
import pandas as pd
import pytest

from midam.cli import main
from midam.compare.folds import table_folds
from midam.data.left_out import LeftOut
from midam.data.sources import read_bags
from midam.data.sources.split_table import fold_numbers
from midam.errors import BagDataError, ConfigError, LeakageError

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


@pytest.mark.parametrize("column", ["patient", "owner", "Case ID"])
@pytest.mark.parametrize("count", [10, 20])
def test_patients_with_the_numbers_of_bags_are_patients_by_their_column(column, count, tmp_path):
    bag = np.arange(1, 21)
    table = pd.DataFrame({"bag": bag, "label": bag % 2, "a": 1.0 * bag, "owner": count - (bag - 1) * count // 20})
    table.to_csv(tmp_path / "t.csv", index=False)
    number = np.arange(1, count + 1)
    splits = pd.DataFrame({column: number, "split": np.where(number <= count // 2, "train", "test")})
    splits.to_csv(tmp_path / "s.csv", index=False)
    options = {"groups": "owner", "split_file": tmp_path / "s.csv"}
    assert read_bags(tmp_path / "t.csv", **options).splits.tolist() == ["test"] * 10 + ["train"] * 10
    # Of bags, the column of the bags in the data names them, whatever other numbers the table holds.
    number = np.arange(1, 21)
    splits = pd.DataFrame({"s": 21 - number, column: number, "bag": number, "split": ["train"] * 10 + ["test"] * 10})
    splits.to_csv(tmp_path / "s.csv", index=False)
    assert read_bags(tmp_path / "t.csv", **options).splits.tolist() == ["train"] * 10 + ["test"] * 10
    # They are no patients, even if a program took the zeros from the names.
    table.assign(bag=[f"{name:03}" for name in bag]).to_csv(tmp_path / "t.csv", index=False)
    splits[["bag", "split"]].to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(BagDataError, match=r"Expected names of bags of .*got 20 unknown: 1, 2, 3"):
        read_bags(tmp_path / "t.csv", **options)


def test_a_comparison_on_folds_leaves_out_what_was_left_out(data):
    bags = read_bags(data / "t.csv", groups="patient")
    part = bags.subset(np.arange(1, 40)).replace(left_out=[LeftOut("b0", "b0.h5", "no instances")])
    assert [len(fold.train) + len(fold.test) for fold in table_folds(part, data / "clam")] == [39, 39]


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_the_folder_above_runs_is_answered_with_their_names(data, command, capsys):
    (data / "runs" / "fold-0").mkdir(parents=True)
    for name in ("config.yaml", "model.pt"):
        (data / "runs" / "fold-0" / name).touch()
    assert main([command, str(data / "runs"), *([str(data / "t.csv")] if command == "evaluate" else [])]) == 2
    assert "name one of the runs in it, such as" in " ".join(capsys.readouterr().err.split())


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
