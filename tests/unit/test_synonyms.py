"""Words of other libraries lead to the name that midam has for them; the columns of a table are listed."""

import re

import numpy as np
import pandas as pd
import pytest
from tests.pairs import each

from midam import BagDataError, ConfigError, MIDAMClassifier, MIDAMRanker, MIDAMSurvival, Settings
from midam.cli import compare, data, evaluate, explain, export, fit, predict, report
from midam.cli.app import main
from midam.data import Bags, read_bags
from midam.errors import MEANINGS, nearest_columns, same_meaning
from midam.sklearn.base import setting_defaults

WORDS = {**{word: names[0] for word, names in MEANINGS.items()}, "LearningRate": "lr", "n-epochs": "epochs"}
SHARED = {word: ours for word, ours in WORDS.items() if ours in setting_defaults() and ours != "seed"}
COMMANDS = (compare, evaluate, explain, export, fit, predict, report)


def options():
    """Return the options of each command."""
    actions = ("describe", "import", "verify")
    parsers = [module.parser() for module in COMMANDS] + [data.parser().actions[action] for action in actions]
    return [parser.option_names() for parser in parsers]


def said(capsys, *argv):
    """Return the message of a refused command."""
    assert main(list(argv)) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("word", "ours"), WORDS.items())
def test_a_flag_of_other_libraries_leads_to_ours(word, ours, capsys):
    text = said(capsys, "fit", "table.csv", f"--{word}", "3")
    assert re.search(rf"did you mean ('[\w-]+' or )*'{ours.replace('_', '-')}'", text), text


@pytest.mark.parametrize(("word", "ours"), [one for one in WORDS.items() if one[1] in Settings.names()])
def test_a_setting_of_python_and_yaml_leads_to_ours(word, ours, tmp_path, capsys):
    with pytest.raises(ConfigError, match=rf"did you mean .*'{ours}'"):
        Settings.from_flat({word: 3})
    (tmp_path / "c.yaml").write_text(f"{word}: 3\n")
    assert f"'{ours}'" in said(capsys, "fit", "table.csv", "--config", str(tmp_path / "c.yaml")).partition("mean")[2]


@pytest.mark.parametrize(("names", "estimator"), each(SHARED.items(), [MIDAMClassifier, MIDAMRanker, MIDAMSurvival]))
def test_a_parameter_of_an_estimator_leads_to_ours(names, estimator):
    word, ours = names
    with pytest.raises(TypeError, match=rf"did you mean .*'{ours}'"):
        estimator(**{word: 3})


def test_every_word_leads_to_a_name_that_some_way_in_has():
    assert len(MEANINGS) <= 20
    names = {name for known in options() for name in known} | set(Settings.names())
    for word, ours in MEANINGS.items():
        assert set(ours) <= names, word
        assert all(name in same_meaning(word, [name, "another"]) for name in ours)


def test_memory_that_is_full_is_said_in_a_sentence(monkeypatch, capsys):
    def full(*_):
        raise MemoryError("malloc of size 1000 failed")

    monkeypatch.setattr("midam.cli.app.parse", full)
    assert "Expected enough memory, got less: MemoryError: malloc of size 1000 failed" in said(capsys, "fit", "t.csv")


def test_forty_thousand_unknown_settings_are_refused_at_once():
    with pytest.raises(ConfigError, match=r"got 40000 that are unknown(.|\n)*'k0'(.|\n)*and 39990 more"):
        Settings(**{f"k{i}": 1 for i in range(40_000)})


def test_what_only_fit_has_is_said(capsys):
    text = said(capsys, "data", "describe", "data", "--learning-rate", "1")
    assert "there is none here: `midam fit` has --lr" in text


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
    with pytest.raises(BagDataError, match=r"The columns are \w+, \w+, channel, intensity\.") as caught:
        read_bags(path, **{parameter: "zzz"})
    assert "did you mean" not in str(caught.value)


def test_a_label_table_and_a_manifest_list_their_columns(tmp_path):
    (tmp_path / "f").mkdir()
    for bag in "abcd":
        np.save(tmp_path / "f" / f"{bag}.npy", np.zeros((2, 3), np.float32))
    table = pd.DataFrame({"slide": list("abcd"), "diagnosis": [0, 1, 0, 1]})
    table.to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(BagDataError, match=r"The columns are slide, diagnosis\."):
        read_bags(tmp_path / "f", labels=tmp_path / "labels.csv")
    table.assign(path=[f"f/{bag}.npy" for bag in "abcd"]).to_csv(tmp_path / "manifest.csv", index=False)
    with pytest.raises(BagDataError, match=r"The columns are slide, diagnosis, path\."):
        read_bags(tmp_path / "manifest.csv")


def test_a_data_frame_lists_its_columns():
    with pytest.raises(BagDataError, match=r"The columns are q1, label, channel, intensity\."):
        Bags.from_dataframe(frame(bag="q1"))
    with pytest.raises(BagDataError, match=r"did you mean 'Target'\?"):
        Bags.from_dataframe(frame(label="Target"), label_column="target")


def test_of_many_columns_twenty_are_listed():
    assert nearest_columns(["q"], [f"feature{i}" for i in range(100)]).endswith("feature19 and 80 more.")


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
        ("label", ["labels2", "channel"], "did you mean 'labels2'? "),
        ("group", ["grape", "household_id"], ""),
        ("amuont", ["amount", "age"], "did you mean 'amount'? "),
    ],
)
def test_a_missing_column_leads_to_one_of_its_spelling_or_to_none(lost, columns, near):
    assert nearest_columns([lost], columns) == f"{near}The columns are {', '.join(columns)}."
