"""What the package says of itself: one address, links that work outside the repository, versions, a citation."""

import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import midam

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = PROJECT["urls"]["Repository"]


def test_the_built_readme_has_no_relative_link():
    pytest.importorskip("hatchling")
    text = runpy.run_path(str(ROOT / "hatch_build.py"))["absolute_links"](README, REPOSITORY)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    before = [target for target in links if "://" not in target or target.startswith(f"{REPOSITORY}/")]
    assert len(before) > 25
    assert sum(target.startswith(f"{REPOSITORY}/") for target in targets) == len(before)
    assert f"]({REPOSITORY}/raw/HEAD/docs/figures/" in text  # a picture as its bytes, a page as a page


def test_no_link_of_the_readme_hides_from_the_hook():
    assert not re.search(r"<(a|img)\s", README)
    assert not re.search(r"^\[[^\]]+\]:", README, re.MULTILINE)


def test_there_is_one_address():
    pages = PROJECT["urls"]["Documentation"]
    owner, name = REPOSITORY.split("/")[-2:]
    assert pages == f"https://{owner}.github.io/{name}/"
    others = [PROJECT["urls"][key] for key in ("Issues", "Changelog")]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert all(url.startswith(f"{REPOSITORY}/") for url in others)
    assert citation["repository-code"] == REPOSITORY
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = re.findall(r"^(?:repo_url|site_url): (\S+)", site, re.MULTILINE)
    assert set(found) == {REPOSITORY, pages}


def test_the_citation_names_version_and_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == midam.__version__
    assert citation["license"] == PROJECT["license"]
    paper = citation["preferred-citation"]
    assert (paper["year"], len(paper["authors"])) == (2023, 7)


def test_the_package_is_typed_and_names_its_pythons():
    assert (Path(midam.__file__).parent / "py.typed").exists()
    named = [line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert named == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == ">=3.11"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named


def test_the_lowest_versions_are_those_of_the_bounds():
    listed = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8")
    lowest = dict(re.findall(r"^([\w.-]+)==(\S+)", listed, re.MULTILINE))
    skipped = ("peers", "dask", "ray", "docs", "dev", "transformers")
    extras = [part for name, parts in PROJECT["optional-dependencies"].items() if name not in skipped for part in parts]
    for requirement in [*PROJECT["dependencies"], *extras]:
        name, bound = re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups()
        found = lowest[name.lower()]
        assert f"{found}.".startswith(f"{bound}."), f"{requirement}: run `make lowest`, got {found}"


def test_messages_name_an_extra_by_one_wording():
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "midam[" not in text or path.name == "errors.py", f"{path}: use midam.errors.install"
        for extra in re.findall(r"install\(\"(\w+)\"\)", text):
            assert extra in PROJECT["optional-dependencies"]


def test_each_extra_is_in_the_table_of_the_docs():
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert listed == [name for name in PROJECT["optional-dependencies"] if name not in ("docs", "dev")]
