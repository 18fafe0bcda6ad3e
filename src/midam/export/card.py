"""The model card of an export: README.md with the YAML metadata of the Hugging Face hub."""

import math
import platform
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined

from midam.errors import listed
from midam.evaluate.decisions import RISKS
from midam.methods.names import DEFAULT
from midam.names import visible
from midam.nn.scorer import scorers_of
from midam.report.words import METRIC_NAMES, PART_NAMES, as_flags, mean_words
from midam.runs.folder import SPLITS
from midam.runs.loaded import LoadedRun
from midam.settings import yaml_text

_REFERENCE = (
    "Dixian Zhu, Bokun Wang, Zhi Chen, Yaxing Wang, Milan Sonka, Xiaodong Wu and Tianbao Yang. *Provable "
    "Multi-instance Deep AUC Maximization with Stochastic Pooling*. ICML 2023."
)

_MARKS = re.compile(r"[\\\[\]*!]")
_NAMED = 20  # most names in a sentence
_SCALED = ("mae", "mae_constant", "median_follow_up")  # figures in the unit of the labels


def card_text(run: LoadedRun, config: dict[str, Any], summary: dict[str, Any], formats: list[str]) -> str:
    """Return the text of the card: intended use, usage, results, data, training and limitations.

    `config` is the result of `midam.export.run.describe`, `summary` the content of the run's summary.json, or empty.
    """
    name = plain(f"midam-{config['data']['name']}-{run.method or run.settings.method.pooling}")
    parts = {name: summary[name] for name in SPLITS if name in summary}
    metric, tried = run.target.metric, summary.get("auto", {}).get("tried", ())
    # The part that measures generalization best.
    split = next((name for name in ("test", "out_of_fold", "val") if parts.get(name, {}).get(metric) is not None), None)
    front = {"library_name": "midam", "tags": ["midam", "multiple-instance-learning", "auc-maximization", *formats]}
    card = _environment().get_template("card.md.jinja")
    text = card.render(
        **{"run": run, "config": config, "summary": summary, "formats": formats, "parts": parts, "split": split},
        name=name,
        front=yaml_text(front),
        mean=mean_words(summary or {"members": len(run.model.members)}),
        methods=[part[f"{metric}_method"] for part in parts.values() if part.get(f"{metric}_method")],
        taken={row["method"]: row["weight"] for row in tried if row["weight"] > 0},
        attention=any(scorer.pooling.name.endswith("attention") for scorer in scorers_of(run.model)),
    )
    # The card contains no HTML; tags in names of the data are escaped.
    return visible(re.sub(r"\n{3,}", "\n\n", text.lstrip()).replace("<", "&lt;"))


@cache
def _environment() -> Environment:
    templates = PackageLoader("midam.export")
    made = Environment(loader=templates, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update({"plain": plain, "prose": prose, "code": code, "number": number, "figure": with_interval})
    made.filters["names"] = lambda names: listed([*map(code, names)], most=_NAMED)
    made.globals.update({"metric_names": METRIC_NAMES, "part_names": PART_NAMES, "risks": RISKS, "default": DEFAULT})
    made.globals.update({"reference": _REFERENCE, "python": platform.python_version(), "torch": torch.__version__})
    return made


def number(value: float | None, form: str = ".3f") -> str:
    """Format a number, or return a dash if there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value}" if isinstance(value, int) else f"{value:{form}}"


def with_interval(part: Mapping[str, Any], name: str) -> str:
    """Format a metric with its interval, if any; a dot in the name leads into an entry."""
    entry, _, within = name.rpartition(".")
    if entry:
        return with_interval(part.get(entry) or {}, within)
    interval = part.get(f"{name}_ci95")
    between = f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    return f"{number(part.get(name), '.4g' if name in _SCALED else '.3f')}{between}"


def plain(text: object) -> str:
    """Return a name of the data in a form that is safe in a code span or a table cell."""
    return " ".join(str(text).replace("`", "'").replace("|", "/").split())


def prose(text: object) -> str:
    """Return text that may hold names of the data, with Markdown links, images and marks escaped."""
    return _MARKS.sub(r"\\\g<0>", plain(as_flags(text)))


def code(text: object) -> str:
    """Return a name of the data as code."""
    return f"`{plain(text)}`"
