"""Parameters of a message become flags of the command line: on the console, on the page and on the card."""

import re

import numpy as np
import pytest

from midam.cli.app import main, message_text
from midam.errors import given
from midam.report.words import as_flags

NAMES = ["groups", "ignore", "split", "split_file", "missing", "volume", "positive", "slice_size"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("`split` or `split_file`", "--split or --split-file"),
        (f"leave out with {given(missing='skip')}.", "leave out with --missing skip."),
        (given(ignore=["a b"]), "--ignore 'a b'"),
        (given(ignore=["a", "b"]), "--ignore a,b"),
        (given(ignore=["a,b", "c"]), """--ignore '"a,b",c'"""),
        (given(volume=True, slice_size=64), "--volume, --slice-size 64"),
        ("`exact`, `reader=3` and `a.csv`", "`exact`, `reader=3` and `a.csv`"),
        ("`slice_size=64px`", "--slice-size 64px"),
    ],
)
def test_parameters_become_flags(message, expected):
    assert as_flags(message, NAMES) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Expected X, got 2x2 (in a.png); choose a smaller `patch_size`.", "choose a smaller --patch-size IN."),
        ("Expected A with `axis`, got B; leave out `axis`.", "Expected A with --axis, got B; leave out --axis IN."),
        (
            f"Expected:\n- X, got Y; lower `tissue`, or leave such files out with {given(missing='skip')}.\n- Z; do W.",
            "- X, got Y; lower --tissue IN, or leave such files out with --missing skip.\n- Z; do W.",
        ),
        (f"read at level 0: give {given(magnification=20)} for all", "give --magnification 20 IN for all"),
        ("name it with `groups`, or as `labels`; see `exact`", "name it with --groups, or as --labels; see `exact`"),
    ],
)
def test_advice_on_a_setting_that_a_run_fixes_is_to_train_again(message, expected):
    text = message_text(message, command="predict")
    assert expected.replace("IN", "in a new training") in text
    assert "new training" not in message_text(message, command="fit")


def test_what_a_run_shows_has_options_as_they_are_typed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = ["bag,label,site,day,f1,f2"]
    for bag in range(60):  # f1 is the label in another form: a warning names the option that leaves it out
        word = ("no", "yes")[bag % 2]
        rows += [f"b{bag},{word},s,{i},{bag % 2 + 0.01 * i},{rng.normal():.3f}" for i in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    read = ["--ignore", "site,day", "--positive", "no"]
    fit = ["fit", str(tmp_path / "t.csv"), *read, "--method", "midam", "--epochs", "1", "--members", "1"]
    assert main([*fit, "--out", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "model"), "--format", "safetensors"]) == 0
    assert main(["data", "describe", str(tmp_path / "t.csv"), *read]) == 0
    printed = capsys.readouterr()
    page, card = (tmp_path / "run/report.html").read_text(), (tmp_path / "model/README.md").read_text()
    for text in (page.partition("<main")[2], card, printed.out, printed.err):
        assert not re.search(r"\b\w+=(\[|'|True)", text)
    for text in (page, printed.out, printed.err):
        assert "--ignore f1" in text
    assert "--ignore site,day --positive no" in page
