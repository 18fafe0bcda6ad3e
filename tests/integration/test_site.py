"""The site: the home page's blocks run, its findings are those of the pages, the API pages show what is exported."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import griffe
import pytest
from docs import hooks
from PIL import Image, ImageStat
from playwright.sync_api import sync_playwright
from tests.pages import blocks

from midam.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RECORDS = ROOT / "records"
HOME = (DOCS / "index.md").read_text("utf-8")
FINDINGS = (DOCS / "findings.md").read_text("utf-8")
API = [DOCS / "api.md", *sorted((DOCS / "api").glob("*.md"))]
CONFIG = (ROOT / "mkdocs.yml").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.long
def test_the_commands_of_the_home_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    install, commands = (block.splitlines() for block in blocks("sh", HOME))
    assert install == ["pip install ."]
    words = [line.partition("#")[0].split() for line in commands]
    assert [name for name, *_ in words] == ["midam"] * 3
    for _, command, *arguments in words:
        assert main([command, *arguments]) == 0
    assert re.search(r"^test AUROC 0\.9\d\d \(95% CI ", capsys.readouterr().out, flags=re.MULTILINE)
    assert len((tmp_path / "scores.csv").read_text().splitlines()) > 100


def test_the_python_of_the_home_page_is_that_of_the_readme():
    """Which runs in test_readme.py."""
    assert blocks("python", HOME) == blocks("python", (ROOT / "README.md").read_text("utf-8"))


def test_the_result_of_the_home_page_is_that_of_the_quick_start():
    (line,) = blocks("text", HOME)
    assert line in (DOCS / "quickstart.md").read_text("utf-8")


def records(text: str) -> dict[str, str]:
    """The text of each record that a page or a part of it links to."""
    return {name: (RECORDS / name).read_text("utf-8") for name in re.findall(r"\]\([./]*records/([\w.-]+\.md)", text)}


def unfounded(part: str, pages: Iterable[str]) -> list[str]:
    """Figures with a decimal, or of seconds or memory, in a part of a page that stand, whole, on none of the pages."""
    units = r"(?<![\d.])\d+(?=\s(?:s|ms|MiB|GiB|GB)\b)"
    figures = re.findall(rf"[+-]?\d+\.\d+(?!\.?\d)|{units}", re.sub(r"\]\([^)]*\)", "", part))
    texts = list(pages)
    return [
        figure
        for figure in figures
        if not any(re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text) for text in texts)
    ]


def test_a_figure_is_looked_up_whole():
    part = "It has 0.85 and +1.5, see [2.5](../../records/table1.md)."
    assert unfounded(part, ["0.85 or +1.5, 2.5"]) == []
    assert unfounded(part, ["0.851, 1.5, 2.5"]) == ["0.85", "+1.5"]
    assert unfounded(part, ["10.85, +1.5", "and 2.5"]) == ["0.85"]
    assert unfounded("It takes 57 s and 628 MiB for 60 bags.", ["57 s, 1628 MiB"]) == ["628"]


@pytest.mark.parametrize("text", [FINDINGS, HOME.split("## What to expect")[1]], ids=["findings", "home"])
def test_each_figure_stands_on_the_page_behind_its_link(text):
    lost, checked = [], 0
    bullets = re.findall(r"^- (.*?)(?=^- |^$|^#|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    for part in (*bullets, *re.findall(r"^\| .*", text, flags=re.MULTILINE)):
        pages = [(DOCS / name).read_text("utf-8") for name in re.findall(r"\]\(\s*(results/[\w.-]+\.md)", part)]
        lost += [(figure, part) for figure in unfounded(part, pages) if pages]
        checked += len(pages)
    assert checked >= (30 if text is FINDINGS else 2)
    assert lost == []


@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "results").glob("*.md")))
def test_each_figure_of_a_results_page_stands_in_a_record_that_its_section_links(page):
    sections = (DOCS / "results" / page).read_text("utf-8").split("\n## ")
    assert any(records(part) for part in sections)
    assert [
        (figure, part.splitlines()[0]) for part in sections for figure in unfounded(part, records(part).values())
    ] == []


def test_the_findings_begin_with_what_the_paper_claims():
    first = FINDINGS.split("\n## ")[1]
    rows = re.findall(r"^\| (?!the paper)(.*) \|$", first, flags=re.MULTILINE)
    assert first.startswith("What the paper claims, and what we found\n")
    assert 8 <= len(rows) <= 12
    assert [row for row in rows if "](results/" not in row] == []


def test_intervals_are_quoted_whole():
    whole = re.compile(r"[+-]\d\.\d{3}\s\[[+-]\d\.\d{3}, [+-]\d\.\d{3}\]")
    known = "\n".join(path.read_text("utf-8") for path in RECORDS.glob("*.md"))
    for path in (DOCS / "findings.md", *(DOCS / "results").glob("*.md")):
        quoted = [" ".join(found.split()) for found in whole.findall(path.read_text("utf-8"))]
        assert [found for found in quoted if found not in known] == [], path.name


def test_links_to_records_lead_to_files():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    named = {
        (page.name, name) for page in pages for name in re.findall(r"[(/]records/([^)\s#]*)", page.read_text("utf-8"))
    }
    assert len(named) > 40
    assert [(page, name) for page, name in named if not (RECORDS / name).exists()] == []


def test_a_link_to_a_record_leads_out_of_the_site_and_its_picture_into_it():
    text = "![x](../../records/a.png) [y](../records/b.md#c) [z](records.md)"
    shown = "![x](../figures/records/a.png) [y](https://e/blob/HEAD/records/b.md#c) [z](records.md)"
    assert hooks.linked(text, "https://e") == shown


def test_no_cell_of_the_paper_s_tables_holds_two_results():
    for name in ("table2", "table3"):
        cells = re.findall(r"(?<=\| )[^|\n]+(?= \|)", (RECORDS / f"{name}.md").read_text("utf-8"))
        assert cells
        assert [cell for cell in cells if re.search(r"\d\.\d{3}.*; .*\d\.\d{3}", cell)] == []


def test_every_record_is_listed_with_its_command_and_quoted_on_a_page():
    written = {path.name: path.read_text("utf-8") for path in RECORDS.glob("*.md") if path.name != "README.md"}
    index = (RECORDS / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[.*\| \[[\w-]+\]\(([\w.-]+)\) \| .* \| `(.*)` \|$", index, flags=re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(written)
    assert [(name, command) for name, command in rows if f"`{command}`" not in written[name]] == []
    pages = [path.read_text("utf-8") for path in (DOCS / "results").glob("*.md")]
    assert set(written) == {name for page in pages for name in records(page)}


def test_every_page_of_results_is_reached_from_the_findings():
    pages = {path.name for path in (DOCS / "results").glob("*.md")}
    assert pages == set(re.findall(r"\(results/([\w.-]+\.md)[#)]", FINDINGS))


def documented() -> str:
    return "\n".join(hooks.on_page_markdown(page.read_text("utf-8")) for page in API)


def test_every_public_name_is_documented_once():
    listed = re.findall(r"^::: ([\w.]+)$", documented(), flags=re.MULTILINE)
    assert len(listed) == len(set(listed))
    shown = {*listed, *re.findall(r"\{#([\w.]+)\}", documented())}
    for one in hooks.exported("midam"):
        assert one.path in shown or one.path.rpartition(".")[0] in shown or one.path.startswith("midam.errors."), one
        assert one.text, f"{one.name} has no docstring"


def test_the_api_shows_exported_names_alone():
    listed = re.findall(r"^::: ([\w.]+)$", documented(), flags=re.MULTILINE)
    assert not [path for path in listed if any(part.startswith("_") for part in path.split("."))]


def test_grouped_parameters_show_their_own_defaults():
    code = """
    def read(path, *, bag="bag", label="label", low=0, high=0, missing="skip"):
        \"\"\"Read.

        Parameters
        ----------
        path : str
            Where.
        bag, label : str
            Columns.
        low, high : int
            Bounds.
        missing : {"error", "skip"}
            What to do.
        \"\"\"
    """
    extensions = griffe.load_extensions("dataclasses", hooks.OwnDefaults)
    with griffe.temporary_visited_package(
        "toy",
        modules={"__init__.py": textwrap.dedent(code)},
        extensions=extensions,
        docstring_parser="numpy",
    ) as toy:
        (section,) = (part for part in toy["read"].docstring.parsed if part.kind.value == "parameters")
    assert [(one.name, one.value) for one in section.value] == [
        ("path", None),
        ("bag, label", "'bag', 'label'"),
        ("low, high", "0"),
        ("missing", "'skip'"),
    ]


# `make check` has built the site just before, and says where; else to build it is left to the long tests.
shown = pytest.mark.slow if "MIDAM_SITE" in os.environ else pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site, built strictly: a link or an anchor that leads nowhere stops it."""
    if "MIDAM_SITE" in os.environ:
        return Path(os.environ["MIDAM_SITE"])
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        words,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@shown
def test_llms_txt_lists_each_page_with_a_sentence(site):
    lines = [line for line in (site / "llms.txt").read_text("utf-8").splitlines() if line.startswith("- ")]
    assert len(lines) == sum(path.name != "404.html" for path in site.rglob("*.html"))
    assert any(line.startswith("- [Quick start](https://") and "quickstart" in line for line in lines)
    assert not any("<a " in line or "<code" in line for line in lines)


@shown
def test_links_and_anchors_lead_somewhere_and_pictures_say_what_they_show(site):
    pages = {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 20
    lost = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            if address.scheme or address.netloc:
                continue
            found = target.exists() and (not address.fragment or unquote(address.fragment) in pages[target].anchors)
            lost += [] if found else [(path.name, link)]
        lost += [(path.name, "a picture without words", picture) for picture in page.unnamed]
    assert lost == []


@shown
def test_api_pages_are_small_and_name_no_internals(site):
    pages = [site / "api.html", *(site / "api").glob("*.html")]
    # What a page says, without the navigation, which grows with the site.
    sizes = {
        path.name: len(path.read_text("utf-8").partition("<article")[2].partition("</article>")[0]) for path in pages
    }
    assert min(sizes.values()) > 1_000, sizes
    assert max(sizes.values()) < 300_000, sizes
    assert sum(sizes.values()) < 1_000_000, sizes
    for path in pages:
        anchors = Page(path.read_text("utf-8")).anchors
        assert not [anchor for anchor in anchors if re.match(r"midam\..*\._", anchor)]


_HIDES = "all => all.some(code => code.scrollWidth > code.clientWidth + 1)"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
@pytest.mark.long
def test_pages_fit_the_screen_and_load_nothing_from_elsewhere_and_no_option_is_cut(site):
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        screen, loaded = browser.new_page(), []
        screen.on("request", lambda request: loaded.append(request.url))
        wide, broken, hidden = [], [], []
        for path in sorted(site.rglob("*.html")):
            screen.goto(path.as_uri())
            for width in (1280, 390):
                screen.set_viewport_size({"width": width, "height": 800})
                if screen.evaluate("document.scrollingElement.scrollWidth > innerWidth + 1"):
                    wide.append((path.name, width))
                if width == 1280 and screen.locator("pre > code").evaluate_all(_HIDES):
                    hidden.append(path.name)
            cut = screen.locator("article :not(pre) > code").evaluate_all(
                "all => all.filter(code => code.getClientRects().length > 1).map(code => code.textContent)"
            )
            broken += [(path.name, text) for text in cut if text.startswith("-") and len(text) <= 20]
        browser.close()
    assert wide == []
    assert broken == []
    assert hidden == [], "ends of lines of code"
    assert not [url for url in loaded if not url.startswith(("file:", "data:", "blob:"))]


@pytest.mark.long  # its look changes rarely
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_a_table_that_goes_on_shows_it_at_its_edge(site):
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        screen = browser.new_page(viewport={"width": 390, "height": 800})
        screen.goto((site / "results" / "tables.html").as_uri())
        table = screen.locator(".md-typeset__scrollwrap").first

        def edges():
            """Mean brightness of the left and the right edge."""
            with Image.open(BytesIO(table.screenshot())) as image:
                gray, low = image.convert("L"), image.height
                return [ImageStat.Stat(gray.crop((x, 0, x + 3, low))).mean[0] for x in (0, image.width - 3)]

        begin = edges()
        table.evaluate("part => { part.scrollLeft = part.scrollWidth; }")
        end = edges()
        browser.close()
    assert begin[1] < 220 < begin[0]
    assert end[0] < 220 < end[1]


class Page(HTMLParser):
    """Links, anchors and pictures without an alternative text of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.unnamed = [], {""}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.add(found.get("id") or "")
        if tag == "img" and not found.get("alt"):
            self.unnamed.append(found.get("src"))
        self.links += [found[name] for name in ("href", "src") if found.get(name) and tag in ("a", "img")]
