"""The numbers of README.md and docs/findings.md come out of the published trials, and a changed digit is found."""

import ast
import shutil
from pathlib import Path

import pytest
from tests.outside import published_trials, recount, recount_league, recount_metrics, recount_scores


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Copies of the pages, which a test may change."""
    for page in recount.PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        shutil.copy(recount.ROOT / page, tmp_path / page)
    return tmp_path


def test_the_trials_alone_give_the_numbers_of_the_pages(monkeypatch, capsys):
    monkeypatch.delenv("MIDAM_DATA", raising=False)
    code = recount.main()
    out = capsys.readouterr().out
    assert code == 0, out
    assert out.count("\nok ") + out.startswith("ok ") == sum(not claim.needs for claim in recount.CLAIMS)


@pytest.mark.long
def test_a_changed_digit_of_the_findings_is_found(copied, monkeypatch, capsys):
    monkeypatch.delenv("MIDAM_DATA", raising=False)
    page = copied / "docs" / "findings.md"
    text = page.read_text("utf-8")
    page.write_text(text.replace("+0.038 [+0.031, +0.044]", "+0.038 [+0.031, +0.045]"), "utf-8")
    assert recount.main([str(copied)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("DIFFERS")]
    assert "-> +0.038 [+0.031, +0.044]; printed: +0.038 [+0.031, +0.045]" in line


def test_a_claim_whose_text_is_gone_or_stands_twice_is_found(copied, monkeypatch):
    monkeypatch.delenv("MIDAM_DATA", raising=False)
    claim = next(own for own in recount.CLAIMS if own.numbers is recount_metrics.screening)
    text = recount.folded(copied / claim.page)
    assert recount.check(claim, text).verdict == "ok"
    assert recount.check(claim, text.replace("the default, which finds", "it finds")).verdict == "NOT FOUND ONCE"
    assert recount.check(claim, f"{text} {text}").verdict == "NOT FOUND ONCE"


def test_each_changed_number_of_a_claim_is_found():
    claim = next(own for own in recount.CLAIMS if own.numbers is recount_metrics.ten_labels)
    text = recount.folded(recount.ROOT / claim.page)
    for low, high in recount.check(claim, text).spans:
        changed = f"{text[: high - 1]}{(int(text[high - 1]) + 1) % 10}{text[high:]}"
        assert recount.check(claim, changed).verdict == "DIFFERS", text[low:high]


def test_a_changed_cell_of_the_league_is_found(tmp_path, monkeypatch):
    assert recount_league.differing_cells() == []
    page = tmp_path / "league.md"
    text = recount_league.PAGE.read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| musk | musk1 |"))
    last = line.split("|")[-2].strip(" *")
    page.write_text(text.replace(line, line.replace(last, "0.123")), "utf-8")
    monkeypatch.setattr(recount_league, "PAGE", page)
    (wrong,) = recount_league.differing_cells()
    assert wrong.startswith("musk1, LibAUC: 0.123 for ")


@pytest.mark.parametrize("module", [recount, published_trials, recount_league, recount_metrics, recount_scores])
def test_nothing_of_the_package_or_the_studies_is_imported(module):
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {name for name in names if name == "tests.outside" or name.startswith("tests.outside.")}
    assert not {name.partition(".")[0] for name in names - own} & {"midam", "studies", "benchmarks", "tests"}


@pytest.mark.data
def test_with_the_labels_of_the_data_all_claims_come_out(data_root, monkeypatch, capsys):
    monkeypatch.setenv("MIDAM_DATA", str(data_root))
    code = recount.main()
    out = capsys.readouterr().out
    assert code == 0, out
    assert " 0 differ, " in out
