"""Labels, predictions and the positive class in the words of the data: what the tables of runs and comparisons say."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

from midam.cli import main
from midam.data.store import open_store

FIT = ["--method", "bag-statistics-logistic"]
# Words of the classes, the second of which has the larger values, and the one that is named as positive.
CASES = {
    "0 of 0 and 1": (("0", "1"), "0"),
    "0 and 1": (("0", "1"), None),
    "benign": (("benign", "malignant"), "benign"),
    "against the alphabet": (("zeta", "beta"), "beta"),
    "by the alphabet": (("alpha", "beta"), "beta"),
}


def labels_of(words, bags=60):
    """The label of each bag."""
    return [words[bag % len(words)] for bag in range(bags)]


def write_folder(folder, words, bags=60, shift=1.0):
    """A file of features for each bag, and the table of their labels."""
    rng = np.random.default_rng(0)
    (folder / "features").mkdir(parents=True)
    for bag, word in enumerate(labels_of(words, bags)):
        np.save(folder / f"features/b{bag}.npy", rng.normal(shift * words.index(word), 1.0, size=(4, 2)))
    frame = pd.DataFrame({"bag": [f"b{bag}" for bag in range(bags)], "label": labels_of(words, bags)})
    frame.to_csv(folder / "labels.csv", index=False)
    return str(folder / "features"), ["--labels", str(folder / "labels.csv")]


def read(path):
    """A table as text."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


@pytest.fixture(scope="module", params=CASES)
def made(request, tmp_path_factory):
    words, positive = CASES[request.param]
    folder = tmp_path_factory.mktemp("run")
    data, labels = write_folder(folder, words)
    named = [] if positive is None else ["--positive", positive]
    assert main(["fit", data, *labels, *named, *FIT, "--test-fraction", "0.3", "--out", str(folder / "run")]) == 0
    return folder, words, positive or words[1]


def test_labels_are_those_of_the_data_and_the_positive_class_is_named(made, tmp_path):
    folder, words, positive = made
    data = read(folder / "labels.csv").set_index("bag")["label"]
    out = tmp_path / "p.csv"
    assert main(["predict", str(folder / "run"), str(folder / "features"), "--out", str(out)]) == 0
    assert set(read(out)["positive"]) == {positive}
    for path in (folder / "run/predictions.csv", out):
        table = read(path)
        assert set(table["class"]) == set(words)
        true = data[table["bag"]].tolist()
        assert table.get("label", pd.Series(true)).tolist() == true
        assert set(table["positive"]) == {positive}
        called, scores = table["class"] == positive, table["score"].astype(float)
        assert scores[called].min() >= scores[~called].max()
        assert accuracy_score(true, table["class"]) > 0.7
        assert roc_auc_score(np.array(true) == positive, scores) > 0.8
    table = read(folder / "run/predictions.csv").query("split == 'test'")
    found = json.loads((folder / "run/summary.json").read_text())["test"]
    truth, called = table["label"] == table["positive"], table["class"] == table["positive"]
    assert roc_auc_score(truth, table["score"].astype(float)) == pytest.approx(found["auroc"], abs=1e-9)
    assert found["at_threshold"]["sensitivity"] == pytest.approx(called[truth].mean())
    assert found["at_threshold"]["specificity"] == pytest.approx((~called[~truth]).mean())


def test_the_table_of_a_run_serves_as_its_labels(made, tmp_path, capsys):
    folder, _, positive = made
    known = json.loads((folder / "run/summary.json").read_text())
    for table in (folder / "run/predictions.csv", folder / "labels.csv"):
        how = ["--labels", str(table), "--out", str(tmp_path / "e.json")]
        capsys.readouterr()
        assert main(["evaluate", str(folder / "run"), str(folder / "features"), *how]) == 0
        assert "note:" not in capsys.readouterr().err
        found = json.loads((tmp_path / "e.json").read_text())
        for split in ("train", "test"):
            assert found[split]["auroc"] == pytest.approx(known[split]["auroc"], abs=1e-9)
    # The positive class may be named again, but not another one: each metric would be that of the other class.
    how = ["--labels", str(folder / "labels.csv"), "--positive"]
    assert main(["evaluate", str(folder / "run"), str(folder / "features"), *how, positive]) == 0
    other = next(word for word in set(read(folder / "labels.csv")["label"]) if word != positive)
    assert main(["evaluate", str(folder / "run"), str(folder / "features"), *how, other]) == 2
    assert f"name the value that means {positive} as --positive" in capsys.readouterr().err


def test_the_page_reads_the_table_of_the_run(made):
    folder, _, positive = made
    assert main(["report", str(folder / "run")]) == 0
    tested = read(folder / "run/predictions.csv").query("split == 'test'")
    count = (tested["label"] == positive).sum()
    assert f"{len(tested)} bags, {count} positive" in (folder / "run/report.html").read_text("utf-8")


def test_a_store_holds_words_and_their_meaning(made, tmp_path, capsys):
    folder, words, positive = made
    store, how = tmp_path / "s.store", ["--labels", str(folder / "labels.csv"), "--positive", positive]
    assert main(["data", "import", str(folder / "features"), *how, "--out", str(store)]) == 0
    table, bags = read(store / "bags.csv"), open_store(store)
    data = read(folder / "labels.csv").set_index("bag")["label"]
    assert table["label"].tolist() == data[table["id"]].tolist()
    assert bags.labels.tolist() == (table["label"] == positive).astype(int).tolist()
    known = json.loads((folder / "run/summary.json").read_text())
    out = ["--out", str(tmp_path / "e.json")]
    other = next(word for word in words if word != positive)
    # A store that was made with the other class as positive has the same words, and needs no option.
    how = ["--labels", str(folder / "labels.csv"), "--positive", other]
    assert main(["data", "import", str(folder / "features"), *how, "--out", str(tmp_path / "o.store")]) == 0
    for path in (store, tmp_path / "o.store"):
        assert main(["evaluate", str(folder / "run"), str(path), *out]) == 0
        found = json.loads((tmp_path / "e.json").read_text())
        assert found["test"]["auroc"] == pytest.approx(known["test"]["auroc"], abs=1e-9)
    assert main(["fit", str(store), "--positive", other, *FIT, "--out", str(tmp_path / "run")]) == 0
    assert set(read(tmp_path / "run/predictions.csv")["positive"]) == {other}


def test_more_classes_and_grades_are_in_words(tmp_path):
    words = ("low", "mid", "high")
    data, labels = write_folder(tmp_path / "data", words, bags=90, shift=2.0)
    known = read(tmp_path / "data/labels.csv").set_index("bag")["label"]
    for options, column in (([], "class"), (["--grades", ",".join(words)], "grade")):
        run = tmp_path / column
        short = ["--pooling", "mean", "--epochs", "15", "--members", "1", "--test-fraction", "0.3"]
        assert main(["fit", data, *labels, *options, *short, "--no-baseline", "--out", str(run)]) == 0
        table, summary = read(run / "predictions.csv"), json.loads((run / "summary.json").read_text())
        assert table["label"].tolist() == known[table["bag"]].tolist()
        assert "positive" not in table
        tested = table[table["split"] == "test"]
        assert accuracy_score(tested["label"], tested[column]) == pytest.approx(summary["test"]["accuracy"])
        how = ["--labels", str(run / "predictions.csv"), "--out", str(tmp_path / "e.json")]
        assert main(["evaluate", str(run), data, *how]) == 0
        found, metric = json.loads((tmp_path / "e.json").read_text()), "auroc_macro" if column == "class" else "c_index"
        assert found["test"][metric] == pytest.approx(summary["test"][metric], abs=1e-9)


@pytest.mark.parametrize("positive", ["0", "1"])
def test_a_comparison_has_the_words_of_the_data(positive, tmp_path):
    data, labels = write_folder(tmp_path / "data", ("0", "1"), bags=45)
    methods = "bag-statistics-logistic,mean-map-svm"
    how = ["--positive", positive, "--methods", methods, "--cv", "1x3", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert main(["compare", data, *labels, *how]) == 0
    table, trials = read(tmp_path / "out/predictions.csv"), pd.read_csv(tmp_path / "out/trials.csv")
    known = read(tmp_path / "data/labels.csv").set_index("bag")["label"]
    assert table["label"].tolist() == known[table["bag"]].tolist()
    assert set(table["positive"]) == {positive}
    for row in trials.itertuples():
        part = table[(table["method"] == row.method) & (table["fold"] == str(row.fold))]
        truth = part["label"] == part["positive"]
        assert roc_auc_score(truth, part["score"].astype(float)) == pytest.approx(row.auroc)
    counts = sorted(set(trials["test_positives"]))
    page = re.sub(r"<[^>]+>|\s+", " ", (tmp_path / "out/report.html").read_text("utf-8"))
    assert f"bags, {' to '.join(map(str, counts))} of them positive" in page


# Classes of a store and of a run, the second of which is positive, and whether the run knows those of the store.
PAIRS = {
    "the same, turned": (("no", "yes"), ("yes", "no"), True),
    "both plain": (("no", "yes"), ("benign", "malignant"), False),
    "one turned": (("no", "yes"), ("malignant", "benign"), False),
    "a common word turned": (("control", "sick"), ("affected", "control"), False),
    "unknown": (("alive", "dead"), ("zeta", "beta"), False),
    "numbers and words": (("0", "1"), ("zeta", "beta"), False),
    "words and numbers": (("alive", "dead"), ("0", "1"), False),
}


@pytest.mark.parametrize("case", PAIRS)
def test_labels_of_other_words_than_the_run_need_their_positive_class(case, tmp_path, capsys):
    stored, trained, known = PAIRS[case]
    data, labels = write_folder(tmp_path / "run", trained, bags=40)
    assert main(["fit", data, *labels, "--positive", trained[1], *FIT, "--out", str(tmp_path / "run/run")]) == 0
    data, labels = write_folder(tmp_path / "data", stored, bags=40)
    store, run = str(tmp_path / "s.store"), str(tmp_path / "run/run")
    assert main(["data", "import", data, *labels, "--positive", stored[1], "--out", store]) == 0
    out, scores = ["--out", str(tmp_path / "e.json")], ["--out", str(tmp_path / "p.csv")]
    capsys.readouterr()
    advice = f"write them so, or name the value that means {trained[1]} as --positive"
    for words in ([store], [data, *labels]):
        assert main(["evaluate", run, *words, *out]) == (0 if known else 2)
        assert (advice in capsys.readouterr().err) != known
    assert main(["predict", run, store, *scores]) == 0
    assert ("label" in read(tmp_path / "p.csv")) == known
    # The advice works: a word of the run keeps its meaning, and another one has that which it is given.
    means = next((word for word in stored if word == trained[1]), stored[1])
    for words in ([store], [data, *labels]):
        assert main(["evaluate", run, *words, "--positive", means, *out]) == 0
        found = json.loads((tmp_path / "e.json").read_text())
        assert found[found["headline"]]["positives"] == 20
        assert main(["predict", run, *words, "--positive", means, *scores]) == 0
        table = read(tmp_path / "p.csv")
        assert set(table["label"]) == set(trained)
        bags = read(tmp_path / "data/labels.csv").query(f"label == '{means}'")["bag"]
        assert set(table["bag"][table["label"] == table["positive"]]) == set(bags)


def test_a_store_keeps_the_events_of_its_table(tmp_path, capsys):
    rng, times = np.random.default_rng(0), np.arange(40) % 13 + 1.0
    frame = pd.DataFrame({"bag": [f"b{bag}" for bag in range(40)], "time": times, "event": ["alive", "dead"] * 20})
    frame = frame.assign(x=rng.normal(-times, 1.0), y=rng.normal(size=40))
    data, store, run = str(tmp_path / "t.csv"), str(tmp_path / "s.store"), str(tmp_path / "run")
    frame.to_csv(data, index=False)
    short = ["--epochs", "1", "--members", "1", "--no-baseline", "--test-fraction", "0.3"]
    assert main(["fit", data, "--positive", "dead", *short, "--out", run]) == 0
    assert main(["data", "import", data, "--positive", "dead", "--out", store]) == 0
    found = []
    for words in ([data], [store], [data, "--positive", "dead"]):
        assert main(["evaluate", run, *words, "--out", str(tmp_path / "e.json")]) == 0
        found.append(json.loads((tmp_path / "e.json").read_text())["test"]["c_index"])
    assert found == [found[0]] * 3
    # Its table holds 0 and 1: a word that it does not know is no silent nothing.
    for command in (["fit", store, *short, "--out", str(tmp_path / "other")], ["evaluate", run, store]):
        capsys.readouterr()
        assert main([*command, "--positive", "alive"]) == 2
        assert "Expected the event 'alive' in column event, got 0, 1" in capsys.readouterr().err
