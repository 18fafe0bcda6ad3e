"""Names and numbers in the form of figures and pages, and the comparison of a run with its baseline in words."""

import ast
import json
import re
import shlex
from collections.abc import Collection, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from midam.settings import Settings

PART_NAMES = {"test": "test", "out_of_fold": "out-of-fold", "val": "validation", "train": "training", "new": "new"}
METRIC_NAMES = {"auroc": "AUROC", "auroc_macro": "macro AUROC", "c_index": "C-index"}
INSTANCE_NAMES = {
    **{"auroc_in_bag": "AUROC in a bag", "auprc_in_bag": "average precision in a bag"},
    **{"hit_rate": "hit rate of the top instance", "auroc": "AUROC, pooled", "auprc": "average precision, pooled"},
}
# Flags whose name differs from the parameter of `midam.data.read_bags`.
_RENAMED = {"site_column": ("folds",)}
_FLAGS = frozenset([*Settings.names(), "plugin", "devices", "timeout", "metrics", "jobs", "top"])
_BEHIND = "the model is behind"


def metric_of_history(history: Sequence[Mapping[str, Any]]) -> str:
    """Return the main metric of the rows of a training, a key of `METRIC_NAMES`; AUROC without rows.

    Examples
    --------
    >>> metric_of_history([{"epoch": 1, "train_c_index": 0.6, "val_c_index": None}])
    'c_index'
    """
    return next((name for name in METRIC_NAMES if history and f"val_{name}" in history[0]), "auroc")


def metric_of_part(part: Container[Any]) -> str:
    """Return the main metric of a part of a summary, of its baseline or of a table, a key of `METRIC_NAMES`.

    Examples
    --------
    >>> metric_of_part({"bags": 40, "c_index": 0.7})
    'c_index'
    """
    return next(name for name in METRIC_NAMES if name in part)


def capitalized(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def shortened(name: str, limit: int) -> str:
    """Shorten a name to `limit` characters by leaving out its middle (names often differ at the end); "" below 4.

    Examples
    --------
    >>> shortened("north_clinic_scan_07", 10).split("\N{HORIZONTAL ELLIPSIS}"), shortened("scan_07", 10)
    (['nort', 'an_07'], 'scan_07')
    """
    if len(name) <= limit:
        return name
    return f"{name[: limit // 2 - 1]}\N{HORIZONTAL ELLIPSIS}{name[-(limit - limit // 2) :]}" if limit > 3 else ""


def signed(value: float, form: str = ".3g") -> str:
    """Format a number with a true minus sign.

    Examples
    --------
    >>> signed(-0.25) == "\N{MINUS SIGN}0.25", signed(0.25, "+.3g")
    (True, '+0.25')
    """
    return f"{value:{form}}".replace("-", "\N{MINUS SIGN}")


def form_apart(scores: ArrayLike, threshold: float | None, *, least: int = 4) -> str:
    """Return a format with enough decimals, at least `least`, to distinguish each score from the threshold.

    In this format, a score below the threshold never looks equal to it.

    Examples
    --------
    >>> form_apart(0.49996, 0.5), form_apart([0.2, 0.49996], 0.5), form_apart(0.2, 0.5), form_apart(0.5, 0.5)
    ('.5f', '.5f', '.4f', '.4f')
    >>> form_apart(1e-40, 2e-40)  # all digits
    '.17g'
    """
    if threshold is None:
        return f".{least}f"
    values = np.unique(np.asarray(scores, dtype=np.float64))
    nearest = [float(value) for value in (*values[values < threshold][-1:], *values[values > threshold][:1])]
    for form in (f".{decimals}f" for decimals in range(least, 18)):
        if all(float(f"{value:{form}}") != float(f"{threshold:{form}}") for value in nearest):
            return form
    return ".17g"


def fold_words(summary: Mapping[str, Any]) -> str:
    """Return a sentence on the cross-validation of a run."""
    bags = summary["out_of_fold"]["bags"]
    unit = "bags" if "groups" not in summary["out_of_fold"] else "groups"
    folds, seen = f"{summary['folds']} folds of {unit}", "not seen it"
    if summary.get("sites"):
        folds, seen = f"{summary['folds']} folds, the sites of {summary['sites']['column']}", "not seen its site"
    scored = f"each of the {bags} bags is scored by a model that has {seen}"
    return f"cross-validated in {folds}: {scored}; the model in the folder is trained on all"


def instance_words(entry: Mapping[str, Any]) -> str:
    """Return how well contributions find the labeled instances of some bags, from `InstanceMetrics.entries`.

    Examples
    --------
    >>> known = {"bags": 20, "instances": 99, "positives": 9, "hit_rate": 0.9, "hit_rate_ci95": [0.7, 1.0]}
    >>> known |= {"hit_rate_bags": 9, "auroc_in_bag": None, "auroc": 0.5, "auroc_ci95": [0.4, 0.6]}
    >>> instance_words({**known, "chance": {"hit_rate": 0.25}})
    'labeled instances: the top instance is positive in 90.0% of 9 positive bags (95% CI 70.0% to 100.0%; chance 25.0%)'
    """
    texts = []
    if entry["hit_rate"] is not None:
        value, (low, high), chance = entry["hit_rate"], entry["hit_rate_ci95"], entry["chance"]["hit_rate"]
        texts.append(f"the top instance is positive in {value:.1%} of {entry['hit_rate_bags']} positive bags")
        texts[-1] += f" (95% CI {low:.1%} to {high:.1%}; chance {chance:.1%})"
    if entry["auroc_in_bag"] is not None:
        value, (low, high) = entry["auroc_in_bag"], entry["auroc_in_bag_ci95"]
        texts.append(f"AUROC in a bag {value:.3f} (95% CI {low:.3f} to {high:.3f})")
    return f"labeled instances: {', '.join(texts) or 'no bag holds both labels'}"


def instances_of(entries: Mapping[str, Any], part: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return the part whose labeled instances tell most about a part of a summary, and their entry; None without.

    Examples
    --------
    >>> instances_of({"score": "contribution", "train": {"bags": 3}}, "out_of_fold")
    ('train', {'bags': 3})
    """
    known = {name: entry for name, entry in entries.items() if isinstance(entry, Mapping)}
    name = part if part in known else next(iter(known), None)
    return None if name is None else (name, known[name])


def mean_words(summary: Mapping[str, Any]) -> str | None:
    """Return what the score of a run averages, from its summary.json; None for a single scorer.

    Examples
    --------
    >>> mean_words({"members": 3})
    'the mean of 3 scorers trained from different seeds'
    >>> rows = [{"method": "a", "weight": 0.7}, {"method": "b", "weight": 0.3}, {"method": "c", "weight": 0.0}]
    >>> mean_words({"members": 4, "auto": {"tried": rows}})
    'a weighted mean of 2 methods (4 scorers)'
    """
    members = summary.get("members", 1)
    methods = sum(row["weight"] > 0 for row in summary.get("auto", {}).get("tried", ()))
    if methods > 1:
        return f"a weighted mean of {methods} methods ({members} scorers)"
    return f"the mean of {members} scorers trained from different seeds" if members > 1 else None


def verdict(entry: Mapping[str, Any]) -> str:
    """Return what the interval of the difference says of a model and of what it is compared with.

    Examples
    --------
    >>> verdict({"difference_ci95": [0.01, 0.2]}), verdict({"difference_ci95": [-0.3, 0.01]})
    ('the model is ahead', 'it is unknown which of the two is better')
    """
    low, high = entry["difference_ci95"]
    if low == high == 0:
        return "both rank these bags in the same way"
    return "the model is ahead" if low > 0 else _BEHIND if high < 0 else "it is unknown which of the two is better"


def result_words(entry: Mapping[str, Any], name: str = "baseline") -> str:
    """Return a console line with the metric of what a model is compared with, their difference, and the verdict."""
    metric, (low, high) = metric_of_part(entry), entry["difference_ci95"] or (0, 0)
    bounds = "" if low == high else f" (95% CI {low:+.3f} to {high:+.3f})"
    result = f": {verdict(entry)}" if entry["difference_ci95"] else ""
    text = f"{name} {METRIC_NAMES[metric]} {entry[metric]:.3f} ({entry['method']})"
    return f"{text}; model minus {name} {entry['difference']:+.3f}{bounds}{result}"


def covariate_words(covariates: Mapping[str, Any]) -> list[str]:
    """Return lines on the covariates of a run and on their result alone, from entry `covariates` of summary.json."""
    kinds = ", ".join(f"{name} ({kind})" for name, kind in zip(covariates["names"], covariates["kinds"], strict=True))
    lines, alone = [f"covariates: {kinds}"], covariates["alone"]
    if alone is None:
        return [*lines, "covariates alone were not tested: there are no test or validation bags to do it on"]
    return [*lines, result_words(alone, "covariates alone")]


def baseline_notes(baseline: Mapping[str, Any]) -> list[str]:
    """Return a caution about a comparison on validation bags, and advice if the baseline is better.

    Examples
    --------
    >>> baseline_notes({"part": "val", "difference_ci95": [0.01, 0.2]})
    ['the baseline is compared on validation bags, which favors the model: they helped to choose it']
    """
    notes = []
    if baseline["part"] == "val":
        notes.append("the baseline is compared on validation bags, which favors the model: they helped to choose it")
    if verdict(baseline) == _BEHIND:
        text, name = "the simple baseline ranks these bags significantly better than the model", baseline["method"]
        compare, train = f"midam compare DATA --methods midam,{name}", f"midam fit DATA --method {name}"
        notes.append(f"{text}; compare both on many splits, `{compare}`, or train it, `{train}`")
    return notes


def flag_words(name: str, value: Any = True) -> list[str]:
    """Return a setting as words of a command line.

    Examples
    --------
    >>> flag_words("label_column", ["er", "pr"]), flag_words("volume"), flag_words("drop_empty", False)
    (['--label-column', 'er,pr'], ['--volume'], ['--drop-empty', 'false'])
    """
    return [f"--{name.replace('_', '-')}", *([] if value is True else [value_text(value)])]


def value_text(value: Any) -> str:
    """Return the value of a setting for the command line: lists with commas, texts unchanged, other values as JSON."""
    if isinstance(value, list | tuple) and value:
        value = ",".join(f'"{part}"' if "," in str(part) else str(part) for part in value)
    return value if isinstance(value, str) and value else json.dumps(value)


def as_flags(message: object, names: Collection[str] = _FLAGS, *, mark: str = "") -> str:
    """Return a message whose parameters in `names` are written as command-line flags, with `mark` around each.

    Examples
    --------
    >>> as_flags("leave it out with `ignore=['a', 'b']`, or take `impute='zero'`")
    'leave it out with --ignore a,b, or take --impute zero'
    """

    def flag(match: re.Match[str]) -> str:
        known, value = [name for name in _RENAMED.get(match[1], match.groups()[:1]) if name in names], match[2]
        if not known:
            return match[0]
        with suppress(ValueError, SyntaxError):
            value = True if value is None else ast.literal_eval(value)
        return " or ".join(f"{mark}{shlex.join(flag_words(name, value))}{mark}" for name in known)

    return re.sub(r"`(\w+)(?:=([^`]*))?`", flag, str(message))
