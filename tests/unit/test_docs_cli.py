"""The page about the command line is up to date, and what it names exists."""

import json
import re
from pathlib import Path

import pytest
from docs import hooks

from midam.cli import parse
from midam.cli.app import COMMANDS
from midam.cli.parser import USUAL
from midam.settings import Settings
from midam.settings.settings import describe_settings

WRITTEN = (Path(hooks.__file__).parent / "cli.md").read_text(encoding="utf-8")
ACTIONS = [f"data {action}" for action in ("describe", "import", "verify")]


@pytest.fixture(scope="module")
def page() -> str:
    """The page with what the code fills in; to make it takes each command's parser, too long for each worker."""
    return hooks.on_page_markdown(WRITTEN)


def test_every_setting_is_described_with_its_default(page: str) -> None:
    found = describe_settings()
    assert [setting.name for setting in found] == Settings.names()
    for setting in found:
        default = setting.default if isinstance(setting.default, str) else json.dumps(setting.default)
        rows = [row for row in page.splitlines() if row.startswith(f"| `--{setting.name.replace('_', '-')}` | ")]
        assert [row for row in rows if f" | `{default}` | " in row], setting.name
        assert setting.text


@pytest.mark.parametrize("command", [*(name for name in COMMANDS if name != "data"), *ACTIONS])
def test_every_option_of_a_command_is_described(command: str, page: str, capsys) -> None:
    flag = "--help-all" if command in ("fit", "compare", "embed", "data describe", "data import") else "--help"
    with pytest.raises(SystemExit):
        parse([*command.split(), flag])
    offered = re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    described = set(re.findall(r"`(--[a-z-]+)(?: [^`]*)?`", page))
    assert [option for option in offered if option != "--help-all" and option not in described] == []


def test_the_help_groups_them_and_names_what_is_known(capsys) -> None:
    with pytest.raises(SystemExit):
        parse(["fit", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    heads = [f"{room} settings:" for room in ("method", "training", "model", "run", "data", "cut")]
    assert [text.index(head) for head in heads] == sorted(text.index(head) for head in heads)
    assert "Known: attention, gated-attention" in text
    assert "(default: 100)" in text
    assert "Parser" not in text
    assert "null" not in text


@pytest.mark.parametrize("command", [["fit"], ["compare"], ["data", "import"], ["data", "describe"]])
def test_the_help_is_short_and_help_all_has_all(command, capsys) -> None:
    def options(flag: str) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            parse([*command, flag])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: midam {' '.join(command)} ")
        return re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)

    short, full = options("--help"), options("--help-all")
    settings = {f"--{name.replace('_', '-')}" for name in Settings.names()}
    usual = {f"--{name.replace('_', '-')}" for name in USUAL}
    assert len(USUAL) == 20
    assert usual <= settings
    assert settings & set(short) == usual & set(full)
    assert set(short) < set(full)
    assert settings & set(full) == settings if command == ["fit"] else settings & set(full)


def test_the_short_help_fits_two_screens(capsys) -> None:
    with pytest.raises(SystemExit):
        parse(["fit", "--help"])
    assert len(capsys.readouterr().out.splitlines()) <= 96


@pytest.mark.parametrize("command", re.findall(r"^midam (fit [^\[D].+)$", WRITTEN, re.MULTILINE))
def test_examples_are_understood(command: str, tmp_path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("data: digits\nepochs: 3\n", encoding="utf-8")
    parse(command.replace("runs/one/config.yaml", str(config)).split())


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--hidden", "[64,32]"], "hidden", [64, 32]),
        (["--state-rate", "auto"], "state_rate", "auto"),
        (["--standardize", "false"], "standardize", False),
        (["--no-baseline"], "baseline", False),
        (["--patience", "null"], "patience", None),
        (["--pooling-args", "{head_hidden: 0}"], "pooling_args", {"head_hidden": 0}),
    ],
)
def test_values_are_written_as_the_page_says(page: str, arguments: list[str], name: str, value: object) -> None:
    text = " ".join(arguments)
    assert text in page.replace('"', "")
    assert parse(["fit", "digits", *arguments]).values[name] == value
