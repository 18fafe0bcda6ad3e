"""The model card of an export: README.md with a YAML head as the Hugging Face hub reads it."""

import math
import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from midam.evaluate.decisions import RISKS
from midam.nn.ensemble import scorers_of
from midam.report.words import METRIC_NAMES, PART_NAMES, mean_words
from midam.runs.folder import SPLITS
from midam.runs.loaded import LoadedRun
from midam.settings import yaml_text
from midam.train.method_names import DEFAULT

_REFERENCE = (
    "Dixian Zhu, Bokun Wang, Zhi Chen, Yaxing Wang, Milan Sonka, Xiaodong Wu and Tianbao Yang. *Provable "
    "Multi-instance Deep AUC Maximization with Stochastic Pooling*. ICML 2023."
)

_MARKS = re.compile(r"[\\\[\]*!]")
_MOST, _NAMED = 50, 20  # classes in a table, and in a sentence
_SCALED = ("mae", "mae_constant", "median_follow_up")  # figures in the unit of the label
_FACTS = ("events", "positives", "median_follow_up", "mae_constant")  # what no hub ranks models by
# Names of the hub for the figures that it knows.
_OF_HUB = {
    **{"auroc": "roc_auc", "auroc_macro": "roc_auc", "auprc": "average_precision", "brier": "brier_score"},
    **{"accuracy": "accuracy", "mae": "mae", "spearman": "spearmanr"},
}


def card_text(
    run: LoadedRun, config: dict[str, Any], summary: dict[str, Any], formats: list[str], *, license: str | None
) -> str:
    """Text of the card: what the model is for, how to use it, how good it is on which data, and what is not known.

    `config` is that of `midam.export.run.describe`, `summary` that of the run's summary.json, or empty.
    """
    name = plain(f"midam-{config['data']['name']}-{run.method or run.settings.method.pooling}")
    parts = [
        f"---\n{yaml_text(_front(run, name, config, summary, formats, license=license))}---",
        f"# {prose(name)}",
        _purpose(run, config, summary),
        *_usage(config, formats),
        *_results(run, summary),
        *_data(run, config, summary),
        *_training(run, summary),
        *_limits(run, summary),
        f"## Method\n\n{_source(run, summary)}"
        + (f" Trained with midam {prose(summary['version'])}." if summary else ""),
    ]
    # The card has no markup of HTML; where a name of the data has, it is shown, and not run.
    return "\n\n".join(part for part in parts if part).replace("<", "&lt;") + "\n"


def _front(
    run: LoadedRun,
    name: str,
    config: dict[str, Any],
    summary: dict[str, Any],
    formats: list[str],
    *,
    license: str | None,
) -> dict[str, Any]:
    shape = config["architecture"]["instance_shape"]
    front: dict[str, Any] = {} if license is None else {"license": license}
    kind = f"{'image' if len(shape) > 1 else 'tabular'}-{run.target.card.task}"
    kind = "other" if kind == "image-regression" else kind
    front |= {"library_name": "midam", "pipeline_tag": kind}
    front["tags"] = ["midam", "multiple-instance-learning", "auc-maximization", *formats]
    measured = _measured(run, summary)
    if measured is not None:
        split, found = measured
        main = (METRIC_NAMES.get(run.target.metric, run.target.metric), run.target.metric)
        ranked_by = [(name, key) for name, key in (main, *run.target.card.figures) if key not in _FACTS]
        values = [(_OF_HUB.get(key, key), name, found[key]) for name, key in ranked_by if found.get(key) is not None]
        front["metrics"] = [values[0][0]]
        metrics = [{"type": kind, "name": name, "value": round(float(value), 4)} for kind, name, value in values]
        data = config["data"]["name"]
        dataset = {"name": data, "type": data, "split": PART_NAMES[split]}
        task = {"type": kind, "name": f"{run.target.card.task} of bags"}
        result = {"task": task, "dataset": dataset, "metrics": metrics}
        front["model-index"] = [{"name": name, "results": [result]}]
    return front


def _measured(run: LoadedRun, summary: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Split whose figures measure generalization best, and the figures."""
    metric = run.target.metric
    found = [(name, summary[name]) for name in ("test", "val") if summary.get(name, {}).get(metric) is not None]
    return found[0] if found else None


def _purpose(run: LoadedRun, config: dict[str, Any], summary: dict[str, Any]) -> str:
    data = plain(config["data"]["name"])
    pooled = f"The instances are pooled by {prose(run.settings.method.pooling)}."
    pooled = pooled if run.method is None else f"The method is `{plain(run.method)}`."
    several = _several(run, summary)
    several = "" if several is None else f"The score is {several}. "
    words = run.target.card
    names = ", ".join(f"`{plain(name)}`" for name in run.target.names[:_NAMED])
    names += f" and {more} more, see config.json" if (more := len(run.target.names) - _NAMED) > 0 else ""
    ranks = words.ranks.format(count=len(run.target.names), names=names)
    predicts = f"From the scores `midam predict` computes {words.predicts}, fitted on the validation bags."
    if run.decision is None:
        predicts = "The run had too few validation bags to fit predictions on: the scores are not calibrated."
    return (
        f"A model of bags (multiple-instance learning, {words.task}): it takes all instances "
        f"of a bag and {ranks}. {pooled} "
        f"{several}{predicts}\n\n"
        "## Intended use\n\n"
        f"Ranking bags that were made like those of the data set `{data}`: instances from the same kind of source, the "
        "same features or pixels, cut and encoded by the same steps. Before other use, such as at another site, test "
        "it there on labeled bags and read the interval.\n\n"
        "## Out-of-scope use\n\n"
        "- Decisions about a person without a human who decides, and any use as a medical device: none was cleared.\n"
        "- Bags of another kind than those of the training, or with features that were computed otherwise.\n"
        "- Statements about one instance: only bags had labels. Where the model looked is not where the cause is.\n"
        "- The score taken for a probability."
    )


def _several(run: LoadedRun, summary: dict[str, Any]) -> str | None:
    """Describe the scorers that the score averages; None if there is one."""
    if summary:
        return mean_words(summary)
    return mean_words({"members": len(run.model.members)})


def _taken(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Methods that `auto` took; none if the run is of another method."""
    return [row for row in summary.get("auto", {}).get("tried", ()) if row["weight"] > 0]


def _source(run: LoadedRun, summary: dict[str, Any]) -> str:
    """Where the method comes from."""
    if run.method is None:
        return _REFERENCE
    taken = [row["method"] for row in _taken(summary)]
    if not taken:
        return f"A baseline of midam, `{plain(run.method)}`."
    named = ", ".join(f"`{plain(name)}`" for name in taken)
    own = f" `{DEFAULT}` is the method of {_REFERENCE}" if DEFAULT in taken else ""
    return f"Chosen by `{plain(run.method)}` of midam: {named}.{own}"


def _usage(config: dict[str, Any], formats: list[str]) -> list[str]:
    shape, imputed = config["architecture"]["instance_shape"], config["data"]["imputed"]
    of = f"A bag holds n instances of shape {shape}; n can be any number from 1 on, in the memory of one chunk."
    parts = ["## How to use it", of]
    if "python" in formats:
        table = (
            " Of a table, each row an instance, or a file (.pt, .npy) a bag:\n\n"
            f"```sh\npython score_bags.py {'bags.csv' if len(shape) == 1 else 'bag.npy'} > scores.csv\n```\n\n"
        )
        parts.append(
            f"**With torch alone**, by `score_bags.py`.{table}```python\nfrom score_bags import Model\n\n"
            "print(Model().score(bag))  # a tensor [n, ...], or an iterable of parts of it\n```"
        )
    if imputed is not None:
        what = "0" if imputed["how"] == "zero" else f"the {imputed['how']} of the feature in the training bags"
        parts.append(f"A missing value (NaN, or an empty field of a table) is filled with {what}.")
    if "onnx" in formats:
        parts.append(
            "**With onnxruntime**, by `score_onnx.py` and the three files in `onnx`: `chunk.onnx` makes the statistic "
            f"(n, l, r) of some instances ({config['onnx']['dtype']}), `merge.onnx` joins two of them, `score.onnx` "
            "makes the score.\n\n```python\nfrom score_onnx import Model\n\n"
            "print(Model().score(bag))  # an array [n, ...], or an iterable of parts of it\n```"
        )
    if "safetensors" in formats:
        parts.append("`model.safetensors` holds the weights, `config.json` the architecture, calibration and settings.")
    return parts


def _results(run: LoadedRun, summary: dict[str, Any]) -> list[str]:
    parts = {name: summary[name] for name in SPLITS if name in summary}
    if not parts:
        return []
    metric, columns = run.target.metric, run.target.card.figures
    name = METRIC_NAMES.get(metric, metric)
    heads = ["bags", "n", f"{name} (95% CI)", *(title for title, _ in columns)]
    keys = (metric, *(key for _, key in columns))
    rows = [
        [PART_NAMES[part], str(found["bags"]), *(with_interval(found, key) for key in keys)]
        for part, found in parts.items()
    ]
    first, shown = next(iter(parts.items()))
    methods = [part[f"{metric}_method"] for part in parts.values() if part.get(f"{metric}_method")]
    text = f"The interval of the {name} is by {prose(methods[0] if methods else 'no method')}."
    if run.threshold is not None:
        text += f" The threshold is {run.threshold!r}, chosen on validation bags."
    blocks = ["## Results", _table(heads, rows), f"{text} Training bags say nothing about new ones."]
    if "per_class" in shown:
        rows = [
            [prose(name), str(of["positives"]), str(of["negatives"]), with_interval(of, "auroc"), number(of["ap"])]
            for name, of in list(shown["per_class"].items())[:_MOST]
        ]
        heads = [f"{PART_NAMES[first]} bags of", "with it", "without", "AUROC (95% CI)", "average precision"]
        blocks.append(_table(heads, rows))
    if "risk_groups" in shown:
        rows = [
            [RISKS[row["group"]], str(row["bags"]), str(row["events"]), number(row["median_time"], ".4g")]
            for row in shown["risk_groups"]
        ]
        blocks.append(_table([f"{PART_NAMES[first]} bags of risk", "n", "events", "median time"], rows))
    return blocks


def _data(run: LoadedRun, config: dict[str, Any], summary: dict[str, Any]) -> list[str]:
    data, known = config["data"], summary.get("data", {})
    count = f"{known['instances']} instances" if known else "instances"
    lines = [
        f"- name: `{plain(data['name'])}`",
        f"- {known.get('bags', len(run.splits))} bags, {count} of shape {config['architecture']['instance_shape']}",
        f"- SHA-256 of ids, labels and content: `{data['fingerprint']}`",
    ]
    lines.append(f"- labels: {run.target.name}")
    if data["classes"]:
        lines.append(
            f"- label 1, the positive class, is `{plain(data['classes'][1])}`, label 0 `{plain(data['classes'][0])}`"
        )
    if data["feature_names"]:
        names = [f"`{plain(name)}`" for name in data["feature_names"]]
        more = f" and {len(names) - 20} more, see config.json" if len(names) > 20 else ""
        lines.append(f"- features: {', '.join(names[:20])}{more}")
    if data["cut"]:
        lines.append(
            "- cut: " + ", ".join(prose(f"{name} {value}") for name, value in data["cut"].items() if value is not None)
        )
    return ["## Data", "\n".join(lines)]


def _training(run: LoadedRun, summary: dict[str, Any]) -> list[str]:
    s = run.settings
    exported = (
        f"- exported with Python {platform.python_version()}, torch {torch.__version__}; digest of model, calibration, "
        f"threshold and what fills missing values `{run.digest()}`"
    )
    if run.method is not None:
        lines = [f"- method: {prose(run.method)}, fitted in one step", f"- seed {s.run.seed}", exported]
        if "auto" in summary:
            shares = [f"`{plain(row['method'])}` {row['weight']:.2f}" for row in _taken(summary)]
            lines[0] = f"- method: {prose(run.method)}; weights of {', '.join(shares)}"
            lines.insert(1, f"- {prose(summary['auto']['note'])}")
        return ["## Training", "\n".join(lines)]
    chosen = summary.get("selected", {})
    weights = (
        f"; weights of the {chosen['weights']} epoch ({chosen['epoch']} of {summary.get('epochs')})" if chosen else ""
    )
    seconds = summary.get("seconds", {}).get("total")
    took = "" if seconds is None else f"; {seconds:.0f} seconds"
    positive, negative = s.training.batch[:2]
    drawn = run.target.card.batch.format(positive=positive, negative=negative, both=positive + negative)
    lines = [
        "- "
        + prose(f"method: pooling {s.method.pooling}, estimator {s.method.estimator}, objective {s.method.objective}"),
        f"- encoder {prose(s.model.encoder)}; scorers {len(run.model.members)}{weights}",
        f"- optimizer {s.training.optimizer}, learning rate {s.training.lr:g}, weight decay "
        f"{s.training.weight_decay:g}",
        f"- a step draws {drawn}, and {s.training.num_instances} instances of a bag where the estimator draws any",
        f"- seed {s.run.seed}{took}; all settings are in config.json",
        exported,
    ]
    return ["## Training", "\n".join(lines)]


def _limits(run: LoadedRun, summary: dict[str, Any]) -> list[str]:
    lines, measured = [], _measured(run, summary)
    if not summary:
        lines.append("No figures came with the model: nothing is stated of how well it ranks new bags.")
    elif "deployed" in summary:
        lines.append(prose(summary["deployed"]["note"]))
    elif measured is None:
        lines.append(f"No bags {run.target.ordered} were held out: nothing is known of how well it ranks new bags.")
    else:
        split, found = measured
        if split != "test":
            lines.append("There was no test set: the validation figures are those of bags that helped to choose.")
        few = run.target.rests_on(found)
        if few is not None:
            lines.append(f"The {PART_NAMES[split]} figures rest on {few}: they are uncertain.")
        lines += [f"Of the {PART_NAMES[split]} bags: {prose(text)}" for text in found.get("warnings", [])]
    if not run.groups:
        lines.append(
            "No groups (patients) were named: bags of one patient may stand on both sides of the split, and then the "
            "figures are too good."
        )
    if run.data.get("imputed"):
        lines.append("Missing values are filled in: the score of a bag in which many are missing says little.")
    lines.append("All bags come from one source: another scanner, laboratory or site was not tested.")
    if any(scorer.pooling.name.endswith("attention") for scorer in scorers_of(run.model)):
        lines.append("Attention may rest on the absence of something; its weights are no explanation by themselves.")
    lines.append("Differences between subgroups (age, sex, site) were not looked at by this export.")
    return ["## Limitations", "\n".join(f"- {line}" for line in lines)]


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
    """A figure with its interval, where it has one; a dot in the name leads into an entry."""
    entry, _, within = name.rpartition(".")
    if entry:
        return with_interval(found.get(entry) or {}, within)
    interval = found.get(f"{name}_ci95")
    between = f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    return f"{number(found.get(name), '.4g' if name in _SCALED else '.3f')}{between}"


def plain(text: object) -> str:
    """A name as a code span or the cell of a table can hold it: it comes from data."""
    return " ".join(str(text).replace("`", "'").replace("|", "/").split())


def prose(text: object) -> str:
    """Text that may hold names of the data, as a paragraph shows it: nothing in it is a link, an image or a mark."""
    return _MARKS.sub(r"\\\g<0>", plain(text))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(heads)}", *lines[1:]])
