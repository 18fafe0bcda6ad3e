"""The page of a run, or of an evaluation on other data, in five sections that are the same for all targets.

The answer; how well the model ranks; what to know before relying on it; the bags that were wrong; how it was made.
"""

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from midam.evaluate.proportions import Estimate, estimate_of
from midam.report import words
from midam.report.figures import learning_curves
from midam.report.page import ranking
from midam.report.page.checks import checks, subgroups
from midam.report.page.render import Box, Figure, Note, Number, Pair, Part, Section, Table, interval, made, render
from midam.report.page.study import Study
from midam.report.pseudonyms import NAMES, PSEUDONYMS
from midam.targets.binary import Binary
from midam.targets.columns import Multiclass, Multilabel
from midam.targets.ranked import Continuous, Ordinal
from midam.targets.survival import Survival

_ASKED = 4  # bags in the command `midam explain`
# What the share of the main metric is a share of: on 100 bags CLAIM in 80% of all PAIRS.
_CLAIMS: dict[Any, tuple[str, str]] = {
    Binary: (", a positive bag scored above a negative one", "pairs"),
    Multiclass: (", a bag of a class scored above a bag of another", "such pairs, averaged over the classes"),
    Multilabel: (", a bag with a label scored above a bag without it", "such pairs, averaged over the labels"),
    Ordinal: (": of two bags of different grades, the one with the higher grade had the higher score", "such pairs"),
    Continuous: (": of two bags, the one with the larger number had the higher score", "pairs of different numbers"),
    Survival: (": of two bags, the one with the earlier event had the higher risk", "comparable pairs"),
    object: (": of two bags, the one with the higher label had the higher score", "comparable pairs"),
}
_ROLES = {
    "test": "that played no part in training",
    "new": "from data that the run did not use",
    "out_of_fold": "each scored by a model that has not seen it",
    "val": "which helped to choose the model, so that this is no test",
    "train": "which trained the model, so that this is no test",
}


def report_page(study: Study) -> str:
    """Return the HTML of the page."""
    sections = [
        Section("answer", "The answer", [*_answer(study), Note(PSEUDONYMS if study.pseudonyms else NAMES)]),
        Section("metrics", "How well it ranks", _metrics(study)),
        Section("caution", "Before you rely on it", _cautions(study)),
        Section("bags", "The bags: which were wrong", _bags(study)),
        Section("made", "How it was made: data, training, settings, versions", _made(study)),
    ]
    kicker, title = "Report of a run", f"{study.data}: {study.method}"
    if study.external:
        kicker, title = "External evaluation", f"Trained on {study.trained_on}, tested on {study.data}"
    return render("page.html", title=title, kicker=kicker, sections=sections)


def _answer(study: Study) -> list[Any]:
    """Return the answer in one sentence with its interval, what the threshold finds, and what was done."""
    tested, estimate, at = study.tested, study.figure(study.metric), study.summary.get("at_threshold")
    blocks: list[Any] = []
    if estimate is None:
        bags = f"{words.PART_NAMES[study.part]} bags ({tested.counted()})"
        blocks.append(f"Of the {bags}, the labels order no two: ranking cannot be measured.")
    else:
        claim, pairs = next(text for kind, text in _CLAIMS.items() if isinstance(study.target, kind))
        pairs += " within a fold" if study.folds and isinstance(study.target, Binary) else ""
        share = Markup("<strong>{:.1%}</strong> of all {} {}").format(estimate.value, pairs, interval(estimate, ".1%"))
        blocks.append(Markup("On {}, {}{} in {}.").format(tested.counted(), _ROLES[study.part], claim, share))
    if estimate is not None and at is not None and study.thresholds is not None:
        positives, negatives = tested.positives, len(tested) - tested.positives
        detected, cleared = round(at["sensitivity"] * positives), round(at["specificity"] * negatives)
        text = f"At the threshold chosen on {study.thresholds.bags} {study.thresholds.kind} bags it found {detected}"
        blocks.append(f"{text} of {positives} positive bags and cleared {cleared} of {negatives} negative ones.")
    trained = [f"{len(study.parts[part])} {words.PART_NAMES[part]}" for part in ("train", "val") if part in study.parts]
    on = f"{study.trained_on} ({' and '.join(trained)} bags)" if trained else study.trained_on
    done = words.fold_words(study.about) if study.folds else f"trained on {on}"
    blocks.append(f"What was done: {study.method}, {done}.")
    if (baseline := _alternatives(study).get("baseline")) is not None:
        blocks.append(f"Next to a simple baseline, {baseline['method']}: {words.verdict(baseline)}.")
    return blocks


def _metrics(study: Study) -> list[Any]:
    """Return figures and metrics, and the comparisons with a baseline and covariates."""
    more = [*_compared(study), *ranking.instances_parts(study)]
    if study.figure(study.metric) is None:
        return ["There is nothing to rank.", *more]
    return [Pair(ranking.figures(study)), ranking.metrics(study), *ranking.tables(study), *more]


def _alternatives(study: Study) -> dict[str, Mapping[str, Any]]:
    """Return baseline and covariates alone, if they were compared on these bags, by their keys in summary.json."""
    about: Mapping[str, Any] = {} if study.external else study.about
    entries = {"baseline": about.get("baseline"), "covariates.alone": about.get("covariates", {}).get("alone")}
    return {key: entry for key, entry in entries.items() if entry and entry["part"] in study.parts}


def _compared(study: Study) -> list[Any]:
    """Return a table of the model, its baseline and its covariates alone on the same bags, and remarks on it."""
    about, compared, notes, rows = study.about, _alternatives(study), list[Any](), list[list[Any]]()
    covariates = ", ".join(about.get("covariates", {}).get("names", ()))
    if not study.external and "baseline" in about and about["baseline"] is None:
        why = about.get("baseline_note") or "this run was trained with `--no-baseline`"
        notes.append(Note(f"There is no baseline to compare the model with: {why}."))
    if not study.external and covariates and "covariates.alone" not in compared:
        notes.append(Note(f"The score takes the covariates {covariates}, which were not tested alone."))
    if not compared:
        return notes
    part = next(iter(compared.values()))["part"]
    metric, bags = study.metric, len(study.parts[part])
    titles = {"baseline": "the baseline", "covariates.alone": f"{covariates} alone"}
    for key, entry in compared.items():
        difference = Number(_estimate(entry, "difference", bags), "+.3f", f"{key}.difference")
        area = Number(_estimate(entry, metric, bags), key=f"{key}.{metric}")
        rows.append([f"{titles[key]}: {entry['method']}", area, difference])
        notes.append(Note(f"Next to {titles[key]}: {words.verdict(entry)}."))
    if "baseline" in compared:
        rows.insert(0, ["this model", _estimate(about[part], metric, bags), None])
        notes += [f"{words.capitalized(text)}." for text in words.baseline_notes(compared["baseline"])]
    caption = f"Compared on the same {bags} {words.PART_NAMES[part]} bags"
    return [Table(caption, ["method", words.METRIC_NAMES[metric], "this model minus it"], rows), *notes]


def _estimate(entry: Mapping[str, Any], name: str, bags: int) -> Estimate:
    low, high = entry[f"{name}_ci95"]
    low, high = (low, high) if low < high else (np.nan, np.nan)  # both rank alike: no interval
    return Estimate(entry[name], low, high, bags)


def _cautions(study: Study) -> list[Any]:
    """Return the limits, the checks of the predictions, and subgroups."""
    blocks: list[Any] = [Box("Limits of these results", _limits(study))]
    if study.figure(study.metric) is None:
        return blocks
    blocks += [*checks(study), *(subgroups(study, name, levels) for name, levels in study.columns.items())]
    if not study.columns:
        blocks.append(Note("`--subgroups COLUMN --table FILE` of `midam report` shows subgroups of any table."))
    return blocks


def _limits(study: Study) -> list[str]:
    limits = [f"{message}." for message in study.cautions]
    limits += [message for message in study.summary.get("warnings", []) if message not in limits]
    if study.part in ("val", "train"):
        limits.append(f"These are {words.PART_NAMES[study.part]} bags: the results are too good, and not a test.")
    if study.folds and isinstance(study.target, Binary):
        limits.append("The AUROC compares bags of one fold only: each fold was scored by another model.")
    elif study.folds:
        limits.append(f"The {study.metric_name} compares bags of all folds, though each was scored by another model.")
    kind = "Folds" if "out_of_fold" in study.parts else "One split"
    other = f"{kind} of one data set: `midam report RUN DATA` measures performance on other data."
    limits.append("These results apply to this other data, not to a third site." if study.external else other)
    if study.tested.groups is None:
        limits.append("No groups are named: if bags share patients, every interval here is too narrow. See `--groups`.")
    other = (
        "Where the labels have other shares or another range, all but the ranking differs: check and calibrate again."
    )
    limits.append(other)
    if study.about.get("selected", {}).get("weights") == "best":
        metric = study.training_metric
        limits.append(f"The epoch was chosen by its validation {metric}: results on the validation bags are too good.")
    return limits


def _bags(study: Study) -> list[Any]:
    """Return tables of the most wrong bags, and the command that explains their scores."""
    parts = ranking.wrong_bags(study)
    if not parts:
        return ["No bag can be called wrong: this needs predictions, and the run has none."]
    names = [row[0] for part in parts for block in part.blocks if isinstance(block, Table) for row in block.rows]
    blocks: list[Any] = ["Look at the worst: labels can be wrong too.", *parts]
    if study.tested.scores.ndim == 1 and names:  # the command explains one score per bag
        asked = " ".join(map(shlex.quote, list(dict.fromkeys(names))[:_ASKED]))
        command = f"{study.explain_command} --bags {asked}"
        blocks.append(Note(Markup("<code>{}</code> shows which instances decided.").format(command)))
    return blocks


def _made(study: Study) -> list[Any]:
    """Return the data, the training, and the settings."""
    nothing = Note("Reading the data left nothing out and warned of nothing.")
    left_out = Box("Left out, or warned of, when the data was read", study.left_out) if study.left_out else nothing
    training = _tried(study.about["auto"]) if "auto" in study.about else _training(study)
    settings = Part("Settings and versions", made(study.facts, study.changed, study.settings))
    return [Part("Data", [_data(study), left_out]), training, settings]


def _data(study: Study) -> Table:
    """Return a table of the bags of each part, and of all parts of the run; None for unknown counts."""
    parts = {words.PART_NAMES[name]: [bags] for name, bags in study.parts.items()}
    of_run = [bags for name, bags in study.parts.items() if name != "new"]
    rows = []
    for name, part in (parts | ({"all of the run": of_run} if len(of_run) > 1 else {})).items():
        groups = [bags.groups.tolist() for bags in part if bags.groups is not None]
        sizes = [int(bags.sizes.sum()) for bags in part if bags.sizes is not None]
        known = len(set().union(*groups)) if len(groups) == len(part) else None
        instances = Number(sum(sizes), ",.0f") if len(sizes) == len(part) else None
        positives = [sum(bags.positives for bags in part)] if isinstance(study.target, Binary) else []
        rows.append([name, sum(map(len, part)), *positives, known, instances])
    positive = ["positive"] if isinstance(study.target, Binary) else []
    return Table("Bags of each part", ["part", "bags", *positive, "groups", "instances"], rows)


def _training(study: Study) -> Part:
    """Return the learning curves."""
    history, figures, metric = study.history, list[Figure](), study.training_metric
    if not history:
        return Part("Training", ["The model was fitted in one step: there are no epochs to plot."])
    best = study.about.get("by_weights", {}).get("best", {}).get("epoch")
    for title, curve in learning_curves(history, best_epoch=best).items():
        figures.append(Figure(curve, f"{title} along the epochs."))
    selected = study.about.get("selected", {})
    text = f"The weights are those of epoch {selected.get('epoch')} ({selected.get('weights')}) of {len(history)}. The"
    text += f" training {metric} is computed from the scores of the training steps: a rough signal, not an evaluation."
    if (state := study.about.get("state")) is not None:
        text += f" What the training remembers of {state['bags']} training bags ranks them with an {metric} of"
        text += f" {state['tracked']:.3f}; the whole bags have {state['whole']:.3f}."
    return Part("Training", [Pair(figures), Note(text)])


def _tried(auto: Mapping[str, Any]) -> Part:
    """Return the methods that `auto` tried; `auto` is the entry of summary.json."""
    rows: list[list[Any]] = []
    for at, row in enumerate(auto["tried"]):
        outcome = "taken" if row["weight"] > 0 else "left out: significantly behind, or no better than chance"
        area = Number(estimate_of(row["auroc"], row.get("interval"), 0), key=f"auto.tried.{at}.auroc")
        weight = Number(row["weight"], ".2f", f"auto.tried.{at}.weight")
        rows.append([row["method"], area, weight, Number(row["seconds"], ".1f"), row["note"] or outcome])
    notes = []
    if auto["auroc"] is not None:
        mixed = Number(auto["auroc"], key="auto.auroc")
        rows.append(["the model", mixed, None, None, "for each fold chosen without it"])
        notes = [Note("Each method was trained on all inner folds but one and scored the remaining one.")]
    table = Table("What was tried", ["method", "AUROC, inner folds", "weight", "seconds", "result"], rows)
    return Part("What was tried: each method, and why this was taken", [auto["note"], table, *notes])
