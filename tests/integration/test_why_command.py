"""`midam predict --why` on a table, on pictures, stopped and wrong: files, lines and messages."""

import csv
import json
import re
import sys

import numpy as np
import pytest
from PIL import Image

from midam.cli import main

SEED = 3


def write_table(path, *, count, labeled, seed=SEED):
    """Write a table of machines of which each second one has one hot row in a mode; returns the lines of those rows."""
    rng, lines, hot = np.random.default_rng(seed), list[str](), {}
    lines.append("machine,plant,at,heat,load,mode" + (",state" if labeled else ""))
    for machine in range(count):
        size, bad = int(rng.integers(4, 9)), machine % 2
        at = int(rng.integers(size)) if bad else -1
        for row in range(size):
            heat, mode = rng.normal(60 + 20 * (row == at), 3), "ramp" if row == at or rng.random() < 0.1 else "idle"
            time = f"2026-03-{1 + machine % 28:02}T{8 + row:02}:{int(rng.integers(60)):02}"
            cells = [f"m{machine}", f"p{machine // 2}", time, f"{heat:.2f}", f"{rng.normal():.3f}", mode]
            lines.append(",".join([*cells, *([["ok", "broken"][bad]] if labeled else [])]))
            if row == at:
                hot[f"m{machine}"] = len(lines)
    path.write_text("\n".join(lines) + "\n")
    return hot


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on machines, new machines, and the line of the hot row of each broken one."""
    folder = tmp_path_factory.mktemp("why")
    write_table(folder / "old.csv", count=60, labeled=True)
    hot = write_table(folder / "new.csv", count=50, labeled=False, seed=SEED + 1)
    words = ["--bag-column", "machine", "--label-column", "state", "--groups", "plant", "--positive", "broken"]
    words += ["--method", "bag-statistics-extratrees", "--out", str(folder / "run")]
    assert main(["fit", str(folder / "old.csv"), *words]) == 0
    return folder, hot


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_list_names_the_line_and_what_is_unusual_in_it(made, capsys, monkeypatch):
    folder, hot = made
    monkeypatch.setitem(sys.modules, "h5py", None)  # it needs no extra
    assert main(["predict", str(folder / "run"), str(folder / "new.csv"), "--why"]) == 0
    out, place = capsys.readouterr().out, folder / "run" / "predict-new"
    called = {row["bag"]: row for row in rows_of(place / "predictions.csv") if row["class"] == "broken"}
    rows = rows_of(place / "why.csv")
    assert {row["bag"] for row in rows} == set(called)
    first = [row for row in rows if row["rank"] == "1"]
    assert [float(row["score"]) for row in first] == sorted((float(row["score"]) for row in first), reverse=True)
    found = [row for row in first if row["bag"] in hot]
    assert len(found) >= 23
    assert np.mean([int(row["line"]) == hot[row["bag"]] for row in found]) >= 0.95
    lines = (folder / "new.csv").read_text().splitlines()
    for row in found:
        assert lines[int(row["line"]) - 1].split(",")[2] == row["time"]
        assert float(row["without"]) <= float(row["score"])
        assert row["feature_1"] in ("heat", "mode")
        assert row["group"] == called[row["bag"]]["group"]
        if row["feature_1"] == "heat" and int(row["line"]) == hot[row["bag"]]:
            assert float(row["value_1"]) > float(row["high_1"]) > float(row["typical_1"]) > float(row["low_1"])
    assert f"{len(called)} of 50 bags called positive: {place / 'why.csv'}, {place / 'why.html'}" in out
    assert re.search(
        r"#\d+, line \d+, 2026-03-\d+T\S+: \d+% of the score, without it 0\.\d+; (heat \d+|mode ramp)", out
    )
    page = (place / "why.html").read_text()
    assert page.count("<section") == len(called) + 1
    assert "Ordinary instances are those of the negative training bags" in page
    assert sorted(path.name for path in place.iterdir()) == ["predictions.csv", "why.csv", "why.html"]


def test_the_list_says_which_bags_the_run_knows(made, tmp_path, capsys):
    folder, _ = made
    old, new = ((folder / name).read_text().splitlines() for name in ("old.csv", "new.csv"))
    renamed = [line.replace("m", "n", 1) for line in new[1:]]
    (tmp_path / "both.csv").write_text("\n".join([new[0], *(line.rpartition(",")[0] for line in old[1:]), *renamed]))
    out = tmp_path / "s.csv"
    assert main(["predict", str(folder / "run"), str(tmp_path / "both.csv"), "--why", "--out", str(out)]) == 0
    rows, text = rows_of(tmp_path / "s.why.csv"), capsys.readouterr().out
    assert all(row["split"] == ("new" if row["bag"].startswith("n") else "train") for row in rows)
    bags = {row["bag"]: row["split"] for row in rows}
    counts = ", ".join(f"{list(bags.values()).count(name)} {name}" for name in ("train", "new"))
    assert f"{len(bags)} of 110 bags called positive ({counts}): " in text
    assert re.search(r"\nm\d+: called broken, .*, train bag, \d+ instances, group", text)
    page = (tmp_path / "s.why.html").read_text()
    assert f"Bags of the run: {counts}. The model has learned from train bags" in page


def test_an_explanation_has_the_label_in_the_words_of_the_data(made, tmp_path, capsys):
    folder, _ = made
    words = ["explain", str(folder / "run"), str(folder / "old.csv"), "--out", str(tmp_path / "x")]
    assert main(["--json", *words, "--bags", "m1", "m2"]) == 0
    assert [bag["label"] for bag in json.loads(capsys.readouterr().out)["bags"]] == ["broken", "ok"]


def test_all_bags_of_a_slice_beside_a_named_file_as_json(made, tmp_path, capsys):
    folder, _ = made
    out = tmp_path / "s.csv"
    words = ["predict", str(folder / "run"), str(folder / "new.csv"), "--out", str(out), "--bags", "10:20"]
    assert main(["--json", *words, "--why", "all", "--top", "1"]) == 0
    listed = json.loads(capsys.readouterr().out)["why"]
    assert (listed["table"], listed["page"]) == (str(tmp_path / "s.why.csv"), str(tmp_path / "s.why.html"))
    assert {bag["bag"] for bag in listed["bags"]} == {f"m{machine}" for machine in range(10, 20)}
    assert {len(bag["instances"]) for bag in listed["bags"]} == {1}
    assert len(rows_of(tmp_path / "s.why.csv")) == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--top", "2"], "Expected --why with --top"),
        (["--why", "--top", "0"], "Expected --top as a whole number of at least 1"),
        (["--why", "some"], "invalid choice: 'some'"),
        (["--why", "--out", "/dev/stdout"], "Expected a file for --out with --why"),
    ],
)
def test_wrong_options_are_named(made, capsys, words, message):
    folder, _ = made
    assert main(["predict", str(folder / "run"), str(folder / "new.csv"), *words]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_pictures_are_shown(tmp_path, capsys):
    rng, labels = np.random.default_rng(0), ["name,label"]
    for image in range(12):
        pixels = rng.integers(0, 60, (64, 64, 3))
        if image % 2:
            pixels[32:, :32] += 150
        folder = tmp_path / "images"
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"i{image:02}.png")
        labels.append(f"i{image:02},{image % 2}")
    (tmp_path / "labels.csv").write_text("\n".join(labels) + "\n")
    words = [
        "--labels",
        str(tmp_path / "labels.csv"),
        "--bag-column",
        "name",
        "--patch-size",
        "32",
        "--encoder",
        "resnet20",
    ]
    words += ["--epochs", "2", "--members", "1", "--no-baseline", "--folds", "0", "--out", str(tmp_path / "run")]
    assert main(["fit", str(folder), *words]) == 0
    assert main(["predict", str(tmp_path / "run"), str(folder), "--why", "all", "--out", str(tmp_path / "s.csv")]) == 0
    rows = rows_of(tmp_path / "s.why.csv")
    assert {row["file"] for row in rows} == {f"i{image:02}.png" for image in range(12)}
    assert {(row["coord_0"], row["coord_1"]) for row in rows} <= {(x, y) for x in ("0", "32") for y in ("0", "32")}
    assert (tmp_path / "s.why.html").read_text().count("<img") == len(rows)
    assert "called" not in capsys.readouterr().err
