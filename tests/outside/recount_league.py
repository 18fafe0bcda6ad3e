"""The tables of records/league.md again, from the published scores and labels: `python -m tests.outside.recount`."""

import gzip
import json

import numpy as np
from tests.outside.published_trials import ROOT, Values, auroc, trials

PAGE = ROOT / "records" / "league.md"
_OURS = "midam (`auto`)"
_BY_INNER_FOLDS = {
    "scikit-learn": (
        "bag-statistics-extratrees",
        "bag-statistics-logistic",
        "boosting on quantiles",
        "SVM on quantiles",
    ),
    "mikit-learn": ("mikit-mean", "mikit-attention"),
}
_BY_TEST_BAGS = {"torchmil": ("torchmil-abmil",), "LibAUC": ("libauc-midam-att", "libauc-midam-smx")}


def differing_cells() -> list[str]:
    """Return the cells of both tables of AUROCs that the published scores do not give, in words."""
    found, wrong = _means(), []
    for head, *lines in _tables():
        if "set" not in head:
            continue
        of_kind: dict[str, list[Values]] = {}
        for line in lines:
            cells = dict(zip(head, line))
            if cells["set"] not in found:
                continue
            own = {name: found[cells["set"]][name] for name in head if name not in ("kind", "set")}
            of_kind.setdefault(cells.get("kind", ""), []).append(np.array([*own.values()]))
            wrong += _compare(cells["set"], cells, own)
        for line in lines:
            if line[0] == "mean of the kinds":
                mean = np.mean([np.mean(sets, axis=0) for sets in of_kind.values()], axis=0)
                wrong += _compare(line[0], dict(zip(head, line)), dict(zip(head[2:], mean.tolist())))
    return wrong


def _compare(name: str, cells: dict[str, str], own: dict[str, float]) -> list[str]:
    texts = {method: cells[method].strip("*") for method in own}
    return [f"{name}, {m}: {texts[m]} for {value:.4f}" for m, value in own.items() if f"{value:.3f}" != texts[m]]


def _tables() -> list[list[list[str]]]:
    """Return the tables of the page as rows of cells, without the lines under their heads."""
    blocks = [block.splitlines() for block in PAGE.read_text("utf-8").split("\n\n") if block.startswith("| ")]
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block if not line.startswith("|--")]
        for block in blocks
    ]


def _means() -> dict[str, dict[str, float]]:
    """Return the mean AUROC over the folds, by set, of `auto`, each method and each library."""
    with gzip.open(ROOT / "records" / "trials" / "league-bags.jsonl.gz", "rt", encoding="utf-8") as file:
        bags = [json.loads(line) for line in file]
    rows = {(row.set, row.fold, row.method): row.scores for row in trials("league").itertuples()}
    methods = sorted({method for _, _, method in rows})
    areas: dict[str, dict[str, list[float]]] = {}
    for fold in bags:
        labels = [np.array(part) for part in fold["labels"]]
        own = areas.setdefault(fold["set"], {})
        own.setdefault(_OURS, []).append(auroc(labels[-1], np.array(fold["auto"])))
        scores = {m: [np.mean(part, axis=0) for part in rows[fold["set"], fold["fold"], m]] for m in methods}
        test = {method: auroc(labels[-1], parts[-1]) for method, parts in scores.items()}
        for method, area in test.items():
            own.setdefault(method, []).append(area)
        for library, names in _BY_INNER_FOLDS.items():
            inner = [np.mean([auroc(y, x) for y, x in zip(labels[:-1], scores[name])]) for name in names]
            own.setdefault(library, []).append(test[names[int(np.argmax(inner))]])
    means = {name: {method: float(np.mean(own)) for method, own in of.items()} for name, of in areas.items()}
    for of_set in means.values():
        of_set |= {library: max(of_set[name] for name in names) for library, names in _BY_TEST_BAGS.items()}
    return means
