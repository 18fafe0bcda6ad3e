"""The page of a run, or of an evaluation on other data, in five sections that are the same for all targets.

The answer; how well the model ranks; what to know before relying on it; the bags that were wrong; how it was made.
"""

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate.proportions import Estimate, estimate_of
from midam.report import words
from midam.report.figures import ORANGE, Row, learning_panels, plot_forest, plot_learning
from midam.report.label_facts import label_facts, rarest
from midam.report.page.binary import BinaryPage
from midam.report.page.classes import ClassesPage, LabelsPage
from midam.report.page.ordered import GradesPage, NumbersPage, SurvivalPage
from midam.report.page.render import (
    Box,
    Figure,
    Note,
    Number,
    Pair,
    Part,
    Section,
    Table,
    interval,
    made,
    render,
)
from midam.report.page.target_page import MOST_NAMES, ScoredBags, Study, TargetPage, instances_parts
from midam.report.pseudonyms import NAMES, PSEUDONYMS
from midam.targets import Target

_PAGES = (BinaryPage, ClassesPage, LabelsPage, GradesPage, NumbersPage, SurvivalPage)
# A validation with fewer bags of a class, or events, says little (Collins et al. 2016, Statistics in Medicine 35:214).
_FEW = 100
_ASKED = 4  # bags in the command `midam explain`


def page_class(target: Target) -> type[TargetPage]:
    """Return what a target, or else its nearest base, adds to the page; for other targets only their metrics."""
    names = [kind.__dict__.get("name") for kind in type(target).__mro__]
    return next((page for name in names for page in _PAGES if page.of_target == name), TargetPage)


def report_page(study: Study) -> str:
    """Return the HTML of the page."""
    page = page_class(study.target)(study)
    sections = [
        Section("metrics", "How well it ranks", _metrics(study, page)),
        Section("caution", "Before you rely on it", _cautions(study, page)),
        Section("bags", "The bags: which were wrong", _bags(study, page)),
        Section("made", "How it was made: data, training, settings, versions", _made(study)),
    ]
    names = PSEUDONYMS if study.pseudonyms else NAMES
    answer = Section("answer", "The answer", [*_answer(study, page), Note(names)])
    kicker, title = "Report of a run", f"{study.data}: {study.method}"
    if study.external:
        kicker, title = "External evaluation", f"Trained on {study.trained_on}, tested on {study.data}"
    return render("page.html", title=title, kicker=kicker, sections=[answer, *sections])


def _answer(study: Study, page: TargetPage) -> list[Any]:
    """Return the answer in one sentence with its interval, and what was done."""
    estimate = study.figure(study.metric)
    roles = {
        "test": "that played no part in training",
        "new": "from data that the run did not use",
        "out_of_fold": "each scored by a model that has not seen it",
        "val": f"which chose {page.validates}, so that this is no test",
        "train": "which trained the model, so that this is no test",
    }
    lead = f"Of the {words.PART_NAMES[study.part]} bags ({study.tested.counted()}), the labels order no two: "
    blocks: list[Any] = [f"{lead}ranking cannot be measured."]
    if page.ranked and estimate:
        pairs = f"{page.pairs} within a fold" if study.folds and page.of_target == "binary" else page.pairs
        share = Markup("<strong>{:.1%}</strong> of all {} {}").format(estimate.value, pairs, interval(estimate, ".1%"))
        lead = f"On {study.tested.counted()}, {roles[study.part]}{page.claim} in "
        blocks = [Markup("{}{}.").format(lead, share), page.second()]
    counts = {part: plural(len(bags), f"{words.PART_NAMES[part]} bag") for part, bags in study.parts.items()}
    trained = [counts[part] for part in ("train", "val") if part in counts]
    on = f"{study.trained_on} ({' and '.join(trained)})" if trained else study.trained_on
    done = words.fold_words(study.about) if study.folds else f"trained on {on}"
    blocks.append(f"What was done: {study.method}, {done}.")
    if (baseline := study.compared.get("baseline")) is not None:
        blocks.append(f"Next to a simple baseline, {baseline['method']}: {words.verdict_words(baseline)}.")
    return [block for block in blocks if block]


def _metrics(study: Study, page: TargetPage) -> list[Any]:
    """Return figures and metrics, and the comparisons with a baseline, covariates and the run's test bags."""
    if not page.ranked:
        return ["There is nothing to rank.", *_compared(study), *instances_parts(study)]
    own_test = _own_test(study, page)
    more = [*page.tables(), *([] if own_test is None else [own_test]), *_compared(study)]
    return [Pair(page.figures()), page.metrics(), *more, *instances_parts(study)]


def _own_test(study: Study, page: TargetPage) -> Table | None:
    """Return a table that compares new bags with the run's test bags."""
    test, new = study.parts.get("test"), study.tested
    if not study.external or test is None or len(test) == 0:
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


def _compared(study: Study) -> list[Any]:
    """Return a table of the model, its baseline and its covariates alone on the same bags, and remarks on it."""
    about, compared, notes, rows = study.about, study.compared, list[Any](), list[list[Any]]()
    covariates = ", ".join(about.get("covariates", {}).get("names", ()))
    titles = {"baseline": "baseline", "covariates.alone": f"{covariates} alone"}
    if not study.external and "baseline" in about and about["baseline"] is None:
        why = about.get("baseline_note") or "this run was trained with `--no-baseline`"
        notes.append(Note(f"There is no baseline to compare the model with: {why}."))
    if not study.external and covariates and "covariates.alone" not in compared:
        notes.append(Note(f"The score takes the covariates {covariates}, which were not tested alone."))
    if not compared:
        return notes
    part = next(iter(compared.values()))["part"]
    metric, bags = study.metric, len(study.parts[part])
    for key, entry in compared.items():
        difference = Number(_estimate(entry, "difference", bags), "+.3f", f"{key}.difference")
        area = Number(_estimate(entry, metric, bags), key=f"{key}.{metric}")
        rows.append([f"{titles[key]}: {entry['method']}", area, difference])
    if "covariates.alone" in compared:
        notes.append(Note(f"Next to {covariates} alone: {words.verdict_words(compared['covariates.alone'])}."))
    if "baseline" in compared:
        rows.insert(0, ["this model", _estimate(about[part], metric, bags), None])
        fitted = (
            "Cox regression" if compared["baseline"]["method"].endswith("-cox") else "500 trees, with nothing tuned"
        )
        notes.append(
            Note(f"The baseline is simple: a few statistics of each bag in {fitted}, on the same training bags.")
        )
        notes += [f"{words.capitalized(text)}." for text in words.baseline_notes(about) if text]
    caption = f"Compared on the same {bags} {words.PART_NAMES[part]} bags"
    return [Table(caption, ["method", words.METRIC_NAMES[metric], "this model minus it"], rows), *notes]


def _estimate(entry: Mapping[str, Any], name: str, bags: int) -> Estimate:
    low, high = entry[f"{name}_ci95"]
    low, high = (low, high) if low < high else (np.nan, np.nan)  # both rank alike: no interval
    return Estimate(entry[name], low, high, bags)


def _cautions(study: Study, page: TargetPage) -> list[Any]:
    """Return warnings, the checks of the target, and subgroups."""
    blocks: list[Any] = [Box("Limits of these results", _limits(study, page))]
    if page.ranked:
        blocks += page.checks()
        blocks += [_subgroup(study, page, name, levels) for name, levels in study.columns.items()]
        if not study.columns:
            blocks.append(Note("`--subgroups COLUMN --table FILE` of `midam report` shows subgroups of any table."))
    return blocks


def _limits(study: Study, page: TargetPage) -> list[str]:
    limits = [f"{message}." for message in study.cautions]
    if study.part in ("val", "train"):
        limits.append(f"These are {words.PART_NAMES[study.part]} bags: the results are too good, and not a test.")
    if page.of_target != "binary":  # whose intervals on the page, unlike those of the summary, respect groups
        limits += [message for message in study.summary.get("warnings", []) if message not in limits]
    fewest = rarest(study.target, study.tested.values)
    if fewest is not None and fewest < _FEW:
        of_them = "events" if page.of_target == "survival" else "bags of the rarest class or label"
        limits.append(f"{fewest} {of_them}: calibration, subgroups and all that involves them rest on few.")
    kind = "Folds" if "out_of_fold" in study.parts else "One split"
    other = f"{kind} of one data set: `midam report RUN DATA` measures performance on other data."
    if study.folds and page.of_target == "binary":
        limits.append("The AUROC compares bags of one fold only: each fold was scored by another model.")
    elif study.folds:
        limits.append(f"The {study.metric_name} compares bags of all folds, though each was scored by another model.")
    limits.append("These results apply to this other data, not to a third site." if study.external else other)
    if study.tested.groups is None:
        limits.append("No groups are named: if bags share patients, every interval here is too narrow. See `--groups`.")
    limits.append(
        "Where the labels have other shares or another range, all but the ranking differs: check and calibrate again."
    )
    if study.about.get("selected", {}).get("weights") == "best":
        metric = study.training_metric
        limits.append(f"The epoch was chosen by its validation {metric}: results on the validation bags are too good.")
    return limits


def _subgroup(study: Study, page: TargetPage, name: str, levels: NDArray[np.str_]) -> Part:
    """Return the metrics of the levels of a column, and their differences to the largest level."""
    tested, metric, total = study.tested, study.metric_name, study.figure(study.metric)
    table, rows = page.subgroup_table(name, tested, levels, caption=f"Metrics by {name}, with 95% intervals")
    rows.append(Row(f"all (n = {len(tested)})", total, "D", ORANGE))
    forest = plot_forest(rows, metric, reference=total and total.value)
    pairs = set() if tested.groups is None else set(zip(tested.groups.tolist(), levels.tolist()))
    note = "Differences are to the largest level (Zou and Donner), not corrected for the number of subgroups."
    if len({group for group, _ in pairs}) < len(pairs):
        note += " Some groups have bags in several levels, so the levels are not independent."
    figure = Figure(forest, f"{metric} by {name}.", "The dashed line is that of all bags.")
    return Part(f"Subgroups: by {name}", [figure, table, Note(note)])


def _bags(study: Study, page: TargetPage) -> list[Any]:
    """Return tables of the most wrong bags, and the command that explains their scores."""
    parts = page.errors()
    if not parts:
        return ["No bag can be called wrong: this needs predictions, and the run has none."]
    tables = [block for part in parts for block in part.blocks if isinstance(block, Table)]
    names = [row[0] for table in tables for row in table.rows]
    blocks: list[Any] = ["Look at the worst: labels can be wrong too.", *parts]
    if study.tested.scores.ndim == 1:  # the command explains one score per bag
        asked = " ".join(map(shlex.quote, list(dict.fromkeys(names))[:_ASKED]))
        command = f"{study.explain_command} --bags {asked}"
        blocks += [Note(Markup("<code>{}</code> shows which instances decided.").format(command))] if asked else []
    return blocks


def _made(study: Study) -> list[Any]:
    """Return the data, the training, and the settings."""
    left_out = [Box("Left out, or warned of, when the data was read", study.left_out)]
    nothing = [Note("Reading the data left nothing out and warned of nothing.")]
    data = Part("Data", [_data(study), *(left_out if study.left_out else nothing)])
    training = _tried(study.about["auto"]) if "auto" in study.about else _training(study)
    return [data, training, Part("Settings and versions", made(study.facts, study.changed, study.settings))]


def _data(study: Study) -> Table:
    """Return a table of the bags of each part, and of all parts of the run; None for unknown counts."""
    parts = {words.PART_NAMES[name]: [bags] for name, bags in study.parts.items()}
    of_run = [bags for name, bags in study.parts.items() if name != "new"]
    rows = []
    for name, part in (parts | ({"all of the run": of_run} if len(of_run) > 1 else {})).items():
        values = np.concatenate([bags.values for bags in part])
        groups = [bags.groups.tolist() for bags in part if bags.groups is not None]
        sizes = [int(bags.sizes.sum()) for bags in part if bags.sizes is not None]
        known = len(set().union(*groups)) if len(groups) == len(part) else None
        instances = Number(sum(sizes), ",.0f") if len(sizes) == len(part) else None
        rows.append([name, len(values), *_facts(study, values).values(), known, instances])
    heads = ["part", "bags", *_facts(study, study.tested.values), "groups", "instances"]
    return Table("Bags of each part", heads, rows)


def _facts(study: Study, values: NDArray[Any]) -> dict[str, Any]:
    """Return facts about the labels of some bags; none if there are many classes."""
    facts = label_facts(study.target, values)
    return {name: Number(fact, ".4g") for name, fact in facts.items()} if len(facts) <= MOST_NAMES else {}


def _training(study: Study) -> Part:
    """Return the learning curves."""
    history, figures = study.history, list[Figure]()
    if not history:
        return Part("Training", ["The model was fitted in one step: there are no epochs to plot."])
    for title, lines in learning_panels(history):
        if any(row.get(key) is not None for key in lines for row in history):
            best = study.about.get("by_weights", {}).get("best", {}).get("epoch")
            curve = plot_learning(history, (title, lines), best_epoch=best)
            figures.append(Figure(curve, f"{title} along the epochs."))
    selected, metric = study.about.get("selected", {}), study.training_metric
    text = (
        f"The weights are those of epoch {selected.get('epoch')} ({selected.get('weights')}) of {len(history)}. "
        f"The training {metric} is computed from the scores of the training steps: a rough signal, not an evaluation."
    )
    if (state := study.about.get("state")) is not None:
        text += (
            f" What the training remembers of {state['bags']} training bags ranks them with an {metric} of "
            f"{state['tracked']:.3f}; the whole bags have {state['whole']:.3f}."
        )
    return Part("Training", [Pair(figures), Note(text)])


def _tried(auto: Mapping[str, Any]) -> Part:
    """Return the methods that `auto` tried; `auto` is the entry of summary.json."""
    rows: list[list[Any]] = []
    for at, row in enumerate(auto["tried"]):
        outcome = "taken" if row["weight"] > 0 else "left out: significantly behind, or no better than chance"
        estimate = estimate_of(row["auroc"], row.get("interval"), 0)
        weight = Number(row["weight"], ".2f", f"auto.tried.{at}.weight")
        area = Number(estimate, key=f"auto.tried.{at}.auroc")
        rows.append([row["method"], area, weight, Number(row["seconds"], ".1f"), row["note"] or outcome])
    notes = []
    if auto["auroc"] is not None:
        mixed = Number(auto["auroc"], key="auto.auroc")
        rows.append(["the model", mixed, None, None, "for each fold chosen without it"])
        notes = [Note("Each method was trained on all inner folds but one and scored the remaining one.")]
    table = Table("What was tried", ["method", "AUROC, inner folds", "weight", "seconds", "result"], rows)
    return Part("What was tried: each method, and why this was taken", [auto["note"], table, *notes])
