"""An unknown name leads to a name that looks like it, and a missing column to those of the table."""

import numpy as np
import pandas as pd
import pytest
from tests.pairs import each

from midam import MIDAMClassifier, Settings
from midam.cli.app import main
from midam.data import Bags, read_bags
from midam.errors import BagDataError, ConfigError, nearest


def said(capsys, *argv):
    """Return the message of a refused command."""
    assert main(list(argv)) == 2
    return " ".join(capsys.readouterr().err.split())


def test_a_misspelled_name_leads_to_ours_in_each_way_in(tmp_path, capsys):
    assert "did you mean 'num-instances'" in said(capsys, "fit", "table.csv", "--num-instance", "3")
    (tmp_path / "c.yaml").write_text("num-instances: 3\n")
    assert "'num_instances'" in said(capsys, "fit", "table.csv", "--config", str(tmp_path / "c.yaml"))
    with pytest.raises(ConfigError, match=r"did you mean 'num_instances'"):
        Settings.from_flat({"NumInstances": 3})
    with pytest.raises(TypeError, match=r"did you mean 'num_instances'"):
        MIDAMClassifier(num_instance=3)


def test_memory_that_is_full_is_said_in_a_sentence(monkeypatch, capsys):
    def full(*_):
        raise MemoryError("malloc of size 1000 failed")

    monkeypatch.setattr("midam.cli.app.parse", full)
    assert "Expected enough memory, got less: MemoryError: malloc of size 1000 failed" in said(capsys, "fit", "t.csv")


def test_forty_thousand_unknown_settings_are_refused_at_once():
    with pytest.raises(ConfigError, match=r"got 40000 that are unknown(.|\n)*'k0'(.|\n)*and 39990 more"):
        Settings(**{f"k{i}": 1 for i in range(40_000)})


def frame(**names):
    """Return a table of six bags, with other names of its columns."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(12, 2)), columns=["channel", "intensity"])
    table.insert(0, "bag", np.repeat([f"b{i}" for i in range(6)], 2))
    table.insert(1, "label", np.repeat([0, 1] * 3, 2))
    return table.rename(columns=names)


WRITE = {
    "csv": lambda table, path: table.to_csv(path, index=False),
    "tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    "xlsx": lambda table, path: table.to_excel(path, index=False),
    "parquet": lambda table, path: table.to_parquet(path),
}


@pytest.mark.parametrize(("suffix", "parameter"), each(WRITE, ["bag_column", "label_column", "groups", "split"]))
def test_a_missing_column_lists_those_that_exist_and_suggests_nothing_far(suffix, parameter, tmp_path):
    path = tmp_path / f"table.{suffix}"
    WRITE[suffix](frame(bag="q1", label="q2") if parameter in ("bag_column", "label_column") else frame(), path)
    with pytest.raises(BagDataError, match=r"known are ((\w+, )*)channel, ((\w+, )*)intensity") as caught:
        read_bags(path, **{parameter: "zzz"})
    assert "did you mean" not in str(caught.value)


def test_a_label_table_and_a_manifest_list_their_columns(tmp_path):
    (tmp_path / "f").mkdir()
    for bag in "abcd":
        np.save(tmp_path / "f" / f"{bag}.npy", np.zeros((2, 3), np.float32))
    table = pd.DataFrame({"slide": list("abcd"), "diagnosis": [0, 1, 0, 1]})
    table.to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(BagDataError, match=r"known are diagnosis, slide\."):
        read_bags(tmp_path / "f", labels=tmp_path / "labels.csv")
    table.assign(path=[f"f/{bag}.npy" for bag in "abcd"]).to_csv(tmp_path / "manifest.csv", index=False)
    with pytest.raises(BagDataError, match=r"known are diagnosis, path, slide\."):
        read_bags(tmp_path / "manifest.csv")


def test_a_data_frame_suggests_a_column():
    with pytest.raises(BagDataError, match=r"did you mean 'Target'\?"):
        Bags.from_dataframe(frame(label="Target"), label_column="target")


def test_all_unknown_names_are_said_at_once(tmp_path, capsys):
    from midam.cli.app import main

    (tmp_path / "s.yaml").write_text("n_epochs: 3\nbatchsize: 2\n")
    for words in (
        ["fit", "demo", "--n-epochs=3", "--batchsize", "2"],
        ["predict", "run", "t.csv", "--n-epochs", "3", "--batchsize=2"],
        ["compare", "t.csv", "--batchsize", "2", "--n-epochs=3"],
        ["data", "describe", "t.csv", "--batchsize", "2", "--n-epochs", "3"],
        ["fit", "demo", "--config", str(tmp_path / "s.yaml")],
    ):
        assert main(words) == 2
        told = " ".join(capsys.readouterr())
        assert "2 that are unknown" in told, told
        assert {line.strip()[:2] for line in told.splitlines() if "epochs'" in line or "batchsize'" in line} == {"- "}
    with pytest.raises(ConfigError, match=r"'n_epochs'(.|\n)*'batchsize'"):
        Settings(n_epochs=3, batchsize=2)


@pytest.mark.parametrize(
    ("command", "setting"),
    each(
        ["predict", "evaluate", "explain", "report", "export"],
        ["bag-by", "seed", "target", "epochs", "slice-size", "val-fraction"],
    ),
)
def test_a_setting_that_the_run_keeps_is_to_be_left_out(command, setting, capsys):
    data = [] if command == "export" else ["data"]
    text = said(capsys, command, "run", *data, f"--{setting}", "3", "--epoch", "4")
    assert f"Expected no setting of the run itself, got '{setting}' (in the command line)" in text
    assert "leave it out" in text
    assert "leave it out" not in said(capsys, "fit", "table.csv", "--epoch", "4")


@pytest.mark.parametrize(
    ("lost", "columns", "near"),
    [
        ("bag", ["age", "amount", "paid", "grid"], ""),
        ("label", ["channel", "customer_id", "age"], ""),
        ("label", ["labels2", "channel"], "did you mean 'labels2'?"),
        ("group", ["grape", "household_id"], ""),
        ("amuont", ["amount", "age"], "did you mean 'amount'?"),
    ],
)
def test_a_missing_column_leads_to_one_of_its_spelling_or_to_none(lost, columns, near):
    assert nearest(lost, columns) == (near or f"known are {', '.join(sorted(columns))}.")
