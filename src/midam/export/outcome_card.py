"""What a model card says of a run whose bags are ranked by more than 0 and 1."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from midam.evaluate.decisions import RISKS
from midam.report.words import MERITS, PART_NAMES
from midam.runs.folder import SPLITS
from midam.runs.loaded import LoadedRun

_MARKS = re.compile(r"[\\\[\]*!]")
_MOST, _NAMED = 50, 20  # classes in a table, and in a sentence
# Figures in the unit of the label; what no hub ranks models by.
_SCALED, _FACTS = ("mae", "mae_constant", "median_follow_up"), ("events", "median_follow_up", "mae_constant")


class Said(NamedTuple):
    """What is said of a target: what the scores do, what they are told as, columns of the results beside the merit."""

    ranks: str
    told: str
    figures: tuple[tuple[str, str], ...]


_SAID = {
    "multiclass": Said(
        "gives a score in [0, 1] for each of {count} classes ({names}), which ranks bags of it above the others",
        "a probability of each class, and the most probable one",
        (("accuracy", "accuracy"), ("balanced accuracy", "balanced_accuracy")),
    ),
    "multilabel": Said(
        "gives a score in [0, 1] for each of {count} labels ({names}), which ranks bags with it above those without",
        "a probability of each label",
        (("weighted AUROC", "auroc_weighted"),),
    ),
    "ordinal": Said(
        "gives one score in [0, 1] that follows {count} grades, from low to high: {names}",
        "a grade",
        (("kappa", "quadratic_kappa"), ("accuracy", "accuracy"), ("Kendall's tau-b", "kendall_tau")),
    ),
    "continuous": Said(
        "gives one score in [0, 1] that follows a number ({names}): the larger, the higher",
        "the number",
        (("Spearman's rho", "spearman"), ("mean absolute error", "mae"), ("that of the median", "mae_constant")),
    ),
    "survival": Said(
        "gives one score in [0, 1], the risk: the higher, the earlier the event",
        "a group of risk (low, middle or high)",
        (("C (IPCW)", "c_ipcw"), ("events", "events"), ("median follow-up", "median_follow_up")),
    ),
}
_OTHER = Said("gives scores in [0, 1] that rank bags by their label", "what their target says", ())
# Names of the hub for the figures that it knows.
_OF_HUB = {"auroc_macro": "roc_auc", "accuracy": "accuracy", "mae": "mae", "spearman": "spearmanr"}


def outcome_kind(run: LoadedRun, *, images: bool) -> str:
    """The task, as the Hugging Face hub calls it."""
    if run.target.name in ("continuous", "survival"):
        return "other" if images else "tabular-regression"
    return "image-classification" if images else "tabular-classification"


def outcome_metrics(run: LoadedRun, found: Mapping[str, Any]) -> list[tuple[str, str, float | None]]:
    """Type, name and value of each figure of some bags."""
    keys = [(MERITS.get(run.target.metric, run.target.metric), run.target.metric), *_said(run).figures]
    return [(_OF_HUB.get(key, key), name, found.get(key)) for name, key in keys if key not in _FACTS]


def outcome_purpose(run: LoadedRun) -> tuple[str, str]:
    """What the model gives of a bag, and what is told of that."""
    said, names = _said(run), ", ".join(f"`{plain(name)}`" for name in run.target.names[:_NAMED])
    names += f" and {more} more, see config.json" if (more := len(run.target.names) - _NAMED) > 0 else ""
    ranks = said.ranks.format(count=len(run.target.names), names=names)
    if run.decision is None:
        return ranks, "The run had no validation bags that suffice: nothing is told of the scores but their order."
    return ranks, f"From the scores `midam predict` tells {said.told}, by what was fitted on the validation bags."


def outcome_results(run: LoadedRun, summary: Mapping[str, Any]) -> list[str]:
    """The figures of each split, and of the classes or labels of the first."""
    merit, said = run.target.metric, _said(run)
    heads = ["bags", "n", f"{MERITS.get(merit, merit)} (95% CI)", *(name for name, _ in said.figures)]
    parts = {name: summary[name] for name in SPLITS if name in summary}
    rows = [
        [
            PART_NAMES[name],
            str(of["bags"]),
            with_interval(of, merit),
            *(with_interval(of, key) for _, key in said.figures),
        ]
        for name, of in parts.items()
    ]
    first, own = next(iter(parts.items()))
    method = own.get(f"{merit}_method")
    text = f"The interval of the {MERITS.get(merit, merit)} is by {prose(method or 'no method')}."
    found = ["## Results", _table(heads, rows), f"{text} Training bags say nothing about new ones."]
    if "per_class" in own:
        rows = [
            [prose(name), str(of["positives"]), str(of["negatives"]), with_interval(of, "auroc"), number(of["ap"])]
            for name, of in list(own["per_class"].items())[:_MOST]
        ]
        heads = [f"{PART_NAMES[first]} bags of", "with it", "without", "AUROC (95% CI)", "average precision"]
        found.append(_table(heads, rows))
    if "risk_groups" in own:
        rows = [
            [RISKS[row["group"]], str(row["bags"]), str(row["events"]), number(row["median_time"], ".4g")]
            for row in own["risk_groups"]
        ]
        found.append(_table([f"{PART_NAMES[first]} bags of risk", "n", "events", "median time"], rows))
    return found


def outcome_limits(split: str, found: Mapping[str, Any]) -> list[str]:
    """What the figures of some bags rest on."""
    events = found.get("events")
    return [] if events is None else [f"The figures rest on {events} events of the {PART_NAMES[split]} bags."]


def number(value: float | None, form: str = ".3f") -> str:
    """A number, or a dash."""
    return (
        "-"
        if value is None or not math.isfinite(value)
        else f"{value}"
        if isinstance(value, int)
        else f"{value:{form}}"
    )


def with_interval(found: Mapping[str, Any], name: str) -> str:
    """A figure with its interval, where it has one."""
    interval = found.get(f"{name}_ci95")
    between = f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    return f"{number(found.get(name), '.4g' if name in _SCALED else '.3f')}{between}"


def plain(text: object) -> str:
    """A name as a code span or the cell of a table can hold it: it comes from data."""
    return " ".join(str(text).replace("`", "'").replace("|", "/").split())


def prose(text: object) -> str:
    """Text that may hold names of the data, as a paragraph shows it: nothing in it is a link, an image or a mark."""
    return _MARKS.sub(r"\\\g<0>", plain(text))


def _said(run: LoadedRun) -> Said:
    return _SAID.get(run.target.name, _OTHER)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(heads)}", *lines[1:]])
