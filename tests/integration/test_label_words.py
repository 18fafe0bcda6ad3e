"""Labels as words, other columns and missing values, from the command line: fit, predict, evaluate, import, compare."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.integration.commands import table

from midam.cli import main

SHORT = ["--epochs", "2", "--members", "1", "--test-fraction", "0.2"]


def words(path, names=("no", "yes"), column="outcome", **changes):
    """The usual table of 40 bags with words as labels."""
    data = pd.read_csv(table(path))
    data = data.rename(columns={"label": column}).assign(**{column: data["label"].map(dict(enumerate(names)))})
    data.assign(**changes).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    data = words(folder / "bags.csv", ("A", "B"))
    how = ["--label-column", "outcome", "--positive", "A", "--out", str(folder / "run")]
    assert main(["fit", str(data), *how, *SHORT]) == 0
    return data, folder / "run"


def test_the_names_of_the_classes_are_in_the_run(made):
    data, run = made
    assert json.loads((run / "summary.json").read_text())["data"]["classes"] == ["B", "A"]
    found = pd.read_csv(run / "predictions.csv")
    assert set(found["class"]) <= {"A", "B"}
    truth = pd.read_csv(data).groupby("bag")["outcome"].first()
    assert found["label"].tolist() == truth[found["bag"]].tolist()
    assert set(found["positive"]) == {"A"}
    assert (found.groupby("class")["score"].min()["A"] if "A" in set(found["class"]) else 1) > -1


def test_predict_says_classes_and_needs_no_label(made, tmp_path, capsys):
    data, run = made
    out = str(tmp_path / "p.csv")
    assert main(["predict", str(run), str(data), "--out", out]) == 0
    whole = pd.read_csv(out)
    assert list(whole) == ["bag", "label", "score", "probability", "class", "positive"]
    assert whole["score"].tolist() == pd.read_csv(run / "predictions.csv")["score"].tolist()
    capsys.readouterr()
    for change in ({"outcome": "?"}, {"outcome": None}, {"outcome": np.tile(["A", "B", "C"], 200)[:40]}):
        frame = pd.read_csv(data)
        value = change["outcome"]
        frame["outcome"] = np.resize(value, len(frame)) if isinstance(value, np.ndarray) else value
        frame.loc[:1, "outcome"] = "C"
        frame.to_csv(tmp_path / "t.csv", index=False)
        assert main(["predict", str(run), str(tmp_path / "t.csv"), "--out", out]) == 0
        said = capsys.readouterr().err
        assert "note: labels are ignored" in said
        assert pd.read_csv(out)["score"].tolist() == whole["score"].tolist()
        assert main(["evaluate", str(run), str(tmp_path / "t.csv")]) == 2
        said = capsys.readouterr().err
        assert "--positive" in said or "one outcome in a bag" in said or value is None


def test_columns_are_found_by_name(made, tmp_path, capsys):
    data, run = made
    frame = pd.read_csv(data).assign(label="?", site="x", age=50.0)
    frame[frame.columns[::-1]].drop(columns="outcome").to_csv(tmp_path / "t.csv", index=False)
    assert main(["predict", str(run), str(tmp_path / "t.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    assert "left out 3 columns that training did not use: age, site, label" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "p.csv")["score"].tolist() == pd.read_csv(run / "predictions.csv")["score"].tolist()


def test_evaluate_takes_the_positive_value(made, tmp_path, capsys):
    data, run = made
    own, out = tmp_path / "own.json", tmp_path / "turned.json"
    assert main(["evaluate", str(run), str(data), "--out", str(own)]) == 0
    other = words(tmp_path / "t.csv", ("dead", "alive"), column="end")
    assert main(["evaluate", str(run), str(other), "--label-column", "end"]) == 2
    assert "got alive, dead" in capsys.readouterr().err
    assert main(["evaluate", str(run), str(other)]) == 2
    assert "Expected the column 'outcome' of --label-column, got none" in capsys.readouterr().err
    how = ["--label-column", "end", "--positive"]
    for name, turned in (("dead", False), ("alive", True)):
        assert main(["evaluate", str(run), str(other), *how, name, "--out", str(out)]) == 0
        first, second = (json.loads(path.read_text())["test"]["auroc"] for path in (own, out))
        assert first == pytest.approx(1 - second if turned else second)
    assert main(["evaluate", str(run), "digests", "--positive", "x"]) == 2


def test_plain_pairs_need_no_flag(tmp_path, capsys):
    data = words(tmp_path / "t.csv", ("benign", "malignant"), column="label")
    assert main(["fit", str(data), "--out", str(tmp_path / "run"), *SHORT]) == 0
    assert "note: malignant is positive (1) and benign negative (0) in column label" in capsys.readouterr().err
    assert main(["data", "describe", str(data)]) == 0
    assert "malignant is positive, benign negative" in capsys.readouterr().out
    assert main(["fit", str(words(tmp_path / "u.csv", ("I", "II"))), "--label-column", "outcome"]) == 2
    assert "such as --positive II: all others are 0." in capsys.readouterr().err


def test_the_positive_value_of_an_import_holds_later(tmp_path):
    folder = tmp_path / "features"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(24):
        np.save(folder / f"s{number:02}.npy", rng.normal(number % 2, 1, size=(5, 3)))
    labels = pd.DataFrame({"slide_id": [f"s{n:02}" for n in range(24)], "label": ["mut", "wt"] * 12})
    labels.to_csv(tmp_path / "labels.csv", index=False)
    how = ["--labels", str(tmp_path / "labels.csv")]
    store, run, out = (str(tmp_path / name) for name in ("store", "run", "p.csv"))
    assert main(["data", "import", str(folder), *how, "--positive", "wt", "--out", store]) == 0
    assert main(["fit", store, "--out", run, *SHORT]) == 0
    assert main(["predict", run, store, *how, "--out", out]) == 0
    assert pd.read_csv(out)["label"].tolist() == ["mut", "wt"] * 12
    assert set(pd.read_csv(out)["positive"]) == {"wt"}
    assert main(["evaluate", run, store, *how, "--out", str(tmp_path / "e.json")]) == 0
    assert main(["evaluate", run, str(folder), *how]) == 0


def test_missing_values_are_imputed(tmp_path, capsys):
    data = pd.read_csv(table(tmp_path / "t.csv"))
    data.loc[data.index[::7], "f1"] = None
    data.loc[[3, 4], "f2"] = None
    data.to_csv(tmp_path / "t.csv", index=False)
    run, out, count = tmp_path / "run", tmp_path / "p.csv", len(data.index[::7])
    assert main(["fit", str(tmp_path / "t.csv"), "--out", str(run), *SHORT]) == 2
    assert "--impute median" in capsys.readouterr().err
    assert main(["fit", str(tmp_path / "t.csv"), "--out", str(run), "--impute", "median", *SHORT]) == 0
    said = f"{count + 2} missing values are filled with the median of the training bags: f1 {count}, f2 2"
    assert said in capsys.readouterr().err
    known = json.loads((run / "summary.json").read_text())["data"]["imputed"]
    assert known == {"how": "median", "missing": count + 2}
    assert json.loads((run / "summary.json").read_text())["data"]["missing"] == {"f1": count, "f2": 2}
    assert main(["predict", str(run), str(tmp_path / "t.csv"), "--out", str(out)]) == 0
    assert said in capsys.readouterr().err
    assert pd.read_csv(out)["score"].tolist() == pd.read_csv(run / "predictions.csv")["score"].tolist()
    # The values are those of the run, whatever else the table holds.
    few = data[data["bag"].isin(data["bag"].unique()[:2])]
    few.to_csv(tmp_path / "few.csv", index=False)
    assert main(["predict", str(run), str(tmp_path / "few.csv"), "--out", str(out)]) == 0
    # A product of matrices rounds by the number of its rows.
    first = pd.read_csv(run / "predictions.csv")["score"].tolist()[:2]
    assert pd.read_csv(out)["score"].tolist() == pytest.approx(first, rel=1e-6)
    assert main(["evaluate", str(run), str(tmp_path / "t.csv"), "--out", str(tmp_path / "e.json")]) == 0
    assert "new" not in json.loads((tmp_path / "e.json").read_text())
    assert main(["fit", "--resume", str(run)]) == 0
    assert main(["data", "describe", str(tmp_path / "t.csv"), "--impute", "mean"]) == 0
    assert f"{count + 2} missing values need --impute median to train" in capsys.readouterr().out
    assert main(["data", "import", str(tmp_path / "t.csv"), "--impute", "mean", "--out", str(tmp_path / "s")]) == 2


def test_an_excel_table_from_the_command_line(tmp_path):
    data = words(tmp_path / "t.csv", column="label")
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        pd.DataFrame({"note": ["read the other"]}).to_excel(book, sheet_name="About", index=False)
        pd.read_csv(data).to_excel(book, sheet_name="Bags", index=False)
    run = str(tmp_path / "run")
    assert main(["fit", str(tmp_path / "t.xlsx"), "--sheet", "Bags", "--out", run, *SHORT]) == 0
    assert main(["predict", run, str(tmp_path / "t.xlsx"), "--out", str(tmp_path / "p.csv")]) == 0
    assert main(["evaluate", run, str(data)]) == 0
