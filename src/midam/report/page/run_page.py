"""The page of a run, or of an evaluation on other data: key metrics first, then the details."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from html import unescape
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from midam.evaluate.proportions import Estimate, estimate_of
from midam.report import words
from midam.report.figures import BLUE, ORANGE
from midam.report.page.binary import BinaryPage
from midam.report.page.classes import ClassesPage, LabelsPage
from midam.report.page.ordered import GradesPage, NumbersPage
from midam.report.page.render import Number, Section, Table, interval, render
from midam.report.page.survival import SurvivalPage
from midam.report.page.target_page import MOST_NAMES, ScoredBags, Study, TargetPage
from midam.report.plot_runs import Row, learning_panels, plot_forest, plot_learning
from midam.report.pseudonyms import naming
from midam.targets import Target

_PAGES = (BinaryPage, ClassesPage, LabelsPage, GradesPage, NumbersPage, SurvivalPage)
_SHOWN = 20  # most features in the chart
_SITES = re.compile(r"\b(site|center|centre|hospital|clinic|institution|institute|scanner|vendor)s?\b", re.IGNORECASE)


def page_class(target: Target) -> type[TargetPage]:
    """Return the page class of a target; the page of a plugin's target shows only its main metric."""
    return next((page for page in _PAGES if page.of_target == target.name), TargetPage)


def report_page(study: Study) -> str:
    """Return the HTML of the page."""
    page = page_class(study.target)(study)
    errors = page.errors() if page.ranked or page.always_errors else None
    sections = [Section("summary", "In short", "common.html", _summary(study, page))]
    sections.append(Section("flow", "Data: what was trained and tested on", "common.html", _flow(study, page)))
    if page.ranked:
        columns = [_column(study, page, name, levels) for name, levels in study.columns.items()]
        sections += page.sections()
        sections.append(Section("subgroups", "Subgroups: is it as good for everyone?", "common.html", columns))
    sections += [] if errors is None else [errors]
    sections += [] if study.importance is None else [_features(study)]
    sections.append(_training(study) if study.chosen is None else _tried(study.chosen))
    sections.append(Section("provenance", "How it was made: settings, versions, hashes", "common.html", study))
    kind, middot = "External evaluation" if study.external else "Report of a run", "\N{MIDDLE DOT}"
    title, kicker = f"{study.data}: {study.method}", f"midam {middot} {kind}"
    if study.external:
        title = f"Trained on {study.trained_on}, tested on {study.data}"
        kicker += f" {middot} {study.method}"
    context = {"title": title, "kicker": kicker, "lead": Section("lead", "", "words.html", page), "sections": sections}
    return render("page.html", **context, description=f"{kind}: {title}", naming=partial(_naming, study))


def _naming(study: Study, bodies: Sequence[str]) -> str:
    """Return a caution about names on the page for readers who share it; "" if there are no names."""
    if study.pseudonyms:
        return "Names of bags, groups, levels and files are pseudonyms here; the author of this page has the key."
    cells = {cell for body in bodies for cell in re.findall(r">([^<>]+)<", body)}
    cells |= {cell.partition(": ")[0] for cell in cells}  # tips of a chart begin with a name
    cells = set(map(unescape, cells))
    bag_and_group_names = (study.tested.ids, study.tested.groups)
    bags, groups = (0 if names is None else len(cells.intersection(names.tolist())) for names in bag_and_group_names)
    return naming(bags, groups) if bags or groups else ""


def _summary(study: Study, page: TargetPage) -> dict[str, Any]:
    compared = {"own_test": _own_test(study, page), "baseline": _baseline(study), "covariates": _covariates(study)}
    return {"page": page, **compared}


def _own_test(study: Study, page: TargetPage) -> Table | None:
    """Return a table that compares new bags with the run's test bags."""
    test, new = study.parts.get("test"), study.tested
    if not study.external or test is None or not page.ranked or len(test) == 0:
        return None
    names = ("own test bags", study.data)
    units = [test.ids, new.ids] if test.groups is None or new.groups is None else [test.groups, new.groups]
    groups = np.array([f"{at} {group}" for at, part in enumerate(units) for group in part])  # no group is in both
    pairs = zip((test.ids, test.values, test.scores), (new.ids, new.values, new.scores))
    ids, values, scores = map(np.concatenate, pairs)
    joined = ScoredBags(ids, values, scores, groups=groups)
    levels = np.repeat(names, [len(test), len(new)])
    caption = "Compared with the run's own test bags"
    return page.subgroup_table("data", joined, levels, caption=caption, reference=names[0])[0]


def _baseline(study: Study) -> dict[str, Any] | None:
    """Return the main metric of model and baseline on the same bags, and their difference."""
    baseline = study.baseline
    if baseline is None:
        return None
    entry = baseline.found
    if entry is None:
        return {"missing": baseline.note or "this run was trained with `--no-baseline`"}
    part, name, metric = words.PART_NAMES[entry["part"]], entry["method"], words.metric_of_part(entry)
    bags = len(study.parts[entry["part"]])
    rows: list[list[Any]] = [["this model", _estimate(baseline.model, metric, bags), None]]
    rows.append([f"baseline: {name}", *_with_difference(entry, bags, "baseline")])
    heads = ["method", words.METRIC_NAMES[metric], "model minus baseline"]
    table = Table(f"Compared with a simple baseline, on the same {bags} {part} bags", heads, rows)
    units = "groups" if "groups" in entry["difference_method"] else "bags"
    texts = {"verdict": words.verdict_words(entry), "caution": baseline.caution, "advice": baseline.advice}
    sentences = {key: text and f"{words.capitalized(text)}." for key, text in texts.items()}
    return {"missing": None, "table": table, "cox": name.endswith("-cox"), "units": units, **sentences}


def _covariates(study: Study) -> dict[str, Any] | None:
    """Return the main metric of the covariates alone, and the difference of the model on the same bags."""
    entry = study.covariates
    if entry is None:
        return None
    names, alone = ", ".join(entry["names"]), entry["alone"]
    if alone is None:
        return {"names": names, "table": None}
    part, bags, metric = words.PART_NAMES[alone["part"]], alone["bags"], words.metric_of_part(alone)
    title = f"What the instances add to the covariates, on the same {bags} {part} bags"
    heads = ["method", words.METRIC_NAMES[metric], "this model minus it"]
    row = [f"{names} alone: {alone['method']}", *_with_difference(alone, bags, "covariates.alone")]
    return {"names": names, "table": Table(title, heads, [row]), "verdict": words.covariate_verdict(alone)}


def _with_difference(entry: Mapping[str, Any], bags: int, place: str) -> list[Number]:
    """Return the main metric and the difference of an entry of summary.json; `place` is the entry's key."""
    metric = words.metric_of_part(entry)
    difference = Number(_estimate(entry, "difference", bags), "+.3f", f"{place}.difference")
    return [Number(_estimate(entry, metric, bags), key=f"{place}.{metric}"), difference]


def _estimate(entry: Mapping[str, Any], name: str, bags: int) -> Estimate:
    low, high = entry[f"{name}_ci95"]
    low, high = (low, high) if low < high else (np.nan, np.nan)  # both rank alike: no interval
    return Estimate(entry[name], low, high, bags)


def _flow(study: Study, page: TargetPage) -> dict[str, Any]:
    """Return the flow of bags: the run's data with its parts, and new data."""
    cards = {name: _card([bags], page) for name, bags in study.parts.items()}
    heads = ["part", "bags", *page.facts(study.tested.values), "groups", "instances"]
    rows = [
        [words.PART_NAMES[name], card["bags"], *card["facts"].values(), card["groups"], card["instances"]]
        for name, card in cards.items()
    ]
    of_run, by_name = [bags for name, bags in study.parts.items() if name != "new"], page.flow_by_name()
    return {
        "target": page.of_target,
        "whole": _card(of_run, page) if of_run else None,
        "new": cards.pop("new", None),
        "cards": cards,
        "source": study.data,
        "left_out": study.left_out,
        "table": Table("Bags of each part", heads, rows),
        **{"by_name": by_name, "many": by_name and len(by_name.rows) > MOST_NAMES},
    }


def _card(parts: Sequence[ScoredBags], page: TargetPage) -> dict[str, Any]:
    """Return the counts of the bags of these parts, and facts about their labels; None for unknown counts."""
    values = np.concatenate([part.values for part in parts])
    groups = [part.groups.tolist() for part in parts if part.groups is not None]
    sizes = [int(part.sizes.sum()) for part in parts if part.sizes is not None]
    return {
        "bags": len(values),
        "facts": page.facts(values),
        "counts": page.counts(values),
        "groups": len(set().union(*groups)) if len(groups) == len(parts) else None,
        "instances": Number(sum(sizes), ",") if len(sizes) == len(parts) else None,
    }


def names_sites(column: str) -> bool:
    """Return whether the name of a column suggests sites."""
    return _SITES.search(column.replace("_", " ")) is not None


def _column(study: Study, page: TargetPage, name: str, levels: NDArray[np.str_]) -> dict[str, Any]:
    """Return the metrics of the levels of a column, and their differences to the largest level."""
    tested, metric, total = study.tested, study.metric_name, study.figure(study.metric)
    table, rows = page.subgroup_table(name, tested, levels, caption=f"Figures by {name}, with 95% intervals")
    rows.append(Row(f"all (n = {len(tested)})", total, "D", ORANGE))
    forest = plot_forest(rows, metric, reference=total and total.value, missing=page.missing)
    pairs = set() if tested.groups is None else set(zip(tested.groups.tolist(), levels.tolist()))
    shared = len({group for group, _ in pairs}) < len(pairs)
    title = f"Site by site: {name}" if names_sites(name) else f"By {name}"
    return {"title": title, "forest": forest, "metric": metric, "name": name, "table": table, "shared": shared}


def _training(study: Study) -> Section:
    """Return the section of the learning curves."""
    history, content, curves = study.history, None, list[tuple[str, Figure]]()
    if history:
        for title, lines in learning_panels(history):
            if any(row.get(key) is not None for key in lines for row in history):
                curves.append((title, plot_learning(history, (title, lines), best_epoch=study.best_epoch)))
        selected = {"epoch": None, "weights": None, "state": None, **study.selected}
        content = {"curves": curves, "selected": selected, "epochs": len(history), "metric": study.training_metric}
    return Section("training", "Training", "common.html", content)


def _features(study: Study) -> Section:
    """Return the section on the importance of the features for the run's bags: a chart and a table."""
    importance: Mapping[str, Any] = study.importance or {}
    rows = importance["features"]
    metric = words.METRIC_NAMES[study.metric]
    lines = [Row(row["feature"], Estimate(row["drop"], row["low"], row["high"], 0)) for row in rows[:_SHOWN]]
    forest = plot_forest(lines, f"Drop of the {metric}, 95% interval", reference=0.0)
    keys = ("drop", "low", "high")
    cells = [
        [row["feature"], *(Number(row[key], "+.3f", f"importance.features.{at}.{key}") for key in keys)]
        for at, row in enumerate(rows)
    ]
    heads = ["feature", f"drop of the {metric}", "95% from", "to"]
    part = words.PART_NAMES[importance["part"]]
    content = {"part": part, "metric": metric, "forest": forest, "table": Table("Features", heads, cells)}
    return Section("features", "Features: what the ranking rests on", "common.html", content)


def _tried(auto: Mapping[str, Any]) -> Section:
    """Return the section on the methods that `auto` tried; `auto` is the entry of summary.json."""
    rows: list[list[Any]] = []
    lines = list[Row]()
    for at, row in enumerate(auto["tried"]):
        outcome = "taken" if row["weight"] > 0 else "left out: significantly behind, or no better than chance"
        area = Number(row["auroc"], key=f"auto.tried.{at}.auroc")
        weight = Number(row["weight"], ".2f", f"auto.tried.{at}.weight")
        bounds = interval(row["interval"]) if row.get("interval") else None
        rows.append([row["method"], area, bounds, weight, Number(row["seconds"], ".1f"), row["note"] or outcome])
        if estimate := estimate_of(row["auroc"], row.get("interval"), 0):
            lines.append(Row(row["method"], estimate, filled=row["weight"] > 0))
    legend = {"Taken": ("o", BLUE, True)}
    if any(not line.filled for line in lines):
        legend["Left out"] = ("o", BLUE, False)
    if auto["auroc"] is not None:
        mixed = Number(auto["auroc"], key="auto.auroc")
        rows.append(["the model", mixed, None, None, None, "for each fold with the weights of the others"])
        lines.append(Row("the model", estimate_of(auto["auroc"], None, 0), "D", ORANGE))
        legend["The model, their weighted mean"] = ("D", ORANGE, True)
    heads = ["method", "AUROC, inner folds", "95%", "weight", "seconds", "result"]
    chart = None
    if any(line.marker == "o" for line in lines):
        chart = plot_forest(lines, "AUROC, mean of the inner folds", names=legend)
    content = {"note": auto["note"], "chart": chart, "table": Table("What was tried", heads, rows)}
    return Section("tried", "What was tried: each method, and why this was taken", "common.html", content)
