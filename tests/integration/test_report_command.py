"""`midam report` and the pages at the end of other commands, read by a real browser on desktop, phone and paper."""

import shutil
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlparse

import pandas as pd
import pytest
from PIL import Image
from tests.integration.commands import table
from tests.pairs import each
from tests.unit.test_report_page_targets import write_npz

from midam.cli import main
from midam.compare import repeated_folds, run_comparison
from midam.data.sources import read_bags

pytestmark = [pytest.mark.drawn, pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on bags of patients, explained; its evaluation on other bags; a comparison."""
    folder = tmp_path_factory.mktemp("report")
    data = table(folder / "own.csv", patient=[f"p{bag // 2:02d}" for bag in range(40)])
    other = table(folder / "other.csv", patient=[f"q{bag // 2:02d}" for bag in range(40)])
    frame = pd.read_csv(other).assign(f1=lambda rows: rows["f1"] + 0.5, bag=lambda rows: "o" + rows["bag"])
    frame.to_csv(other, index=False)
    sites = frame[["bag"]].drop_duplicates()
    sites.assign(site=["north", "south"] * 20).to_csv(folder / "sites.csv", index=False)
    run = folder / "run"
    held_out = ["--test-fraction", "0.2"]
    assert main(["fit", str(data), "--groups", "patient", "--epochs", "4", *held_out, "--out", str(run)]) == 0
    subgroups = ["--subgroups", "site", "--table", str(folder / "sites.csv")]
    assert main(["report", str(run), str(other), *subgroups]) == 0
    bags = read_bags(str(data), groups="patient")
    folds, methods = repeated_folds(bags, repeats=1, folds=3), ["mean-map-svm", "bag-statistics-logistic"]
    run_comparison(bags, methods, folds, out=folder / "compared")
    for target in ("multiclass", "survival"):
        data, out = write_npz(folder / f"{target}.npz", target), str(folder / target)
        short = ["--epochs", "2", "--members", "1", "--no-baseline"]
        assert main(["fit", str(data), "--target", target, *short, "--out", out]) == 0
    return folder


PAGES = {
    "run": "run/report.html",
    "evaluation": "run/report-other.html",
    "comparison": "compared/report.html",
    "classes": "multiclass/report.html",
    "survival": "survival/report.html",
}


def test_the_pages_are_there(made, capsys):
    for path in PAGES.values():
        assert (made / path).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "Subgroups: by site" in (made / PAGES["evaluation"]).read_text(encoding="utf-8")


def test_a_page_can_be_made_again(made, capsys):
    for folder in ("run", "compared", "survival"):
        before = (made / folder / "report.html").read_bytes()
        assert main(["report", str(made / folder), "--out", str(made / folder / "again.html")]) == 0
        assert capsys.readouterr().out == f"report: {made / folder / 'again.html'}\n"
        assert (made / folder / "again.html").read_bytes() == before
        (made / folder / "again.html").unlink()


@pytest.mark.drawn(False)
def test_evaluate_leaves_a_page(made, tmp_path, capsys):
    assert main(["evaluate", str(made / "run"), str(made / "other.csv"), "--out", str(tmp_path / "e.json")]) == 0
    assert (tmp_path / "report-other.html").exists()
    assert f"report: {tmp_path / 'report-other.html'}" in capsys.readouterr().out


@pytest.mark.drawn(False)
@pytest.mark.parametrize(("command", "there"), [("evaluate", False), ("report", True)])
def test_a_link_in_a_run_is_replaced_by_the_page_not_followed(made, tmp_path, command, there):
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(made / "run", run)
    page = run / "report-other.html"
    page.unlink(missing_ok=True)
    page.symlink_to(outside)
    if there:
        outside.write_text("kept")
    assert main([command, str(run), str(made / "other.csv")]) == 0
    assert not page.is_symlink()
    assert outside.exists() == there
    assert not there or outside.read_text() == "kept"


@pytest.mark.drawn(False)
def test_a_page_that_cannot_be_written_costs_no_figures(made, tmp_path, capsys):
    (tmp_path / "report-other.html").mkdir()
    assert main(["evaluate", str(made / "run"), str(made / "other.csv"), "--out", str(tmp_path / "e.json")]) == 0
    said = capsys.readouterr()
    assert "no report was written" in said.err
    assert "new bags: AUROC" in said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--subgroups", "site"], "Expected --subgroups and --table together"),
        (["run", "--out", "page.pdf"], "Expected an .html file for --out"),
        (["compared", "--subgroups", "site", "--table", "sites.csv"], "Expected no --subgroups for a comparison"),
        (["run", "--subgroups", "sitte", "--table", "sites.csv"], "did you mean 'site'?"),
        (["run", "--subgroups", "site", "--table", "sites.csv"], "or name it with --bag-column"),
        (["nothing"], "Expected a run, got nothing in nothing"),
        (["run", "other.csv", "--out", "own.csv"], "Expected an .html file for --out"),
    ],
)
def test_what_is_refused(made, words, message, capsys, monkeypatch):
    monkeypatch.chdir(made)
    assert main(["report", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def browser():
    """Chromium through playwright; a test without one is skipped."""
    driver = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on the path")
    with driver.sync_playwright() as play:
        found = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.parametrize(("kind", "screen"), each(PAGES, [(1280, "light"), (390, "dark")]))
def test_a_browser_reads_it(made, browser, kind, screen):
    (width, scheme), said, asked = screen, [], []
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = (made / PAGES[kind]).as_uri()
    page.goto(address)
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [address]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for link in page.eval_on_selector_all("a", "links => links.map(link => link.href)"):
        parts = urlparse(link)
        target = Path(unquote(parts.path))
        assert parts.scheme == "file"
        assert target.exists()
        assert target != made / PAGES[kind] or page.locator(f"[id='{parts.fragment}']").count() == 1
    assert page.locator("h1").count() == 1
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0
    text, paper = ("getComputedStyle(document.body)." + name for name in ("color", "backgroundColor"))
    assert contrast(page.evaluate(text), page.evaluate(paper)) > 7
    for kind_of in ("note", "kicker"):
        small = page.locator(f".{kind_of}").first.evaluate("part => getComputedStyle(part).color")
        assert contrast(small, page.evaluate(paper)) > 4.5
    context.close()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_a_table_that_goes_on_shows_it_at_its_edge(made, browser, scheme):
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.goto((made / PAGES["evaluation"]).as_uri())
    wide = page.locator(".scroll", has_text="Metrics by site").first
    narrow = page.locator(".scroll", has_text="Settings that differ from the defaults")

    def shaded(part):
        """Whether the left and the right edge of a part have another color than its middle, below its last row."""
        part.evaluate("part => { part.style.paddingBottom = '20px'; }")
        with Image.open(BytesIO(part.screenshot())) as image:
            row = [image.convert("RGB").getpixel((x, image.height - 5)) for x in (1, image.width // 2, image.width - 2)]
        return row[0] != row[1], row[2] != row[1]

    assert wide.evaluate("part => part.scrollWidth > part.clientWidth")
    assert shaded(wide) == (False, True)
    wide.evaluate("part => { part.scrollLeft = (part.scrollWidth - part.clientWidth) / 2; }")
    assert shaded(wide) == (True, True)
    wide.evaluate("part => { part.scrollLeft = part.scrollWidth; }")
    assert shaded(wide) == (True, False)
    assert narrow.evaluate("part => part.scrollWidth === part.clientWidth")
    assert shaded(narrow) == (False, False)
    context.close()


def test_a_click_sorts_a_table_and_paper_shows_what_is_folded(made, browser):
    page = browser.new_page()
    page.goto((made / PAGES["comparison"]).as_uri())
    head = page.locator("table.sorts thead th").nth(1)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    first = page.locator("table.sorts tbody tr td:nth-child(2) data")
    values = [float(first.nth(at).get_attribute("value")) for at in range(first.count())]
    assert values == sorted(values)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    page.close()


def test_it_reads_without_script(made, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((made / PAGES["run"]).as_uri())
    assert page.locator("table").count() > 5
    assert "AUROC" in page.inner_text("main")
    context.close()


def contrast(first, second):
    """Contrast of two colors as of WCAG 2, from 1 to 21."""

    def light(color):
        parts = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted([light(first), light(second)])
    return (high + 0.05) / (low + 0.05)
