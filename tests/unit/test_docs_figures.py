"""The figures in the findings and on the pages of results, and the words around them, are those of the records."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text("utf-8").split())
FINDINGS = " ".join((ROOT / "docs" / "findings.md").read_text("utf-8").split())
TABLES, IMAGES, DRAWS = (
    (ROOT / "docs" / "results" / f"{name}.md").read_text("utf-8") for name in ("tables", "images", "draws")
)
# Ways on the page of estimators, and in the record of the needle.
NEEDLE = {
    "mini-batches": "uniform",
    "MIDAM": "uniform, tracked state",
    "MIDAM, state as printed": "uniform, state as printed",
    "whole bags": "exact",
    "mi-SVM": "mi-SVM",
    "mi-SVM, cross-fitted, from novelty": "mi-SVM, cross-fitted from novelty",
    "trained with the label of each digit": "each instance's label, the study's network",
}
# Of each table on the pages of results: its section, the records, and how their lines begin, by the first cell of rows.
SOURCES: dict[str, list[tuple[str, str, dict[str, str]]]] = {
    "tables": [
        (
            "Is a sample",
            "table2",
            {name: rf"{name.lower()}, M?I?DAM \(att\)" for name in ("MUSK1", "MUSK2", "Fox", "Tiger", "Elephant")},
        ),
        (
            "Against baselines",
            "table2-cv",
            {
                "`midam`, attention": "midam-att",
                "mini-batches that remember nothing": "dam-mb-att",
                "whole bags": "dam-att",
                "extra trees on bag statistics": "bag-statistics-extratrees",
                "LibAUC's MIDAM": "libauc-midam-att",
                "torchmil's ABMIL": "torchmil-abmil",
            },
        ),
        (
            "What a user gets",
            "defaults",
            {
                "MUSK1": "musk1",
                "Fox": "fox",
                "molecules": "mutagenesis1",
                "postings": "newsgroups1",
                "intensive care": "physionet2012_icu",
                "nuclei of cells": "colon_nuclei",
                "mean of nine real sets": "mean of the real sets",
            },
        ),
    ],
    "images": [
        (
            "Which method",
            "table3",
            {
                "MIDAM, attention": r"\w+, MIDAM \(att\)",
                "MIDAM, smoothed-max": r"\w+, MIDAM \(smx\)",
                "mini-batches, attention": r"\w+, DAM \(MB-att\)",
                "mini-batches, smoothed-max": r"\w+, DAM \(MB-smx\)",
                "3-D convolutions": r"adrenal, DAM \(3D\)",
                "trees on the colors alone": r"\w+, rgb-trees",
            },
        ),
        (
            "Vectors, or",
            "pretrained",
            {
                **{name: f"{name}-plain" for name in ("breast", "colon", "adrenal")},
                "digits (MNIST bags)": "mnist-plain",
            },
        ),
        (
            "The rows of",
            "table3-features",
            {
                "MIDAM, attention": r"MIDAM \(att\)",
                "mini-batches, attention": r"DAM \(MB-att\)",
                "whole bags, attention": r"DAM \(att\)",
                "MIDAM, smoothed-max": r"MIDAM \(smx\)",
                "mini-batches, maximum": r"DAM \(MB-max\)",
            },
        ),
        (
            "Training the network",
            "fine-tuning fine-tuning-full",
            {
                "fine-tuned, mini-batches": r"adrenal, fine-tuned \| DAM \(MB-att\)",
                "fine-tuned, MIDAM": r"adrenal, fine-tuned \| MIDAM \(att\), relative",
                "fine-tuned, MIDAM as in the paper": r"adrenal, fine-tuned \| MIDAM \(att\) ",
                "frozen vectors, MIDAM, Adam": r"adrenal, frozen \| MIDAM \(att\), relative",
                "frozen vectors, MIDAM as in the paper, momentum SGD": r"adrenal, frozen, momentum \| MIDAM \(att\)",
            },
        ),
    ],
    "draws": [
        (
            "Where remembering",
            "tracked",
            {
                **{f"smoothed-max, {b}": rf"smoothed-max \| {b}" for b in (1, 2, 4, 8)},
                **{f"attention, {b}": rf"attention \| {b}" for b in (2, 4)},
                "attention, 8 (default)": r"attention \| 8",
            },
        ),
        (
            "One witness",
            "needle",
            NEEDLE,
        ),
        ("Several labels", "labels", {"macro AUROC": "attention, per class"}),
        (
            "Survival",
            "survival",
            {
                "MIDAM, pairs, smoothed-max": "tracked state, pairs, smoothed-max",
                "mini-batches, Cox, attention": "mini-batch, Cox, attention",
                "mini-batches, Cox, mean": "mini-batch, Cox, mean",
                "MIDAM, pairs, attention": "tracked state, pairs, attention",
                "MIDAM, Cox, attention": "tracked state, Cox, attention",
                "mini-batches, pairs, attention": "mini-batch, pairs, attention",
            },
        ),
        (
            "Screening",
            "screening",
            {
                "`minmax-auc` (default)": "minmax-auc",
                "`partial-auc`, two-way": "partial-auc, two-way",
                **{f"`{name}`": name for name in ("partial-auc", "bce", "pairwise", "average-precision")},
            },
        ),
    ],
    "speed": [
        ("Cost of a step", "complexity", {"MIDAM, ms": "`vrsp`", "whole bags, ms": "`exact`"}),
        (
            "Number of steps",
            "complexity",
            {
                "bags per bag of the batch, D / S": r"D / S: more copies of each bag \| smoothed-max",
                "accuracy, eps": r"eps \| smoothed-max",
                "instances per bag B, gamma0 in proportion to B": r"B \| smoothed-max",
                "instances per bag B, gamma0 without B": r"B, gamma0 without B \| smoothed-max",
            },
        ),
        (
            "The MIL assumption",
            "unit-tests",
            {
                name: rf"{name} \| exact \| minmax-auc"
                for name in ("attention", "mean", "smoothed-max", "max", "noisy-or")
            },
        ),
        (
            "Coverage",
            "coverage",
            {
                **{name: rf"1 \| {re.escape(name)} \| 0" for name in ("10 + 10", "10 + 90", "200 + 200")},
                "10 patients of 4 bags, same label": r"10 x 4 \| one a group \| 0\.8 \| 0\.95 \|",
            },
        ),
        (
            "Memory",
            "memory",
            {
                "training, midam": "midam",
                "training, LibAUC, bags in memory": "libauc",
                "training, LibAUC, mapped files": "libauc-mmap",
                "training, torchmil": "torchmil",
                "scoring a bag, midam": "midam",
                "scoring a bag, LibAUC": "libauc",
            },
        ),
        (
            "Time of a step",
            "step_time",
            {
                "features, attention": "features-attention",
                "features, smoothed-max": "features-smoothed-max",
                "images, ResNet20": "resnet20-attention",
            },
        ),
    ],
}
INTERVAL = re.compile(r"([+-]\d\.\d{3}) \[([+-]\d\.\d{3}), ([+-]\d\.\d{3})\]")


def record(name: str) -> str:
    return (ROOT / "records" / f"{name}.md").read_text("utf-8")


def section(text: str, title: str) -> list[list[str]]:
    """Rows of the table below a heading that begins so."""
    (part,) = [part for part in text.split("\n## ")[1:] if part.startswith(title)]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_page_of_results_has_the_sources_of_its_tables() -> None:
    assert sorted(SOURCES) == sorted(path.stem for path in (ROOT / "docs" / "results").glob("*.md"))


@pytest.mark.parametrize("name", SOURCES)
def test_each_figure_of_a_table_stands_on_the_line_of_the_record_that_it_is_from(name: str) -> None:
    text = (ROOT / "docs" / "results" / f"{name}.md").read_text("utf-8")
    assert len(re.findall(r"^\|[-:|]+\|$", text, flags=re.MULTILINE)) == len(SOURCES[name])
    for title, records, begins in SOURCES[name]:
        lines = [line for one in records.split() for line in record(one).splitlines()]
        rows = section(text, title)
        assert {row[0] for row in rows} == set(begins)
        for label, *cells in rows:
            own = "\n".join(line for line in lines if re.match(rf"(\| |- )(\*\*)?{begins[label]}(?![\w-])", line))
            figures = [figure for cell in cells for figure in re.findall(r"[+-]?\d[\d,]*\.\d+|\[.*?\]", cell)]
            assert figures, label
            assert [one for one in figures if not re.search(rf"(?<![\d.]){re.escape(one)}(?!\d)", own)] == [], label


def test_table_2_over_splits() -> None:
    said = re.search(r"Over (\d+) splits .*? at most (0\.\d{3}) in mean AUROC", FINDINGS)
    assert said is not None
    splits, bound = said.groups()
    verdicts = [row[6] for row in section(record("table2"), f"Over {splits} splits, margin 0.1")]
    outside = len(verdicts) - verdicts.count("inside")
    apart = [row[0] for row in section(record("table2"), f"Over {splits} splits, margin 0.1") if row[6] != "inside"]
    assert all("CE" in name or name.startswith("fox") for name in apart)
    assert sum("MIDAM" in name for name in apart) == 1, "README says one of MIDAM's ten"
    for page in (README, TABLES, FINDINGS):
        assert f"{outside} of its {len(verdicts)} means lie outside" in page
    paired = section(record("table2"), "What stochastic pooling adds to DAM, margin 0.1")
    usual = section(record("table2"), "What stochastic pooling adds to DAM, margin 1")
    assert {row[1] for row in paired + usual} == {splits}
    gaps = [float(row[2].split()[0]) for row in paired]
    assert max(map(abs, gaps)) == float(bound)
    ahead = f"ahead in {sum(gap > 0 for gap in gaps)} of {len(gaps)} cases by at most {bound}"
    assert f"over {splits} splits, {ahead}, in none after Holm's correction" in FINDINGS
    assert min(float(row[5]) for row in paired) > 0.05
    at_margin_1 = max(abs(float(row[2].split()[0])) for row in usual)
    assert f"at margin 1 they differ by at most {at_margin_1}." in FINDINGS
    shown = {row[0].lower(): row[3:5] for row in section(TABLES, "Is a sample of each bag enough?")}
    own = {row[0].split(",")[0]: [row[2].split()[0], row[3]] for row in paired if "(att)" in row[0]}
    assert shown == own
    (above,) = [row for row in paired if row[6] == "above 0"]
    assert above[0].startswith("elephant, MIDAM (smx)")
    assert f"Elephant ({above[3]}), with p = {above[5]} after Holm's" in TABLES
    lowest = min(float(row[3].strip("[]").split(",")[0]) for row in paired + usual)
    for page in (TABLES, FINDINGS):
        assert f"no interval goes below {lowest}" in page
    by_margin = section(record("table2"), "What the margin changes, 1 minus 0.1")
    gains = [float(row[2].split()[0]) for row in by_margin]
    assert min(gains) > 0
    assert min(float(row[4]) for row in by_margin) > 0.05
    assert f"with each method, by {min(gains)} to {max(gains)}; after Holm's correction no difference is left" in TABLES


def test_whole_numbers_of_the_findings() -> None:
    memory = record("image-memory")
    patches, step, times = re.search(
        r"images of (\d+) patches takes (\d+) MiB; whole bags would take (\d+)", FINDINGS
    ).groups()
    assert f"images of {patches} patches" in memory
    assert f"| {step} |" in memory
    assert f"{times} times the memory of MIDAM's step" in memory
    faster, cases = re.search(r"Yes, in (\d) of (\d) cases\.", FINDINGS).groups()
    assert f"**Shown in {faster} and {faster} of {cases}.**" in record("figure-instances")
    better, cases = re.search(r"In (\d) of (\d+) cases, at margin 1", FINDINGS).groups()
    assert f"**Shown in {better} of {cases}" in record("figure-generalization")


def test_cross_validation() -> None:
    text = record("table2-cv")
    head = ["musk1", "musk2", "fox", "tiger", "elephant"]
    assert f"| method | {' | '.join(head)} |" in text
    ahead, behind = {}, {}
    for method, *cells in section(text, "Paired difference to midam-att"):
        found = [INTERVAL.fullmatch(cell) for cell in cells]
        ahead[method] = [name for name, part in zip(head, found) if part and float(part[3]) < 0]
        behind[method] = [name for name, part in zip(head, found) if part and float(part[2]) > 0]
    rows = {row[0]: row[1:] for row in section(text, "Paired difference to midam-att")}
    behind_by = rows["libauc-midam-att"][2], rows["torchmil-abmil"][2]
    assert "On Fox, LibAUC is behind by {} and torchmil by {}.".format(*behind_by) in FINDINGS
    shown = [row[3] for row in section(TABLES, "Against baselines and other libraries")]
    assert shown == [
        "",
        *(rows[name][2] for name in ("dam-mb-att", "dam-att", "bag-statistics-extratrees")),
        *behind_by,
    ]
    same = ("dam-att", "dam-mb-att", "bag-statistics-extratrees")
    assert not any(ahead[name] or behind[name] for name in same)
    assert (ahead["libauc-midam-att"], ahead["torchmil-abmil"]) == (["fox"], ["fox", "tiger"])


def test_table_3() -> None:
    rows = {row[0]: row for row in section(record("table3"), "Paired differences")}
    color = rows["colon, MIDAM (att) minus rgb-trees"]
    over = re.findall(r"[+-]\d\.\d{3}", color[4])
    said = f"by {color[3]} over the tested images, but not clearly over trainings: [{over[0]}, {over[1]}]"
    assert said in " ".join(IMAGES.split())


def test_the_states_of_midam() -> None:
    rows = {row[0]: row for row in section(record("table3-state"), "Paired differences")}
    printed = rows["adrenal, MIDAM (att), relative minus MIDAM (att)"]
    drawn = rows["adrenal, MIDAM (att), relative minus DAM (MB-att)"]
    said = f"ahead of the printed one by {printed[3]} over five trainings, of mini-batches by {drawn[3]}"
    assert said in " ".join(IMAGES.split())
    assert f"it is {drawn[3]}, and ahead of the printed state by {printed[3]}" in " ".join(FINDINGS.split())
    colon = rows["colon, MIDAM (att), relative minus DAM (MB-att)"]
    said = f"ahead of them by {colon[3]} over the images, not clearly over trainings: {colon[4]}"
    assert said in " ".join(IMAGES.split())
    assert [name for name, row in rows.items() if row[5] == "above 0"] == [colon[0], printed[0]]
    others = [row for row in rows.values() if "relative" in row[0] and row not in (colon, printed)]
    assert {row[5] for row in others} == {"no"}


def test_the_needle() -> None:
    text = record("needle")
    tables = [{row[0]: row for row in section(text, f"1 of {size}")} for size in (100, 500)]
    shown = section(DRAWS, "One witness among hundreds")
    assert shown == [[name, *(rows[row][1] for rows in tables)] for name, row in NEEDLE.items()]
    both = [tables[1][NEEDLE[name]][-1] for name in ("mini-batches", "MIDAM")]
    assert both == ["at chance"] * 2
    remembered = re.search(r"\| 1 of 100 \| uniform, tracked state minus uniform \| (.*?) \|", text)
    assert remembered is not None
    assert f"MIDAM minus mini-batches is {remembered[1]}" in " ".join(DRAWS.split())


def test_coverage_of_paired_differences() -> None:
    said = section((ROOT / "docs" / "evaluation.md").read_text("utf-8"), "Comparing two models")
    rows = section(record("coverage"), "Paired differences")
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
