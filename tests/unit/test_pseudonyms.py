"""Pages that carry names say so, and with `--pseudonyms` hold none."""

import csv
import stat
from html import unescape
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from tests import quick

from midam.cli import main

pytestmark = pytest.mark.drawn

SECRETS = ("Secret", "Hidden", "Private", "Folder-of-Carla")
SMALL = ("--epochs", "1", "--members", "1", "--groups", "patient", "--bag-column", "bag")
OUTCOMES = {
    "binary": lambda bag: {"label": bag % 2},
    "continuous": lambda bag: {"label": bag % 7 + bag / 100},
    "ordinal": lambda bag: {"label": bag % 3},
    "survival": lambda bag: {"time": 1.0 + bag % 9, "event": int(bag % 3 > 0)},
    "multiclass": lambda bag: {"label": "abc"[bag % 3]},
}


def write_table(path, target, bags=60):
    rng, rows = np.random.default_rng(0), []
    for bag in range(bags):
        names = {"bag": f"Anna-Secret-{bag} <é&\"'>", "patient": f"Bert Hidden {bag // 2}"}
        outcome = OUTCOMES[target](bag)
        shift = float(outcome.get("label", bag % 2)) if target != "multiclass" else bag % 3
        rows += [{**names, **outcome, "u": rng.normal() + shift, "v": rng.normal()} for _ in range(2 + bag % 3)]
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of each target, on a table whose place tells a name too; that of two classes with explanations."""
    root, made = tmp_path_factory.mktemp("runs") / "Folder-of-Carla", {}
    root.mkdir()

    def train(target):
        if target not in made:
            data, run = write_table(root / f"{target}-Private.csv", target), root / f"run-{target}"
            column = "time,event" if target == "survival" else "label"
            words = ["--target", target, "--label-column", column] if target != "binary" else []
            quick.draw(False)  # the pages of `report` are looked at
            assert main(["fit", str(data), *SMALL, *words, "--out", str(run)]) == 0
            if target == "binary":
                assert main(["explain", str(run), str(data)]) == 0
                sites = pd.read_csv(data)[["bag"]].drop_duplicates()
                sites["site"] = [f"Hospital Hidden {n % 2}" for n in range(len(sites))]
                sites["age"] = range(len(sites))
                sites.to_csv(root / "sites-Private.csv", index=False)
            quick.draw(True)
            made[target] = data, run
        return made[target]

    return train


def texts(page):
    return unquote(unescape(page.read_text(encoding="utf-8")))


def key_of(page):
    path = page.with_name(f"{page.stem}.pseudonyms.csv")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["kind"], row["name"]): row["pseudonym"] for row in csv.DictReader(file)}


def require_hidden(page, data):
    text = texts(page)
    assert not [secret for secret in SECRETS if secret in text]
    assert str(data.parent) not in text
    assert "pseudonyms here" in text
    assert "This page names" not in text


# Each target has figures of its own, which name bags; how a page of other bags and of subgroups names them is of no
# target, so that the long tests have those of the other targets.
@pytest.mark.parametrize(
    ("kind", "target"),
    [
        pytest.param(kind, target, marks=pytest.mark.long if kind != "own" and target != "binary" else [])
        for kind in ("own", "data", "subgroups")
        for target in OUTCOMES
    ],
)
def test_a_page_with_pseudonyms_holds_no_name(trained, target, kind, tmp_path):
    data, run = trained(target)
    trained("binary")
    page, plain = tmp_path / "page.html", tmp_path / "plain.html"
    words = [str(data)] if kind == "data" else []
    words += ["--subgroups", "site,age", "--table", str(data.parent / "sites-Private.csv")] * (kind == "subgroups")
    quick.draw(False)
    assert main(["report", str(run), *words, "--out", str(plain)]) == 0
    quick.draw(True)  # no picture may show a name either
    assert "This page names" in texts(plain)
    assert "Anna-Secret-" in texts(plain)
    assert not list(tmp_path.glob("*.csv"))
    page.with_name("page.pseudonyms.csv").write_text("kind,name,pseudonym\nbag,of an earlier call,bag-002\n")
    assert main(["report", str(run), *words, "--out", str(page), "--pseudonyms"]) == 0
    require_hidden(page, data)
    key = key_of(page)
    assert {kind for kind, _ in key} >= {"bag", "group", "file"}
    assert len(set(key.values())) == len(key)
    assert key["bag", "of an earlier call"] == "bag-002", "its page may have been shared"
    text = texts(page)
    assert ("Hospital Hidden 0" in texts(plain)) == (kind == "subgroups") == ("site-001" in text)
    assert ("0 to " in text) == ("0 to " in texts(plain))
    assert any(other in text for (kind, _), other in key.items() if kind == "bag")


def test_what_fit_and_explain_write_says_that_it_carries_names(trained):
    _, run = trained("binary")
    assert "This page names bags and groups." in texts(run / "report.html")
    assert "This page names bags and groups." in texts(run / "explain" / "index.html")


@pytest.mark.long
def test_the_page_of_a_comparison_hides_its_files(trained, tmp_path):
    data, _ = trained("binary")
    words = ["--methods", "mean-map-svm,bag-statistics-logistic", "--cv", "1x2", "--jobs", "1"]
    assert main(["compare", str(data), *words, "--groups", "patient", "--out", str(tmp_path / "c")]) == 0
    page = tmp_path / "c" / "report.html"
    assert "Folder-of-Carla" in texts(page)
    assert main(["report", str(tmp_path / "c"), "--pseudonyms"]) == 0
    assert not [secret for secret in SECRETS if secret in texts(page)]
    assert {kind for kind, _ in key_of(page)} == {"file"}
