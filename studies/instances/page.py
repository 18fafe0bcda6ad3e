"""The page of the study of instance scores: its rule, applied, and its tables and figure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.report.figures import new_figure
from studies.drawing import save_figure
from studies.instances.scores import SCORES
from studies.page import section, table
from studies.split_statistics import Estimate, paired_interval

Tables = Mapping[str, Mapping[str, NDArray[np.float64]]]

DEFAULT = "contribution"
CHOICES = tuple(score for score in SCORES if score != "gradient x input")
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#202020")
_AUROC, _PRECISION, _HIT, _POOLED = range(4)


class Verdict(NamedTuple):
    """What the rule decides: the choice with each set left out, the gain on these sets, and the new default."""

    chosen: dict[str, str]
    overall: str
    gain: Estimate
    default: str


def means(tables: Tables, figure: int = _AUROC) -> dict[str, NDArray[np.float64]]:
    """Return the mean of a figure over methods and repeats, for each set, [scores]; NaN where it is not defined."""
    return {name: np.array([_mean(part) for part in _stacked(methods, figure)]) for name, methods in tables.items()}


def _stacked(methods: Mapping[str, NDArray[np.float64]], figure: int) -> list[list[float]]:
    """Return, for each score, its mean over the repeats of each method."""
    known = [values for values in methods.values() if len(values)]
    return [[_mean(values[:, score, figure]) for values in known] for score in range(len(SCORES))]


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def verdict(tables: Tables) -> Verdict:
    """Apply the rule of decision.

    Examples
    --------
    >>> low, high = np.full((1, len(SCORES), 4), 0.6), np.full((1, len(SCORES), 4), 0.6)
    >>> high[:, SCORES.index("value")] = 0.9
    >>> found = verdict({"a": {"m": high}, "b": {"m": high + 0.01}, "c": {"m": high - 0.01}})
    >>> found.default, verdict({"a": {"m": low}, "b": {"m": low}}).default
    ('value', 'contribution')
    """
    of_set = means(tables)
    places = [SCORES.index(score) for score in CHOICES]
    rows = np.array([of_set[name][places] for name in tables])
    chosen = {name: _best(np.delete(rows, at, axis=0)) for at, name in enumerate(tables)}
    overall, now = _best(rows), CHOICES.index(DEFAULT)
    gained = np.array([row[CHOICES.index(chosen[name])] for name, row in zip(tables, rows)])
    gain = paired_interval(gained, rows[:, now])
    most = sum(score == overall for score in chosen.values()) * 2 > len(chosen)
    return Verdict(chosen, overall, gain, overall if most and gain.low > 0 else DEFAULT)


def _best(rows: NDArray[np.float64]) -> str:
    """Return the choice with the highest mean over sets; of equal ones the default, or the first."""
    mean = rows.mean(axis=0)
    best = np.flatnonzero(mean == mean.max())
    at = CHOICES.index(DEFAULT)
    return CHOICES[at if at in best else int(best[0])]


def body(tables: Tables, rows: Sequence[Mapping[str, Any]], figure: str) -> Iterator[str]:
    """Lines of the page, from `midam.evaluate.labeled_instances` figures by set and method, [repeats, scores, 4]."""
    found = verdict(tables)
    yield from section("What the rule decides", _decided(found), [f"![AUROC in a bag by score and set]({figure})"])
    left = [[name, score, _difference(tables, name, score)] for name, score in found.chosen.items()]
    yield from section("Chosen with each set left out", table(["set left out", "chosen", "minus contribution"], left))
    yield from section(
        "Every score on every set",
        "AUROC in a bag: the mean over bags that hold both labels, over methods and repeats. 0.5 is chance, and the "
        "equal weights of mean pooling. In `absence`, weights point at the instances that speak against the class.",
        table(["score", *tables, "mean"], _by_set(tables, _AUROC)),
        *_limits(tables, rows),
    )
    yield from section(
        "By pooling and estimator",
        "AUROC in a bag, the mean over the sets. The last column is the test AUROC of the bags.",
        table(["method", *SCORES, "bags"], _by_method(tables, rows)),
    )
    for title, at in (("Average precision in a bag", _PRECISION), ("Hit rate of the top instance", _HIT)):
        yield from section(title, table(["score", *tables, "mean"], _by_set(tables, at)))
    text = "AUROC of all instances of all bags on one scale: it asks whether numbers of two bags can be compared."
    yield from section("Pooled over bags", text, table(["score", *tables, "mean"], _by_set(tables, _POOLED)))


def _decided(found: Verdict) -> str:
    """Return the outcome of the rule in words."""
    agreed = sum(score == found.overall for score in found.chosen.values())
    times = f"{agreed} of {len(found.chosen)} times"
    lead = (
        f"With each set left out in turn, '{found.overall}' is chosen {times}; it is also the best over all sets. On "
        f"the sets left out, the chosen numbers differ from '{DEFAULT}' by {found.gain:+} in AUROC in a bag. "
    )
    if found.default == DEFAULT:
        return f"{lead}**By the rule, `midam explain` keeps ranking by {DEFAULT}.**"
    return f"{lead}**By the rule, `midam explain` ranks by {found.default}.**"


def _difference(tables: Tables, name: str, score: str) -> str:
    values = means(tables)[name]
    return f"{values[SCORES.index(score)] - values[SCORES.index(DEFAULT)]:+.3f}"


def _by_set(tables: Tables, figure: int) -> list[list[str]]:
    of_set = means(tables, figure)
    return [
        [score, *(_cell(of_set[name][at]) for name in tables), _cell(_mean(of_set[name][at] for name in tables))]
        for at, score in enumerate(SCORES)
    ]


def _by_method(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    methods = dict.fromkeys(method for known in tables.values() for method in known)
    lines = []
    for method in methods:
        parts = [known[method][..., _AUROC] for known in tables.values() if len(known[method])]
        each = [_mean(_mean(part[:, score]) for part in parts) for score in range(len(SCORES))]
        bags = _mean(row["auroc"] for row in rows if row["method"] == method)
        lines.append([method, *map(_cell, each), _cell(bags)])
    return lines


def _limits(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each set whose best possible scores are known."""
    lines = []
    for name in tables:
        known: dict[str, list[float]] = {}
        for row in rows:
            for score, values in row["best"].items() if row["set"] == name else ():
                known.setdefault(score, []).append(values[_AUROC])
        texts = [f"{score} {np.mean(values):.3f}" for score, values in known.items()]
        lines += [f"- Best possible on {name}: {', '.join(texts)}."] if texts else []
    return ["\n".join(lines)] if lines else []


def _cell(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "-"


def plot(tables: Tables, path: Path) -> None:
    """Draw the AUROC in a bag of each score, a row for each set and a color for each score."""
    of_set = means(tables)
    figure = new_figure((7.4, 1.4 + 0.5 * len(tables)))
    axes = figure.subplots()
    axes.axvline(0.5, color="#B0B0B0", linewidth=1)
    for at, (score, color) in enumerate(zip(SCORES, _COLORS, strict=True)):
        lines = np.arange(len(tables)) + 0.08 * (at - 3)
        values = [of_set[name][at] for name in tables]
        filled = color if score == DEFAULT else "white"
        axes.scatter(values, lines, s=34, facecolors=filled, edgecolors=color, linewidths=1.6, label=score, zorder=3)
    axes.set_yticks(range(len(tables)), list(tables))
    axes.set_ylim(len(tables) - 0.5, -0.5)
    axes.set_xlabel("AUROC in a bag, mean over methods and repeats (filled: the default of explain)")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save_figure(figure, path, grid=False)
