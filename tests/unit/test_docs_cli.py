"""The page about the command line is up to date, and what it names exists."""

import dataclasses
import re

import pytest
from docs import gen_cli

from midam.cli import parse
from midam.train.config import FitConfig

PAGE = gen_cli.PAGE.read_text(encoding="utf-8")


def test_the_options_are_those_of_the_settings() -> None:
    assert gen_cli.rendered(PAGE) == PAGE, "docs/cli.md is out of date: run `python docs/gen_cli.py`"


def test_every_setting_is_described() -> None:
    texts = gen_cli.descriptions()
    assert list(texts) == [field.name for field in dataclasses.fields(FitConfig)]
    assert all(texts.values())


def test_a_stale_table_is_found() -> None:
    stale = PAGE.replace(f"| `{FitConfig().epochs}` |", "| `7` |")
    assert stale != PAGE
    assert gen_cli.rendered(stale) == PAGE


@pytest.mark.parametrize("command", re.findall(r"^midam (fit .+)$", PAGE.split("## midam fit", 1)[1], re.MULTILINE))
def test_examples_are_understood(command: str, tmp_path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("data: digits\nepochs: 3\n", encoding="utf-8")
    parse(command.replace("runs/one/config.yaml", str(config)).split())


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--hidden", "[64,32]"], "hidden", [64, 32]),
        (["--ignore+", "site"], "ignore", ["site"]),
        (["--lag"], "lag", True),
        (["--standardize", "false"], "standardize", False),
        (["--patience", "null"], "patience", None),
        (["--pooling-args.head_hidden", "0"], "pooling_args", {"head_hidden": 0}),
        (["--pooling-args", "{head_hidden: 0}"], "pooling_args", {"head_hidden": 0}),
    ],
)
def test_values_are_written_as_the_page_says(arguments: list[str], name: str, value: object) -> None:
    text = " ".join(arguments)
    assert text in PAGE.replace('"', "")
    assert parse(["fit", "digits", *arguments]).fit[name] == value
