"""The paper's studies in versions of seconds: pages, figures, resumed trials, and the command."""

import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from midam.compare.workers import Group
from midam.data.bags import Bags
from studies import __main__ as command
from studies.__main__ import main
from studies.engine import Store, settings_hash, take_published
from studies.images import table3
from studies.images.design import DESIGNS, limited
from studies.images.sets import make_set
from studies.images.trials import make_jobs
from studies.options import StudyOptions
from studies.paper_tables import SETS
from studies.protocol import paper_config
from studies.registry import STUDIES, find_study
from studies.sets import catalog
from studies.tabular import table2, table2_trials
from studies.theory import unit_tests


@pytest.fixture(scope="module")
def sets():
    """Two small sets whose positive bags differ in one feature."""

    def draw(seed, count=40):
        rng = np.random.default_rng(seed)
        labels = np.arange(count) % 2
        arrays = [rng.normal(0, 1, (int(rng.integers(1, 6)), 5)).astype(np.float32) for _ in labels]
        for array, label in zip(arrays, labels):
            array[0, 0] += 2 * label
        return Bags.from_list(arrays, labels)

    return {"one": draw(0), "two": draw(1)}


def options(folder, **settings):
    return StudyOptions(out=folder / "out", cache=folder / "cache", smaller=True, **settings)


def page(folder, name):
    """The text of a page whose figures are all there."""
    text = (folder / "out" / f"{name}.md").read_text(encoding="utf-8")
    for figure in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (folder / "out" / figure).exists()
    for line in ("- Command: `python -m studies", "- Machine: ", "- Seeds: ", "- Wall time"):
        assert line in text
    if name in STUDIES.names() and not re.search(r"^- Command: .*--quick", text, re.MULTILINE):
        assert find_study(name).store in ("", *re.findall(r"\[trials/(\S+)\.jsonl\.gz\]", text))
    return text


def trials(folder, name):
    lines = (folder / "cache" / name).read_text().splitlines()
    return [row for row in map(json.loads, lines) if "wall" not in row]


@pytest.mark.long
def test_the_cross_validation_has_a_page_of_its_own(tmp_path, sets):
    table2.study(options(tmp_path), {"one": sets["one"]})
    before = page(tmp_path, "table2")
    table2.study(options(tmp_path, protocol="cv"), sets)
    assert page(tmp_path, "table2") == before
    text = page(tmp_path, "table2-cv")
    assert "- Command: `python -m studies table2 --protocol cv" in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## AUROC",
        "## Paired difference to midam-printed-att",
        "## Time",
        "## How this page was made",
    ]
    shown = dict(re.findall(r"\| ([\w-]+) \| (\d\.\d{3}) \| \d\.\d{3} \| \d\.\d{3} \|", text))
    frame = pd.read_csv(tmp_path / "out" / "trials" / "table2-cv.csv.gz")
    means = frame[frame["set"] == "one"].groupby("method")["auroc"].mean()
    assert shown == {method: f"{mean:.3f}" for method, mean in means.items()}


@pytest.mark.long
def test_a_study_is_carried_on_from_the_trials_beside_its_page(tmp_path, sets, monkeypatch, capsys):
    one = {"one": sets["one"]}
    table2.study(options(tmp_path), one)
    published = tmp_path / "out" / "trials" / "table2.jsonl.gz"
    lines = gzip.decompress(published.read_bytes()).decode().splitlines()
    assert lines == (tmp_path / "cache" / "table2.jsonl").read_text().splitlines()
    assert "- Trials, a line of JSON each: [trials/table2.jsonl.gz](trials/table2.jsonl.gz)" in page(tmp_path, "table2")
    # On another machine, with the same bags and another number of splits.
    elsewhere = tmp_path / "elsewhere"
    run = replace(find_study("table2"), run=lambda given: table2.study(options(elsewhere, splits=3), one))
    monkeypatch.setattr(command, "check_study", lambda *_, **__: run)
    words = ["--trials", str(published), "--out", str(elsewhere / "out"), "--cache", str(elsewhere / "cache")]
    assert main(["table2", *words]) == 0
    assert f"took {len(lines)} lines" in capsys.readouterr().err
    rows = (elsewhere / "cache" / "table2.jsonl").read_text().splitlines()
    assert rows[: len(lines)] == lines
    assert {json.loads(row).get("split") for row in rows[len(lines) :]} == {2, None}


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"{cut", mtime=0), gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:-9]],
    ids=["plain", "half a line", "cut off"],
)
def test_damaged_published_trials_are_refused(tmp_path, capsys, content):
    path = tmp_path / "table2.jsonl.gz"
    path.write_bytes(content)
    cache = ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    assert main(["table2", "--trials", str(path), *cache]) == 2
    assert "got damage" in capsys.readouterr().err
    assert main(["table2", "--trials", str(tmp_path / "none" / "table2.jsonl.gz"), *cache]) == 2
    assert "got no file" in capsys.readouterr().err
    assert main(["table2", "--trials", str(path), "--size", "small", *cache]) == 2
    assert "Expected no --size" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "said"), [("table3", "Expected the trials of the study table3, images.jsonl.gz"), ("table1", "keeps none")]
)
def test_trials_of_another_study_are_refused(tmp_path, capsys, name, said):
    path = tmp_path / "table2.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}\n", mtime=0))
    words = ["--trials", str(path), "--cache", str(tmp_path / "cache")]
    assert main([name, *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "cache").exists()


@pytest.fixture(scope="module")
def five(tmp_path_factory, sets):
    """The folder of Table 2 over five splits."""
    folder = tmp_path_factory.mktemp("five")
    table2.study(options(folder, splits=5), sets)
    return folder


@pytest.mark.long
def test_a_stopped_table2_goes_on_where_it_was(tmp_path, sets):
    one = {"one": sets["one"]}
    table2.study(options(tmp_path), one)
    whole = trials(tmp_path, "table2.jsonl")
    stopped = tmp_path / "stopped"
    (stopped / "cache").mkdir(parents=True)
    text = (tmp_path / "cache" / "table2.jsonl").read_text()
    half = text[: text.index("\n", len(text) // 2) + 30]
    (stopped / "cache" / "table2.jsonl").write_text(half)
    table2.study(options(stopped), one)
    again = trials(stopped, "table2.jsonl")
    assert [row["seconds"] for row in again[: half.count("\n")]] == [
        row["seconds"] for row in whole[: half.count("\n")]
    ]

    def results(rows):
        names = ("method", "lr", "split", "fold", "test_best", "test_last", "best_epoch")
        return sorted(tuple(row[name] for name in names) for row in rows)

    assert results(again) == results(whole)


@pytest.mark.long
def test_unit_tests_print_what_was_found(tmp_path):
    find_study("unit-tests")(options(tmp_path))
    text = page(tmp_path, "unit-tests")
    rows = [line for line in text.splitlines() if "| minmax-auc |" in line]
    assert len(rows) == 3
    for line in rows:
        for train, test, verdict in re.findall(r"([\d.]+), ([\d.]+) \([\d.]+\): (pass|fail)", line):
            assert verdict == ("pass" if float(train) >= unit_tests.PASS and float(test) >= unit_tests.PASS else "fail")
    seconds = (tmp_path / "cache" / "unit-tests.jsonl").read_text()
    find_study("unit-tests")(options(tmp_path))
    assert (tmp_path / "cache" / "unit-tests.jsonl").read_text() == seconds


@pytest.mark.data
def test_the_command_writes_table1(tmp_path, capsys):
    assert main(["table1", "--out", str(tmp_path), "--cache", str(tmp_path / "cache")]) == 0
    text = (tmp_path / "table1.md").read_text()
    assert "which the paper prints for Elephant" in text
    assert "table1.md" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tabel2"], "did you mean 'table2'"),
        (["table1", "--splits", "30"], "no --splits with the study table1"),
        (["table2", "--protocol", "loo"], "protocol splits or cv"),
        (["table2", "--protocol", "cv", "--margin", "0.1"], "no --margin"),
        (["table2", "--jobs", "0"], "jobs >= 1"),
    ],
)
def test_a_mistake_is_one_message_and_leaves_nothing(tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    assert main([*words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.data
@pytest.mark.parametrize(("margin", "splits"), [(1.0, 30), (0.1, 3)])
def test_the_published_trials_of_table2_are_all_there(tmp_path, data_root, margin, splits):
    published = Path(__file__).parents[2] / "records" / "trials" / "table2.jsonl.gz"
    assert take_published(published, tmp_path) > 20_000
    sets = {name: catalog.load(name) for name in SETS}
    groups = table2_trials.wanted_groups(table2.plan(StudyOptions(margin=margin, splits=splits)), sets)
    assert sum(len(group.names) for group in groups) == 5 * 10 * 3 * 5 * splits
    with Store(tmp_path, "table2") as store:
        assert store.missing(groups) == []


@pytest.mark.data
def test_the_published_trials_of_images_are_found(tmp_path, data_root):
    published = Path(__file__).parents[2] / "records" / "trials" / "images.jsonl.gz"
    assert take_published(published, tmp_path) > 100
    design = table3.rest_of(DESIGNS["small"])
    found = make_set(limited(catalog.load("breast"), design))
    jobs = make_jobs("breast", found, design.recipes["breast"])
    with Store(tmp_path, "images") as store:
        assert store.missing([Group([job.trial], [job]) for job in jobs]) == []


def test_the_settings_of_the_published_trials_have_kept_their_digests():
    # Of settings alone: the digests beside the trials are of the real bags too.
    found = [settings_hash(paper_config(method, lr=0.1)) for method in ("ce-mean", "dam-mb-smx", "midam-printed-att")]
    assert found == ["bfb38783f546", "e92e67777f3d", "49164867a979"]
