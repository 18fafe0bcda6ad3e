import io
import re
import sys
import time

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from midam.report import describe, terminal
from midam.report.program import VisibleConsole, say
from studies.sets import catalog


def plain():
    return Console(file=io.StringIO(), width=120, soft_wrap=True, highlight=False, emoji=False)


def shown(console):
    return console.file.getvalue()


def part(**changes):
    return {
        "auroc": 0.9,
        "auroc_ci95": [0.8, 0.95],
        "auroc_method": "logit-delong",
        "auprc": 0.85,
        "bags": 20,
        "positives": 8,
        "warnings": [],
        **changes,
    }


def summary(**changes):
    weights = {"last": {"epoch": 5, "test_auroc": 0.9}, "best": {"epoch": 3, "test_auroc": 0.7}}
    chosen = {"weights": "last", "epoch": 5}
    splits = {"test": part(), "train": part(auroc=1.0)}
    return {**splits, "selected": chosen, "by_weights": weights, "members": 1, **changes}


def test_a_summary_ends_with_the_headline_and_the_folder():
    console = plain()
    terminal.print_summary(console, summary(), run="runs/a[b]:warning:")
    lines = shown(console).splitlines()
    assert lines[-2:] == ["test AUROC 0.900 (95% CI 0.800 to 0.950, logit-delong)", "run folder: runs/a[b]:warning:"]
    assert not [line for line in lines if "instead" in line], "the test bags choose no weights"


def test_a_mixture_is_told_from_scorers_of_several_seeds():
    console, weights = plain(), {"trees": 0.75, "midam": 0.25, "logistic": 0.0}
    rows = [{"method": name, "auroc": 0.8, "weight": w, "seconds": 1, "note": None} for name, w in weights.items()]
    found = {"tried": rows, "auroc": 0.85, "folds": 5, "note": "Chosen."}
    terminal.print_summary(console, summary(members=4, auto=found), run="r")
    assert "scores are a weighted mean of 2 methods (4 scorers)\n" in shown(console)
    assert "seeds" not in shown(console)
    for row, weight in zip(rows, (1.0, 0.0, 0.0)):
        row["weight"] = weight
    console = plain()
    terminal.print_summary(console, summary(auto=found), run="r")
    assert "scores are" not in shown(console), "one scorer of one method is no mean"


def test_without_test_bags_the_validation_bags_lead():
    console = plain()
    content = summary(val=part(auroc=0.6), by_weights={"last": {"epoch": 5, "test_auroc": None}})
    del content["test"]
    terminal.print_summary(console, content, run="r")
    assert "val AUROC 0.600" in shown(console)
    assert "test AUROC" not in shown(console)


def test_notes_keep_their_brackets_and_unknown_numbers_are_dashes():
    console = plain()
    one_class = part(auroc=None, auroc_ci95=None, auprc=None, warnings=["bags [1, 2] of [red] kind"])
    terminal.print_summary(console, summary(test=one_class), run="r")
    assert "note: test: bags [1, 2] of [red] kind" in shown(console)
    assert "test AUROC not defined (one class only)" in shown(console)
    row = next(line for line in shown(console).splitlines() if line.strip().startswith("test "))
    assert row.split() == ["test", "20", "(8)", *["-"] * 3]


@pytest.mark.parametrize(
    ("headline", "text"),
    [("new", "new bags: AUROC 0.900"), ("test", "test bags: AUROC"), ("train", "(no test: the model has seen them)")],
)
def test_an_evaluation_says_what_its_headline_is_worth(headline, text):
    console = plain()
    terminal.print_evaluation(console, {headline: part(), "headline": headline})
    assert text in shown(console)


def test_progress_off_a_terminal_is_about_ten_lines():
    console = plain()
    with terminal.FitProgress(100, console=console) as progress:
        for epoch in range(1, 101):
            progress.update({"epoch": epoch, "loss": 0.5, "val_auroc": None if epoch < 50 else 0.75})
    lines = shown(console).splitlines()
    assert len(lines) == 10
    assert lines[0] == "epoch 10/100  loss 0.5000"
    assert lines[-1] == "epoch 100/100  loss 0.5000  val AUROC 0.750"


def test_progress_on_a_terminal_shows_the_validation_auroc():
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with terminal.FitProgress(2, console=console) as progress:
        progress.update({"epoch": 1, "loss": 0.5, "val_auroc": 0.625})
    assert "val AUROC 0.625" in shown(console)
    assert "1/2" in shown(console)


def test_off_a_terminal_nothing_after_the_last_epoch_is_silent():
    console = plain()
    with terminal.FitProgress(1, console=console) as progress:
        progress.update({"epoch": 1, "loss": 0.5, "val_auroc": None})
        for weights in ("last", "best"):
            progress.stage(f"scoring ({weights} weights)", 400)
            for low in range(0, 400, 2):
                progress.scored(range(low, low + 2))
        progress.stage("writing results", 0)
    lines = shown(console).splitlines()
    assert lines[0] == "epoch 1/1  loss 0.5000"
    assert lines[1:12] == [f"scoring (last weights): {count}/400 bags" for count in range(0, 401, 40)]
    assert lines[12:23] == [f"scoring (best weights): {count}/400 bags" for count in range(0, 401, 40)]
    assert lines[23:] == ["writing results"]


def screen(text, *, width):
    """Lines that a terminal of this width shows after a text with the control sequences that the bars use."""
    lines, row, column = [""], 0, 0
    for control, number, command, char in re.findall(r"(\x1b\[)[?]?([\d;]*)([A-Za-z])|(.|\n)", text):
        if control:
            if command == "A":
                row = max(0, row - int(number or 1))
            elif command == "K":
                lines[row] = ""
        elif char == "\r":
            column = 0
        elif char == "\n" or column == width:
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        if char and char not in "\r\n":
            lines[row] = lines[row].ljust(column)[:column] + char + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_bar_is_left_behind_by_an_error(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True)

    def stopped():
        with terminal.FitProgress(4, console=console) as progress:
            progress.update({"epoch": 1, "loss": 0.5, "val_auroc": 0.5})
            console.print("[yellow]warning:[/] one")
            progress.update({"epoch": 2, "loss": 0.5, "val_auroc": 0.5})
            progress._bar.refresh()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    console.print("midam: stopped")
    assert screen(shown(console), width=width) == ["warning: one", "midam: stopped"]


@pytest.mark.parametrize(("groups", "lines"), [([40], 1), ([10, 30], 2), ([1] * 40, 10)])
def test_progress_through_bags_is_told_in_ten_lines_at_the_most(groups, lines):
    console, low = plain(), 0
    with terminal.BagProgress("scoring", np.full(40, 3), console=console) as progress:
        for count in groups:
            progress.update_all(range(low, low + count))
            low += count
    found = shown(console).splitlines()
    assert len(found) == lines
    assert found[-1] == "scoring 40/40 bags"


def test_a_description_counts_every_bag_in_its_histogram():
    console, bags = plain(), catalog.load("digits")
    terminal.print_description(console, "digits", describe.bag_facts("digits", bags), bags)
    text = shown(console)
    assert "bags: 360 (180 positive)" in text
    assert "instance shape: [64]" in text
    histogram = text.split("bag sizes:\n")[1].splitlines()
    assert sum(int(line.split()[-1]) for line in histogram) == 360


@pytest.mark.parametrize(("auroc", "said"), [(0.219, True), (0.9, False)])
def test_a_model_that_has_not_learned_is_said(auroc, said):
    part = {"bags": 4, "positives": 2, "auroc": auroc, "auroc_ci95": [0.1, 0.9], "auroc_method": "delong", "auprc": 0.5}
    console = Console(file=io.StringIO(), width=300)
    terminal.print_summary(console, {"train": part, "members": 1, "epochs": 20}, run="run")
    assert ("AUROC 0.219 after 20 epochs" in console.file.getvalue()) is said


def test_a_console_shows_control_characters_of_names():
    name, file = "b\x1b]0;title\x1b[2J\x9b\u202e\udcff", io.StringIO()
    console = VisibleConsole(file=file, width=120, force_terminal=True, highlight=False)
    console.print(f"[red]class:[/] {name}\nnext")
    table = Table(name)
    table.add_row(name)
    console.print(table)
    with terminal.LiveProgress(name, console=console) as bar:
        bar._bar.refresh()
    text = re.sub(r"\x1b\[(\?25[hl]|2K|1A|[\d;]*m)", "", file.getvalue())  # colors, and the codes of the bar
    assert text.count(r"b\x1b]0;title\x1b[2J\x9b\u202e\udcff") >= 4
    assert set(text) & {*name} == set(r"b]0;title[2J")
    assert "\nnext\n" in text


def test_letters_that_the_output_lacks_are_escaped(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    say("Zoë, \udce9.png")
    sys.stdout.flush()
    assert raw.getvalue() == rb"Zo\xeb, \udce9.png" + b"\n"


def test_without_a_terminal_a_line_says_at_least_every_half_minute_that_the_work_goes_on(monkeypatch):
    monkeypatch.setattr(terminal, "_EVERY_SECONDS", 0.02)
    console = plain()
    with terminal.BagProgress("scoring", np.array([5, 5]), console=console) as progress:
        progress.update(0)
        deadline = time.monotonic() + 20
        while shown(console).count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = shown(console).splitlines()
    assert lines[0] == "scoring 1/2 bags"
    assert set(lines[1:]) == {"scoring 1/2 bags, 50% done"}
    assert len(lines) >= 3


def test_the_time_left_of_the_last_progress_runs_down(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(terminal, "_EVERY_SECONDS", 0.02)
    console = plain()
    progress = terminal.FitProgress(1, console=console)
    progress._bar.get_time = lambda: clock[0]  # by which the speed is measured
    for clock[0], share in ((0.0, 0.0), (10.0, 0.1), (20.0, 0.2)):
        progress.candidate("mean-map-svm", 0, 2, share)
    monkeypatch.setattr(progress, "_moved_at", time.monotonic() - 80)
    with progress:
        deadline = time.monotonic() + 20
        while shown(console).count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        monkeypatch.setattr(progress, "_moved_at", time.monotonic() - 200)
        time.sleep(0.1)
    lines = shown(console).splitlines()
    assert lines[0] == "1/2 mean-map-svm"
    assert lines[1] == "training mean-map-svm, 10% done, 0:01:39 left"
    assert lines[-1] == "training mean-map-svm, 10% done"
