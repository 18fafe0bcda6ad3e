"""The figures in the findings, and the words around them, are those of the results pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text("utf-8").split())
FINDINGS = " ".join((ROOT / "docs" / "findings.md").read_text("utf-8").split())
INTERVAL = re.compile(r"([+-]\d\.\d{3}) \[([+-]\d\.\d{3}), ([+-]\d\.\d{3})\]")


def page(name: str) -> str:
    return (ROOT / "records" / f"{name}.md").read_text("utf-8")


def section(text: str, title: str) -> list[list[str]]:
    """Rows of the table below a heading that begins so."""
    (part,) = [part for part in text.split("\n## ")[1:] if part.startswith(title)]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_table_2_over_splits() -> None:
    said = re.search(r"Over (\d+) splits .*? at most (0\.\d{3}) .*? (\d+) of its (\d+) means", FINDINGS)
    assert said is not None
    splits, bound, inside, rows = said.groups()
    verdicts = [row[6] for row in section(page("table2"), f"Over {splits} splits, margin 1")]
    assert (verdicts.count("inside"), len(verdicts)) == (int(inside), int(rows))
    assert f"{len(verdicts) - int(inside)} of its {rows} means lie outside" in README
    paired = section(page("table2"), "What stochastic pooling adds to DAM, margin 1")
    assert {row[1] for row in paired} == {splits}
    assert max(abs(float(row[2].split()[0])) for row in paired) == float(bound)
    assert "all 10 corrected intervals hold 0" in FINDINGS
    assert len(paired) == 10
    assert {row[6] for row in paired} == {"no difference found"}


def test_cross_validation() -> None:
    text = page("table2-cv")
    head = ["musk1", "musk2", "fox", "tiger", "elephant"]
    assert f"| method | {' | '.join(head)} |" in text
    ahead, behind = {}, {}
    for method, *cells in section(text, "Paired difference to midam-att"):
        found = [INTERVAL.fullmatch(cell) for cell in cells]
        ahead[method] = [name for name, part in zip(head, found) if part and float(part[3]) < 0]
        behind[method] = [name for name, part in zip(head, found) if part and float(part[2]) > 0]
    rows = {row[0]: row[1:] for row in section(text, "Paired difference to midam-att")}
    behind_by = rows["libauc-midam-att"][2], rows["torchmil-abmil"][2]
    assert "On Fox, LibAUC's loop is behind by {} and torchmil's ABMIL by {}".format(*behind_by) in FINDINGS
    same = ("dam-att", "dam-mb-att", "bag-statistics-extratrees")
    assert not any(ahead[name] or behind[name] for name in same)
    assert (ahead["libauc-midam-att"], ahead["torchmil-abmil"]) == (["fox"], ["fox", "tiger"])


def test_table_3() -> None:
    rows = {row[0]: row for row in section(page("table3"), "Paired differences")}
    color = rows["colon, MIDAM (att) minus rgb-trees"]
    volumes = rows["adrenal, MIDAM (att) minus DAM (MB-att)"]
    mean, low, high = (float(x) for x in INTERVAL.fullmatch(color[3]).groups())
    over = [float(x) for x in re.findall(r"[+-]\d\.\d{3}", color[4])]
    said = f"By {mean:+.3f} [{low:+.3f}, {high:+.3f}] over the tested images; over trainings the interval is"
    assert f"{said} [{over[0]:+.3f}, {over[1]:+.3f}]" in FINDINGS
    assert f"behind mini-batches by {volumes[3]}" in FINDINGS


def test_the_needle() -> None:
    found = {}
    for size in ("1 of 500", "5 of 5000"):
        rows = {row[0]: row for row in section(page("needle"), f"smoothed-max, {size}")}
        found[size] = [rows[name] for name in ("top, annealed", "uniform", "top, annealed, best of 4")]
    (own, plain, _), (large, _, best) = found.values()
    assert f"{own[1]} against {plain[1]} of uniform draws at the same cost, {own[4]}." in FINDINGS
    assert f"with 5 of 5000: {best[1]} on average for {large[1]} of one" in FINDINGS


def test_coverage_of_paired_differences() -> None:
    said = section((ROOT / "docs" / "evaluation.md").read_text("utf-8"), "Comparing two models")
    rows = section(page("coverage"), "Paired differences")
    few = [row for row in rows if int(row[0].split()[0]) <= 20]
    parts = {
        "10 or 20 groups, each of one class": [row for row in few if row[1] == "one a group"],
        "10 or 20 groups of both classes": [row for row in few if row[1] == "mixed in a group"],
        "40 to 400 groups": [row for row in rows if row not in few],
    }
    found = []
    for name, part in parts.items():
        columns = [[float(row[at]) for row in part] for at in (4, 5, 6)]
        ends = [[f"{value:.2f}".removeprefix("0") for value in (min(c), max(c))] for c in columns]
        found.append([name, *(f"{low} to {high}" for low, high in ends)])
    assert said == found
    # The bootstrap was nowhere better: by two standard errors of a coverage.
    assert all(float(row[6]) > float(row[5]) - 0.02 for row in rows)
