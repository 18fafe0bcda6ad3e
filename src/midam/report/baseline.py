"""Comparison of a run with its baseline in words: the entry `baseline` of summary.json."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from midam.report.words import METRIC_NAMES, metric_of_part
from midam.settings.data import DataSettings

_SAYS = {
    "ahead": "the model is ahead",
    "behind": "the baseline is ahead",
    "open": "which of the two is better stays open",
    "alike": "both rank these bags alike",
}


def verdict(found: Mapping[str, Any]) -> str:
    """Whether the model is "ahead" of the baseline or "behind", by the interval of their difference, or it is "open".

    "alike" where there is no difference to put an interval around: both rank the bags in the same way.

    Examples
    --------
    >>> verdict({"difference_ci95": [0.01, 0.2]}), verdict({"difference_ci95": [-0.3, 0.01]})
    ('ahead', 'open')
    """
    low, high = found["difference_ci95"]
    if low == high == 0:
        return "alike"
    return "ahead" if low > 0 else "behind" if high < 0 else "open"


def verdict_words(found: Mapping[str, Any]) -> str:
    """The verdict in words."""
    return _SAYS[verdict(found)]


def result_words(found: Mapping[str, Any]) -> str:
    """The metric of the baseline, the difference with its interval, and the verdict: a line of the console."""
    (low, high), metric = found["difference_ci95"], metric_of_part(found)
    return (
        f"baseline {METRIC_NAMES[metric]} {found[metric]:.3f} ({found['method']}); model minus baseline "
        f"{found['difference']:+.3f} (95% CI {low:+.3f} to {high:+.3f}): {verdict_words(found)}"
    )


def covariate_words(found: Mapping[str, Any]) -> list[str]:
    """Lines on the covariates of a run, and on how they do alone: the entry `covariates` of summary.json."""
    said = ", ".join(f"{name} ({kind})" for name, kind in zip(found["names"], found["kinds"], strict=True))
    lines, alone = [f"covariates: {said}"], found["alone"]
    metric = next((name for name in METRIC_NAMES if name in (alone or {})), None)
    if metric is None:
        return [*lines, "covariates alone were not tested: there are no test or validation bags to do it on"]
    words = f"covariates alone: {METRIC_NAMES[metric]} {alone[metric]:.3f}{_interval(alone[f'{metric}_ci95'])}"
    gap = f"{alone['difference']:+.3f}{_interval(alone['difference_ci95'], form='+.3f')}"
    verdict = f": {covariate_verdict(alone)}" if alone["difference_ci95"] else ""
    return [*lines, f"{words} ({alone['method']}, {alone['part']} bags); model minus that {gap}{verdict}"]


def covariate_verdict(alone: Mapping[str, Any]) -> str:
    """Whether a model ranks better than its covariates alone, in words.

    Examples
    --------
    >>> covariate_verdict({"difference_ci95": [0.01, 0.2]}), covariate_verdict({"difference_ci95": [-0.3, 0.01]})
    ('the model is ahead', 'whether the instances add to them stays open')
    """
    says = {"ahead": "the model is ahead", "behind": "covariates alone are ahead"}
    return says.get(verdict(alone), "whether the instances add to them stays open")


def _interval(bounds: Sequence[float] | None, form: str = ".3f") -> str:
    return "" if bounds is None else f" (95% CI {bounds[0]:{form}} to {bounds[1]:{form}})"


def caution(found: Mapping[str, Any], selected: Mapping[str, Any]) -> str | None:
    """A caution about a comparison on validation bags; `selected` is that of summary.json."""
    if found["part"] != "val":
        return None
    on = "the baseline is compared on validation bags"
    if selected.get("weights") == "best":
        return f"{on}, which chose the model's epoch: that favors the model"
    return f"{on}: there are no test bags {'of both classes' if 'auroc' in found else 'that their labels order'}"


def data_options(settings: DataSettings) -> list[str]:
    """Words of a command that read data as these settings do.

    Examples
    --------
    >>> data_options(DataSettings(label_column="er,pr", groups="patient"))
    ['--label-column', 'er,pr', '--groups', 'patient']
    """
    words = []
    for name, value in settings:
        if value != type(settings).model_fields[name].get_default(call_default_factory=True):
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                words.append(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    return words


def advice(
    found: Mapping[str, Any], data: str, *, target: str | None = None, options: Sequence[str] = ()
) -> str | None:
    """Advice where the baseline is ahead of the model trained on `data`; `target` where it is not two classes.

    `options` are `data_options`, of the command that trained it.
    """
    if verdict(found) != "behind":
        return None
    name, source = found["method"], shlex.join([data, *options])
    better = "the plain baseline ranks these bags better than the model, beyond what chance explains; compare both on"
    if target is not None:
        said = "" if "--target" in options else f" --target {target}"
        return f"{better} many splits, `midam compare {source}{said} --methods midam,{name}`"
    return (
        f"{better} many splits, `midam compare {source} --methods midam,{name}`, or train the baseline "
        f"itself, `midam fit {source} --method {name}`, or a mean of both, `--method auto`"
    )
