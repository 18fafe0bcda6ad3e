"""`midam predict` and `midam evaluate` on bags that a run has or has not seen."""

import dataclasses
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from tests.integration.commands import fitted, table

from midam import Bags, read_bags
from midam.cli import main
from midam.registry import METRICS
from midam.runs.apply import evaluate_bags
from midam.runs.loaded import load_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("apply"), "--epochs", "8", "--lr", "0.01", "--test-fraction", "0.2")


def predict(run, data, out):
    assert main(["predict", str(run), str(data), "--out", str(out)]) == 0
    return pd.read_csv(out, dtype=str, keep_default_na=False)


def test_scores_are_those_of_the_run(made, tmp_path):
    data, run = made
    fitted = pd.read_csv(run / "predictions.csv", dtype=str)
    found = predict(run, data, tmp_path / "p.csv")
    assert list(found) == ["bag", "label", "score", "probability", "class", "positive"]
    pd.testing.assert_frame_equal(found, fitted[list(found)])


def test_classes_of_a_run_that_ranks_nothing_are_said_to_mean_nothing(tmp_path, capsys):
    splits = ["val" if bag >= 28 else "test" if bag >= 16 else "train" for bag in range(40)]
    data, run, out = table(tmp_path / "bags.csv", split=splits), tmp_path / "run", tmp_path / "e.json"
    frame = pd.read_csv(data)
    frame["label"] = np.where(frame["split"] == "val", 1 - frame["label"], frame["label"])  # ranked the wrong way
    frame.to_csv(data, index=False)
    words = ["--split", "split", "--epochs", "6", "--lr", "0.01", "--members", "1", "--hidden", "[]", "--out", str(run)]
    said = "class and probability of a bag mean nothing"
    assert main(["fit", str(data), *words]) == 0
    assert capsys.readouterr().out.count(said) == 1
    assert all(said in json.loads((run / "summary.json").read_text())[split]["warnings"][-1] for split in set(splits))
    assert f"{said}." in (run / "report.html").read_text("utf-8")
    assert set(predict(run, data, tmp_path / "p.csv")["class"]) <= {"0", "1"}
    assert capsys.readouterr().out.count(said) == 1
    assert main(["evaluate", str(run), str(data), "--out", str(out)]) == 0
    assert capsys.readouterr().out.count(said) == 1
    assert main(["report", str(run), str(data)]) == 0
    assert f"{said}." in (run / "report-bags.html").read_text("utf-8")
    assert said in json.loads(out.read_text())["test"]["warnings"][-1]


def test_classes_of_a_run_that_ranks_are_left_without_a_word(made, tmp_path, capsys):
    data, run = made
    predict(run, data, tmp_path / "p.csv")
    assert "mean nothing" not in capsys.readouterr().out


def test_labels_are_not_needed(made, tmp_path):
    data, run = made
    frame = pd.read_csv(data)
    frame.drop(columns="label").to_csv(tmp_path / "u.csv", index=False)
    found = predict(run, tmp_path / "u.csv", tmp_path / "p.csv")
    assert list(found) == ["bag", "score", "probability", "class", "positive"]
    assert found["score"].tolist() == pd.read_csv(run / "predictions.csv", dtype=str)["score"].tolist()
    assert main(["evaluate", str(run), str(tmp_path / "u.csv")]) == 2


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_of_labels_that_is_missing_is_told_by_its_near_name(suffix, made, tmp_path, capsys):
    data, run, other, out = *made, tmp_path / f"b{suffix}", tmp_path / "p.csv"
    frame = pd.read_csv(data).rename(columns={"label": "Labels"})
    frame.to_csv(other, index=False) if suffix == ".csv" else frame.to_parquet(other)
    told = f"of --label-column, got none (in {other}); name another: did you mean 'Labels'?"
    assert main(["evaluate", str(run), str(other)]) == 2
    assert f"Expected the column 'label' {told}" in capsys.readouterr().err
    for command in (["evaluate", str(run), str(other)], ["predict", str(run), str(other), "--out", str(out)]):
        assert main([*command, "--label-column", "Label"]) == 2
        assert f"Expected the column 'Label' {told}" in capsys.readouterr().err
    assert main(["evaluate", str(run), str(other), "--label-column", "Labels"]) == 0
    assert predict(run, other, out)["bag"].size == 40  # labels that nobody names are not needed


def test_a_missing_value_is_told_by_bag_and_column_with_the_way_to_fill_it(made, tmp_path, capsys):
    data, run = made
    frame = pd.read_csv(data)
    frame.loc[4, "f2"] = np.nan
    frame.to_csv(tmp_path / "b.csv", index=False)
    assert main(["predict", str(run), str(tmp_path / "b.csv"), "--out", str(tmp_path / "p.csv")]) == 2
    assert "line 6, column f2, bag b01); drop it, or train with --impute median" in capsys.readouterr().err


def test_an_archive_scores_as_the_table_does(made, tmp_path, capsys):
    data, run = made
    frame = pd.read_csv(data)
    features = frame[["f0", "f1", "f2", "f3"]].to_numpy()
    codes, ids = pd.factorize(frame["bag"])
    np.savez(tmp_path / "b.npz", X=features, bag=codes, ids=np.asarray(ids, dtype=str))
    found = predict(run, tmp_path / "b.npz", tmp_path / "p.csv")
    assert "earlier" not in capsys.readouterr().out
    predict(run, tmp_path / "b.npz", tmp_path / "p.csv")
    assert "40 bags scored" in (printed := capsys.readouterr().out.replace("\n", " "))
    assert "instead of earlier scores" in printed
    assert found["score"].tolist() == pd.read_csv(run / "predictions.csv", dtype=str)["score"].tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="f2"), ["got no 'f2' (1 of 4 missing", "t.csv"]),
        (lambda frame: frame.rename(columns={"f1": "g1"}), ["got no 'f1' (1 of 4 missing", "t.csv"]),
        (lambda frame: frame.rename(columns={"bag": "case"}), ["the column 'bag' of --bag-column", "t.csv"]),
    ],
)
def test_other_columns_are_refused(change, words, made, tmp_path, capsys):
    data, run = made
    change(pd.read_csv(data)).to_csv(tmp_path / "t.csv", index=False)
    for command in ("predict", "evaluate"):
        assert main([command, str(run), str(tmp_path / "t.csv"), "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert all(word in error for word in words)
        assert error.count("\n") == 1
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.assign(age=1.5),
        lambda frame: frame[["bag", "label", "f0", "f2", "f1", "f3"]],
    ],
)
def test_features_of_a_store_are_found_by_name(change, made, tmp_path):
    data, run = made
    change(pd.read_csv(data)).to_csv(tmp_path / "t.csv", index=False)
    assert main(["data", "import", str(tmp_path / "t.csv"), "--out", str(tmp_path / "s")]) == 0
    found, same = (predict(run, bags, tmp_path / f"{bags.name}.scores") for bags in (tmp_path / "s", data))
    assert found["score"].tolist() == same["score"].tolist()


def test_another_width_is_refused(made, tmp_path, capsys):
    (data, run), other = made, tmp_path / "b.npz"
    np.savez(other, X=np.zeros((3, 5)), bag=[0, 1, 1])
    assert main(["predict", str(run), str(other), "--out", str(tmp_path / "p.csv")]) == 2
    error = capsys.readouterr().err
    assert f"shape [4], on which {run} was trained, got [5] (in {other}); use the features of {data}" in error
    assert not (tmp_path / "p.csv").exists()


def test_the_data_are_not_overwritten(made, tmp_path, capsys):
    data, run = made
    before = data.read_bytes()
    assert main(["predict", str(run), str(data), "--out", str(data)]) == 2
    assert "a file outside" in capsys.readouterr().err
    assert data.read_bytes() == before


def test_a_store_gets_no_file_of_scores(made, tmp_path, capsys):
    data, run = made
    store = tmp_path / "bags.store"
    assert main(["data", "import", str(data), "--out", str(store)]) == 0
    held = sorted(store.rglob("*"))
    assert main(["predict", str(run), str(store), "--out", str(store / "scores.csv")]) == 2
    assert "a file outside" in capsys.readouterr().err
    assert sorted(store.rglob("*")) == held


def test_own_bags_are_told_apart_by_split(made, tmp_path, capsys):
    data, run = made
    assert main(["evaluate", str(run), str(data), "--out", str(tmp_path / "e.json")]) == 0
    result, summary = json.loads((tmp_path / "e.json").read_text()), json.loads((run / "summary.json").read_text())
    assert (result.pop("headline"), result.pop("notes")) == ("test", [])
    assert result == {name: summary[name] for name in ("test", "val", "train")}
    assert capsys.readouterr().out.splitlines()[-1].startswith("test bags: AUROC")


def test_further_metrics_by_name(made, tmp_path, capsys, monkeypatch):
    data, run = made
    (tmp_path / "ownmetrics.py").write_text(
        "from midam.registry import METRICS\n"
        "def called(labels, scores, threshold):\n    return (scores >= threshold).mean()\n"
        "METRICS.add('called', called)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(METRICS, "_added", {})
    names, out = "f1, called", tmp_path / "e.json"
    words = ["--metrics", names, "--out", str(out), "--plugin", "ownmetrics"]
    assert main(["evaluate", str(run), str(data), *words]) == 0
    result = json.loads(out.read_text())
    for part in ("test", "val", "train"):
        assert result[part]["metrics"]["f1"] == result[part]["at_threshold"]["f1"]
    rows = pd.read_csv(run / "predictions.csv").query("split == 'test'")
    called = (rows["score"] >= result["test"]["at_threshold"]["threshold"]).mean()
    assert result["test"]["metrics"]["called"] == pytest.approx(called)
    assert f"called: test {called:.3f}, val " in capsys.readouterr().out
    out.unlink()
    for wrong, words in (("aurok", "did you mean 'auroc'?"), ("ownmetrics.called", "known are")):
        for bags in (str(data), "not read.csv"):
            assert main(["evaluate", str(run), bags, "--metrics", wrong, "--out", str(out)]) == 2
            assert words in capsys.readouterr().err
    assert not out.exists()


def test_new_bags_are_new(made, tmp_path, capsys):
    data, run = made
    frame = pd.read_csv(data)
    frame["bag"] = "x" + frame["bag"]
    frame.iloc[:, -1] += 0.25
    frame[frame["bag"] > "xb20"].to_csv(tmp_path / "n.csv", index=False)
    assert main(["evaluate", str(run), str(tmp_path / "n.csv"), "--out", str(tmp_path / "e.json")]) == 0
    result = json.loads((tmp_path / "e.json").read_text())
    assert set(result) == {"new", "headline", "notes"}
    assert result["headline"] == "new"
    assert result["new"]["bags"] == 19
    captured = capsys.readouterr()
    assert "new bags: AUROC" in captured.out
    assert "have the ids" not in captured.err


def test_bags_with_known_ids_in_other_data_are_warned_of(made, tmp_path, capsys):
    data, run = made
    frame = pd.read_csv(data)
    frame.iloc[:, -1] += 0.25
    frame[frame["bag"] > "b30"].to_csv(tmp_path / "n.csv", index=False)
    assert main(["evaluate", str(run), str(tmp_path / "n.csv")]) == 0
    captured = capsys.readouterr()
    assert "9 of 9 new bags" in captured.err
    assert "no test" in captured.err
    assert "new bags" in captured.out


def test_a_patient_that_was_a_bag_and_is_a_group_now_is_warned_of(made):
    data, run = made
    trained = load_run(run)
    bags = read_bags(data)
    slides = Bags.from_list(
        [bags[i] + shift for i in range(40) for shift in (0.25, 0.5)],
        np.repeat(bags.labels, 2),
        ids=[f"slide{i}" for i in range(80)],
        groups=np.repeat(bags.ids, 2),
    ).replace(feature_names=bags.feature_names)
    known = 2 * sum(split != "test" for split in trained.splits.values())
    with pytest.warns(UserWarning, match=f"^{known} of 80 new bags .* no test"):
        evaluate_bags(trained, slides)
    patients = slides.subset(range(0, 80, 2)).replace(ids=bags.ids, groups=None)
    grouped = dataclasses.replace(trained, groups=dict.fromkeys(bags.ids[:7].tolist(), "train"), splits={})
    with pytest.warns(UserWarning, match="^7 of 40 new bags .* no test"):
        evaluate_bags(grouped, patients)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_bags(trained, slides.replace(groups=[f"other{i // 2}" for i in range(80)]))


def test_known_bags_among_new_ones_stay_apart_whatever_their_ids(made, tmp_path, capsys):
    data, run = made
    known, new = pd.read_csv(data), pd.read_csv(data)
    known["bag"] = "renamed-" + known["bag"]
    new["bag"] = "new-" + new["bag"]
    new.iloc[:, -1] += 0.25
    pd.concat([known, new]).to_csv(tmp_path / "both.csv", index=False)
    assert main(["evaluate", str(run), str(tmp_path / "both.csv"), "--out", str(tmp_path / "e.json")]) == 0
    result, summary = json.loads((tmp_path / "e.json").read_text()), json.loads((run / "summary.json").read_text())
    assert result["headline"] == "new"
    assert result["new"]["bags"] == new["bag"].nunique()
    assert result["train"]["bags"] == summary["train"]["bags"]
    assert "have the ids" not in capsys.readouterr().err


def test_files_of_the_run_are_not_overwritten(made, capsys):
    data, run = made
    before = (run / "model.pt").read_bytes()
    assert main(["predict", str(run), str(data), "--out", str(run / "model.pt")]) == 2
    assert "a file outside" in capsys.readouterr().err
    assert (run / "model.pt").read_bytes() == before


def test_bags_of_one_class_have_no_auroc(made, tmp_path, capsys):
    data, run = made
    frame = pd.read_csv(data)
    frame["bag"] = "x" + frame["bag"]
    frame[frame["label"] == 1].to_csv(tmp_path / "n.csv", index=False)
    assert main(["evaluate", str(run), str(tmp_path / "n.csv")]) == 0
    assert "not defined (one class only)" in capsys.readouterr().out


def test_scores_of_instances_are_written_beside_those_of_bags(made, tmp_path, capsys):
    h5py = pytest.importorskip("h5py")
    data, run = made
    folder = tmp_path / "instances"
    expected = predict(run, data, tmp_path / "p.csv")
    assert main(["predict", str(run), str(data), "--out", str(tmp_path / "q.csv"), "--instances", str(folder)]) == 0
    found = pd.read_csv(tmp_path / "q.csv")
    np.testing.assert_allclose(found["score"], expected["score"].astype(float), rtol=0, atol=1e-6)
    assert sorted(path.stem for path in folder.iterdir()) == sorted(found["bag"])
    for bag, score in zip(found["bag"], found["score"], strict=True):
        with h5py.File(folder / f"{bag}.h5") as file:
            assert file["attention_scores"].shape == (3, 1)
            np.testing.assert_allclose(file.attrs["bag_score"], score, rtol=1e-7)
    capsys.readouterr()
    assert main(["predict", str(run), str(data), "--out", str(tmp_path / "r.csv"), "--instances", str(folder)]) == 2
    assert "got 40 of them" in capsys.readouterr().err
    assert not (tmp_path / "r.csv").exists()


def test_scores_of_instances_are_not_written_among_the_data(made, tmp_path, capsys):
    _, run = made
    (tmp_path / "store").mkdir()
    for folder in (tmp_path / "store", tmp_path / "store" / "deep"):
        words = ["predict", str(run), str(tmp_path / "store"), "--out", str(tmp_path / "p.csv")]
        assert main([*words, "--instances", str(folder)]) == 2
        assert "another folder than the data" in capsys.readouterr().err


def test_scores_are_not_written_over_another_file(made, tmp_path, capsys):
    data, run = made
    out = tmp_path / "precious.csv"
    out.write_text("patient,age\np1,61\n")
    assert main(["predict", str(run), str(data), "--out", str(out)]) == 2
    assert "precious.csv; choose a new name" in capsys.readouterr().err
    assert out.read_text() == "patient,age\np1,61\n"
    first = predict(run, data, tmp_path / "p.csv")
    pd.testing.assert_frame_equal(predict(run, data, tmp_path / "p.csv"), first)


def test_a_folder_that_is_not_there_is_no_run(made, tmp_path, capsys):
    assert main(["predict", str(tmp_path / "gone"), str(made[0]), "--out", str(tmp_path / "p.csv")]) == 2
    assert f"Expected the folder of a run, got nothing at {tmp_path / 'gone'}" in capsys.readouterr().err
