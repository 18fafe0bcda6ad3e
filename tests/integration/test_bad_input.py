"""Bad input: exit code 2, one line that names what is wrong and says what to do, nothing written."""

import os
import re
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.integration.commands import fitted, table

from midam.cli import main
from midam.data.bags import Bags
from midam.errors import BagDataError


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("finished"), "--epochs", "1")


def refused(capsys, *command, words=(), advice=True):
    assert main(list(command)) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.startswith("warning:")]
    assert (captured.out, len(lines)) == ("", 1), captured
    assert lines[0].startswith("midam: error: Expected ")
    assert ";" in lines[0] or not advice
    for word in words:
        assert word in lines[0]
    return lines[0]


def edit(change):
    """Make a table of 40 good bags, changed."""
    table("t.csv")
    frame = pd.read_csv("t.csv").astype({"label": object})
    frame = change(frame)
    frame.to_csv("t.csv", index=False, na_rep="nan")


def put(row, column, value):
    def change(frame):
        frame = frame.astype({column: object})
        frame.loc[row, column] = value
        return frame

    return change


TABLES = {
    "missing bag column": (lambda f: f.rename(columns={"bag": "Bag"}), ["'bag'", "Bag"]),
    "missing label column": (lambda f: f.drop(columns="label"), ["'label'"]),
    "label 2": (
        put(slice(3, 5), "label", 2),
        ["0 and 1 in column label, got 0, 1, 2", "bag b01", "--positive 2"],
    ),
    "label word": (put(4, "label", "yes"), ["one label in a bag, got 1 and yes", "line 6", "column label", "bag b01"]),
    "label missing": (put(slice(3, 5), "label", None), ["a label in each row", "5, 6", "bag b01"]),
    "label differs in a bag": (put(5, "label", 0), ["one label in a bag", "line 7", "bag b01"]),
    "one class": (lambda f: f.assign(label=1), ["40 positive and 0 negative"]),
    "NaN": (put(7, "f2", None), ["finite", "line 9", "column f2", "bag b02"]),
    "infinity": (put(7, "f2", "inf"), ["finite", "line 9", "column f2", "bag b02"]),
    "text column": (
        lambda f: f.assign(sex=[f"f{i}" for i in range(len(f))]),
        ["column sex", "'f0'", "line 2", "--ignore sex"],
    ),
    "NUL in a bag": (put(slice(3, 5), "bag", "b01\0z"), ["without NUL", r"'b01\x00z'", "in t.csv, column bag"]),
    "NUL in a label": (put(4, "label", "1\0"), ["without NUL", "in t.csv, column label"]),
    "NUL in a column": (lambda f: f.rename(columns={"f1": "f\0x"}), ["without NUL", "in t.csv"]),
    "NUL in a category": (
        lambda f: f.assign(stain=["u", "v\0w"] * (len(f) // 2)),
        ["without NUL", "in t.csv, column stain"],
    ),
    "no feature": (lambda f: f[["bag", "label"]], ["feature column"]),
    "no row": (lambda f: f[:0], ["one row"]),
    "too few bags": (lambda f: f[:9], ["both classes"]),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(case, here, capsys):
    change, words = TABLES[case]
    edit(change)
    refused(capsys, "fit", "t.csv", "--out", "run", words=words)
    assert [path.name for path in here.iterdir()] == ["t.csv"]


ARCHIVES = {
    "empty bag": ({"bag": [0, 0, 2, 2], "y": [0, 1, 0]}, ["one instance", "bag 1"]),
    "empty last bag": ({"y": [0, 1, 0]}, ["one instance", "bag 2"]),
    "labels": ({"y": [0, 3]}, ["0 and 1 in key y, got 0, 3", "--positive 3"]),
    "few labels": ({"y": [0]}, ["key y"]),
    "NaN": ({"X": [[0.0], [1.0], [np.nan], [1.0]]}, ["finite", "bag 1"]),
    "infinity": ({"X": [[0.0], [1.0], [2.0], [np.inf]]}, ["finite", "bag 1"]),
    "missing key": ({"bag": None}, ["no bag"]),
    "text": ({"X": [["a"], ["b"], ["c"], ["d"]]}, ["real numbers"]),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_bad_archives(case, here, capsys):
    changes, words = ARCHIVES[case]
    arrays = {"X": [[0.0], [1.0], [2.0], [3.0]], "bag": [0, 0, 1, 1], "y": [0, 1], **changes}
    np.savez("b.npz", **{key: value for key, value in arrays.items() if value is not None})
    refused(capsys, "fit", "b.npz", "--out", "run", words=["b.npz", *words])
    assert [path.name for path in here.iterdir()] == ["b.npz"]


def test_bags_of_different_widths(here, capsys):
    parts = [np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 4))]
    with pytest.raises(BagDataError, match=r"\(3,\) as in bag a, got \(4,\).*bag c"):
        Bags.from_list(parts, [0, 1, 0], ids=["a", "b", "c"])
    ragged = np.empty(3, dtype=object)
    ragged[:] = parts
    np.savez("b.npz", X=ragged, bag=[0, 1, 2], y=[0, 1, 0])
    refused(capsys, "fit", "b.npz", "--out", "run", words=["Python objects", "b.npz", "key X", "one array"])
    assert not (here / "run").exists()


def test_an_archive_with_code_does_not_run_it(here, capsys):
    np.savez("b.npz", X=np.array([Bomb(here / "made")], dtype=object), bag=[0], y=[1])
    refused(capsys, "fit", "b.npz", "--out", "run", words=["Python objects", "b.npz"])
    assert not (here / "made").exists()
    np.load("b.npz", allow_pickle=True)["X"]
    assert (here / "made").exists(), "the file must have been dangerous for this test to mean anything"


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "b.npz"])
def test_files_that_are_missing_or_something_else(name, here, capsys):
    refused(capsys, "fit", name, "--out", "run", words=[name])
    (here / name).write_bytes(b"\x00\xff\x01no data")
    refused(capsys, "fit", name, "--out", "run", words=[name])
    assert [path.name for path in here.iterdir()] == [name]


def test_faulty_files_are_a_list_of_a_line_each_fault(here, capsys):
    names = [f"scan{number:02d}" for number in range(12)]
    (here / "scans").mkdir()
    for size, name in enumerate(names[:6], start=2):
        Image.new("L", (size, size)).save(here / "scans" / f"{name}.png")
    for name in names[6:]:
        (here / "scans" / f"{name}.png").write_bytes(b"no picture")
    rows = [f"{name}.png,{number % 2}" for number, name in enumerate(names)]
    (here / "labels.csv").write_text("\n".join(["file,label", *rows]) + "\n")
    assert main(["fit", "scans", "--labels", "labels.csv", "--out", "run"]) == 2
    head, *lines = capsys.readouterr().err.splitlines()
    assert head == "midam: error: Expected files that can be used, got 12 of 12 that cannot:"
    assert len(lines) == 7
    for name, line in zip(names, lines, strict=False):
        assert line.startswith("- Expected ")
        assert f"(in scans/{name}.png" in line
    alike = ", ".join(f"{name}.png" for name in names[6:])
    assert f"(in scans/scan06.png; 6 such: {alike}); " in lines[-1]


def test_names_that_are_not_known(here, capsys):
    refused(capsys, "fit", "digts", "--out", "run", words=["'digts'", "digits"])
    refused(capsys, "fit", str(here), "--out", "../run", words=[str(here)])
    refused(capsys, "data", "describe", "digts", words=["'digts'", "digits"])


OPTIONS = {
    "near option": (["--epoch", "3"], ["'epoch'", "did you mean 'epochs'"]),
    "abbreviation": (["--epo", "3"], ["'epo'", "known are"]),
    "no such option": (["--zzz", "3"], ["'zzz'"]),
    "word for a number": (["--epochs", "many"], ["--epochs, got", "'many'", "integer"]),
    "choice": (["--estimator", "vrps"], ["known estimator", "'vrps'", "did you mean 'vrsp'"]),
    "no number": (
        ["--lr", "abc"],
        ["--lr, got 'abc': input should be a valid number; choose another value."],
    ),
    "a plane": (["--axis", "axial"], ["--axis, got 'axial': input should be a valid integer"]),
    "no truth value": (["--resident", "maybe"], ["--resident, got 'maybe': input should be a valid boolean"]),
    "near choice": (["--select", "bset"], ["--select, got 'bset': input should be 'auto', 'last' or 'best'"]),
    "no numbers": (["--decay-at", "x"], ["--decay-at, got 'x'"]),
    "two of three sizes": (["--volume-size", "3,4"], ["--volume-size, got"]),
    "no dictionary": (["--pooling-args", "3"], ["--pooling-args, got 3: input should be a valid dictionary"]),
    "range": (["--lr", "-1"], ["lr", "greater than 0", "-1"]),
    "range with =": (["--state-rate=1.5"], ["rate", "less than or equal to 1", "1.5"]),
    "patience": (["--patience", "0"], ["patience", "greater than or equal to 1"]),
    "widths": (["--hidden", "[8, 0]"], ["hidden", "0 as entry 2"]),
    "fractions": (["--val-fraction", "0.6", "--test-fraction", "0.4"], ["fraction", " < 1"]),
    "no sense": (["--pooling", "max"], ["smooth pooling", "'max'"]),
    "temperature": (["--temperature", "0.2"], ["temperature", "'smoothed-max'"]),
    "pooling argument": (["--pooling-args", '{"foo": 1}'], ["pooling_args", "foo"]),
    "dropout that cannot be replayed": (["--estimator", "exact-point", "--dropout", "0.5"], ["dropout"]),
    "divergence": (["--lr", "1e30", "--epochs", "1"], ["finite", "lower lr"]),
    "columns of no table": (["--groups", "patient"], ["digits", "table"]),
    "further argument": (["more"], ["more"]),
    "missing value": (["--seed"], ["seed"]),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case, here, capsys):
    options, words = OPTIONS[case]
    assert main(["fit", "digits", "--out", "run", *options]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("midam: error: "), error
    assert all(word in error for word in words), error
    assert not any(word in error for word in ("Parser", "Union", "NoneType", "subtypes", "validat")), error
    assert list(here.iterdir()) == []


MANY = "bag,label,x,y,z\na,1,u,v,1\nb,0,w,q,nan\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("fit imges", "images"),
        ("fit data/bags", "bags.npy"),
        ("fit data/bgs.csv", "bags.csv"),
        ("fit --config data/confg.yaml", "config.yaml"),
        ("fit --resume runs/binry", "binary"),
        ("predict runs/binry data/bags.csv --out x.csv", "binary"),
        ("report runs/binry", "binary"),
        ("export runs/binry --out m", "binary"),
        ("data verify imges", "images"),
        ("data import data/bgs.csv --out s", "bags.csv"),
        ("fit images --labels data/bgs.csv", "bags.csv"),
    ],
)
def test_a_path_that_is_not_there_is_met_with_what_is_like_it(words, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("images", "data", "runs/binary"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("images/a.npy", "data/bags.npy", "data/bags.csv", "data/config.yaml", "data/.bgs.csv"):
        (tmp_path / file).touch()
    np.save(tmp_path / "images/a.npy", np.zeros((2, 3)))
    assert main(words.split()) == 2
    found = re.search(r"did you mean (.*)\?", capsys.readouterr().err)
    assert found is not None
    assert repr(name) in found[1]
    assert "'." not in found[1], "a hidden file, such as of a stopped import, is none to name"


def test_several_faults_print_as_a_list(here, capsys):
    (here / "t.csv").write_text(MANY)
    assert main(["fit", "t.csv", "--out", "run"]) == 2
    head, *lines = capsys.readouterr().err.splitlines()[-4:]
    assert head == "midam: error: Expected a sound table, got 3 kinds of faults (in t.csv); correct them:"
    assert [line[:12] for line in lines] == ["- Expected n", "- Expected n", "- Expected f"]
    assert lines[1].endswith("--ignore x,y.")


SEVERAL = {  # commands with two faults each, and what each line names
    "evaluate": (["evaluate", "{run}", "t.csv"], ["'u'", "'v'", "nan"]),
    "explain": (["explain", "{run}", "t.csv"], ["'u'", "'v'", "nan"]),
    "report data": (["report", "{run}", "t.csv"], ["'u'", "'v'", "nan"]),
    "compare": (["compare", "t.csv", "--methods", "midam,ce-mean"], ["'u'", "'v'", "nan"]),
    "data import": (["data", "import", "t.csv", "--out", "s"], ["'u'", "'v'", "nan"]),
    "data describe": (["data", "describe", "t.csv"], ["'u'", "'v'"]),
    **{
        f"{' '.join(words)} options": ([*words, "x", "--foo", "1", "--bar", "2"], ["'foo'", "'bar'"])
        for words in (["evaluate"], ["explain"], ["export"], ["report"], ["compare"], ["data", "import"])
    },
}


@pytest.mark.parametrize("case", SEVERAL)
def test_several_faults_print_as_a_list_in_every_command(case, here, finished, capsys):
    words, named = SEVERAL[case]
    data, run = finished
    (here / "t.csv").write_text("bag,label,f0,f1,f2,f3\na,1,u,v,1,1\nb,0,w,q,nan,1\n")
    assert main([word.format(run=run, data=data) for word in words]) == 2
    lines = capsys.readouterr().err.splitlines()
    faults = [line for line in lines if line.startswith("- Expected ")]
    assert len(faults) >= 2, lines
    assert all(any(name in line for line in faults) for name in named), lines


def test_several_faults_of_settings_print_as_a_list(here, capsys):
    (here / "c.yaml").write_text("epochs: many\nlr: -1\npooling: attenton\nmargin: 0\n")
    assert main(["fit", "digits", "--config", "c.yaml", "--out", "run"]) == 2
    head, *lines = capsys.readouterr().err.splitlines()
    assert head.startswith("midam: error: Expected valid settings, got 4 that are not")
    assert [line[:2] for line in lines] == ["- ", "- ", "- ", "- "]


SETTINGS = {
    "near key": ("epoch: 3", ["'epoch'", "did you mean 'epochs'", "c.yaml"]),
    "number as key": ("1: 3", ["got 1 ", "c.yaml"]),
    "word for a number": ("epochs: many", ["epochs", "many"]),
    "choice": ("pooling: attenton", ["pooling", "attenton"]),
    "range": ("margin: 0", ["margin", "greater than 0"]),
    "no YAML": ("a: [1\nb: }", ["YAML", "c.yaml"]),
    "no mapping": ("- epochs", ["key: value", "c.yaml"]),
    "data as a list": ("data: [x]", ["data as text", "['x']", "c.yaml"]),
    "data as a number": ("data: 3", ["data as text", "got 3", "c.yaml"]),
    "NUL": ('data: "x\\0"', ["NUL", "c.yaml"]),
    "NUL in a key": ('"a\\0": 3', ["key 'a\\x00'", "c.yaml"]),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_bad_settings_files(case, here, capsys):
    text, words = SETTINGS[case]
    (here / "c.yaml").write_text(text)
    refused(capsys, "fit", "digits", "--config", "c.yaml", "--out", "run", words=words, advice=False)
    assert [path.name for path in here.iterdir()] == ["c.yaml"]


def test_settings_files_that_are_no_files(here, capsys):
    refused(capsys, "fit", "digits", "--config", "none.yaml", "--out", "run", words=["none.yaml"])
    refused(capsys, "fit", "digits", "--config", ".", "--out", "run", words=["directory"])
    assert list(here.iterdir()) == []


def test_incomplete_commands(here, capsys):
    refused(capsys, words=["command", "fit,predict,evaluate,explain,check,report,compare,embed,export"])
    refused(capsys, "fit", words=["DATA"])
    refused(capsys, "predict", words=["run"])
    refused(capsys, "data", "describe", words=["name"])
    assert main(["data", "lose"]) == 2
    assert "'lose'" in capsys.readouterr().err


def test_an_existing_run_is_kept(here, finished, capsys):
    data, run = finished
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    refused(capsys, "fit", str(data), "--out", str(run), words=[str(run), "--resume"])
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    (here / "file").write_text("mine")
    refused(capsys, "fit", "digits", "--out", "file", words=["file"])
    refused(capsys, "fit", "digits", "--out", "file/run", words=["file/run"])
    assert (here / "file").read_text() == "mine"
    assert len(list(here.iterdir())) == 1


def test_an_empty_folder_of_the_caller_stays(here, capsys):
    (here / "run").mkdir()
    assert main(["fit", "digits", "--out", "run", "--lr", "1e30"]) == 2
    assert "lower lr" in capsys.readouterr().err
    assert list((here / "run").iterdir()) == []


def truncate(path):
    path.write_bytes(path.read_bytes()[:-2000])


def scramble(path):
    path.write_bytes(np.random.default_rng(0).bytes(5000))


def flip(path):
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda info: info.file_size)
        content = archive.read(largest)
    raw = bytearray(path.read_bytes())
    raw[raw.index(content) + len(content) // 2] ^= 4
    path.write_bytes(raw)


def swap(path):
    torch.save({"state_dict": {}}, path)


def plant(path):
    torch.save({"format": 1, "model": Bomb(path.parent / "made")}, path)


@pytest.mark.parametrize("damage", [truncate, scramble, flip, swap, plant, lambda path: path.unlink()])
def test_damaged_checkpoints(damage, here, finished, capsys):
    shutil.copytree(finished[1], here / "run")
    damage(here / "run" / "model.pt")
    command = ["predict", "run", str(finished[0]), "--out", "p.csv"]
    if (here / "run" / "model.pt").exists():
        refused(capsys, *command, words=["run/model.pt"])
        assert not (here / "p.csv").exists()
        assert not (here / "run" / "made").exists()
    damage(here / "run" / "checkpoints" / "last.pt")
    refused(capsys, "fit", "--resume", "run", words=["run/checkpoints/last.pt"])
    assert not (here / "run" / "checkpoints" / "made").exists()


def test_no_run_to_apply(here, capsys):
    refused(capsys, "predict", "none", "digits", "--out", "p.csv", words=["none"])
    refused(capsys, "evaluate", "none", "digits", words=["none"])
    assert list(here.iterdir()) == []


def test_a_leaking_split_is_refused_unless_permitted(here, capsys):
    split = ["train"] * 20 + ["val"] * 8 + ["test"] * 12
    table(here / "t.csv", patient=["p0" if bag in (3, 30) else f"q{bag}" for bag in range(40)], part=split)
    command = ["fit", "t.csv", "--groups", "patient", "--split", "part", "--epochs", "1", "--out", "run"]
    refused(capsys, *command, words=["p0 in test and train", "--allow-leakage"])
    assert not (here / "run").exists()
    assert main([*command, "--allow-leakage"]) == 0
    assert (here / "run" / "summary.json").exists()


def test_fewer_bags_than_a_batch_asks_for_are_a_warning(here, capsys):
    table(here / "t.csv")
    assert main(["fit", "t.csv", "--num-positive", "50", "--epochs", "1", "--out", "run"]) == 0
    assert "warning: Expected 50 positive and 8 negative bags" in capsys.readouterr().err


def test_paths_are_shown_as_they_are(here, capsys):
    refused(capsys, "fit", "[red]a:warning:.csv", "--out", "run", words=["(in [red]a:warning:.csv)"])


def test_two_settings_files_are_refused(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("epochs: 2\n")
    config = ["--config", str(tmp_path / "a.yaml")]
    assert main(["fit", "digits", *config, *config, "--out", str(tmp_path / "run")]) == 2
    assert "--config once" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_columns_named_like_numbers_or_yaml_words_can_be_ignored(tmp_path):
    frame = pd.read_csv(table(tmp_path / "t.csv"))
    frame["2020"], frame["no"] = "text", "more"
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", str(tmp_path / "t.csv"), "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main([*command, "--ignore", "2020,no"]) == 0
