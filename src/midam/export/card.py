"""The model card of an export: README.md with a YAML head as the Hugging Face hub reads it."""

import platform
from typing import Any

import torch

from midam.evaluate.metrics import FEW_BAGS
from midam.export.outcome_card import (
    number,
    outcome_kind,
    outcome_limits,
    outcome_metrics,
    outcome_purpose,
    outcome_results,
    plain,
    prose,
    with_interval,
)
from midam.nn.ensemble import scorers_of
from midam.report.words import PART_NAMES, mean_words
from midam.runs.folder import SPLITS
from midam.runs.loaded import LoadedRun
from midam.settings import yaml_text
from midam.train.method_names import DEFAULT

_REFERENCE = (
    "Dixian Zhu, Bokun Wang, Zhi Chen, Yaxing Wang, Milan Sonka, Xiaodong Wu and Tianbao Yang. *Provable "
    "Multi-instance Deep AUC Maximization with Stochastic Pooling*. ICML 2023."
)


def card_text(
    run: LoadedRun, config: dict[str, Any], summary: dict[str, Any], formats: list[str], *, license: str | None
) -> str:
    """Text of the card: what the model is for, how to use it, how good it is on which data, and what is not known.

    `config` is that of `midam.export.config.describe`, `summary` that of the run's summary.json, or empty.
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
    kind = outcome_kind(run, images=len(shape) > 1)
    front |= {"library_name": "midam", "pipeline_tag": kind}
    front["tags"] = ["midam", "multiple-instance-learning", "auc-maximization", *formats]
    measured = _measured(run, summary)
    if measured is not None:
        split, found = measured
        values = [("roc_auc", "AUROC", found.get("auroc")), ("average_precision", "AUPRC", found.get("auprc"))]
        values += [("brier_score", "Brier score", found.get("brier"))]
        values = values if _binary(run) else outcome_metrics(run, found)
        front["metrics"] = [values[0][0]]
        metrics = [{"type": a, "name": b, "value": round(float(c), 4)} for a, b, c in values if c is not None]
        data = config["data"]["name"]
        dataset = {"name": data, "type": data, "split": PART_NAMES[split]}
        task = {"type": kind, "name": "classification of bags" if _binary(run) else "ranking of bags"}
        result = {"task": task, "dataset": dataset, "metrics": metrics}
        front["model-index"] = [{"name": name, "results": [result]}]
    return front


def _measured(run: LoadedRun, summary: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Split whose figures measure generalization best, and the figures."""
    merit = run.target.metric
    found = [(name, summary[name]) for name in ("test", "val") if summary.get(name, {}).get(merit) is not None]
    return found[0] if found else None


def _binary(run: LoadedRun) -> bool:
    return run.target.name == "binary"


def _purpose(run: LoadedRun, config: dict[str, Any], summary: dict[str, Any]) -> str:
    data = plain(config["data"]["name"])
    pooled = f"The instances are pooled by {prose(run.settings.method.pooling)}."
    pooled = pooled if run.method is None else f"The method is `{plain(run.method)}`."
    several = _several(run, summary)
    several = "" if several is None else f"The score is {several}. "
    calibrated = (
        "From the score follow a calibrated probability and, at a threshold that was chosen on validation bags, a call."
        if run.calibrator is not None
        else "The run had no validation bags of both classes: the score is not calibrated and has no threshold."
    )
    ranks = "gives one score in [0, 1] that ranks bags, positive ones above negative ones"
    if not _binary(run):
        ranks, calibrated = outcome_purpose(run)
    return (
        f"A {'classifier' if _binary(run) else 'ranker'} of bags (multiple-instance learning): it takes all instances "
        f"of a bag and {ranks}. {pooled} "
        f"{several}{calibrated}\n\n"
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
    """What the score is the mean of; None where it is that of one scorer."""
    if summary:
        return mean_words(summary)
    return mean_words({"members": len(run.model.members)})


def _taken(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """What `auto` took, of what it tried; nothing of another run."""
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
    if not summary:
        return []
    if not _binary(run):
        return outcome_results(run, summary)
    lines = ["| bags | n (positive) | AUROC (95% CI) | AUPRC | sensitivity (95% CI) | specificity (95% CI) | Brier |"]
    lines.append("|---|---|---|---|---|---|---|")
    for split in SPLITS:
        found = summary.get(split)
        if found is None:
            continue
        at = found.get("at_threshold") or {}
        cells = [
            PART_NAMES[split],
            f"{found['bags']} ({found['positives']})",
            with_interval(found, "auroc"),
            number(found.get("auprc")),
            with_interval(at, "sensitivity"),
            with_interval(at, "specificity"),
            number(found.get("brier")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    method = next((summary[name].get("auroc_method") for name in SPLITS if name in summary), None) or "no method"
    threshold = "" if run.threshold is None else f" The threshold is {run.threshold!r}, chosen on validation bags."
    text = (
        f"Sensitivity and specificity belong to one threshold; the interval of the AUROC is by {prose(method)}."
        f"{threshold} Training bags say nothing about new ones."
    )
    return ["## Results", "\n".join(lines), text]


def _data(run: LoadedRun, config: dict[str, Any], summary: dict[str, Any]) -> list[str]:
    data, known = config["data"], summary.get("data", {})
    count = f"{known['instances']} instances" if known else "instances"
    lines = [
        f"- name: `{plain(data['name'])}`",
        f"- {known.get('bags', len(run.splits))} bags, {count} of shape {config['architecture']['instance_shape']}",
        f"- SHA-256 of ids, labels and content: `{data['fingerprint']}`",
    ]
    if not _binary(run):
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
    drawn = f"{s.training.num_positive} positive and {s.training.num_negative} negative bags"
    if not _binary(run):
        drawn = f"{s.training.batch[0] + s.training.batch[1]} bags, those of different labels in turn"
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
        kept = "of both classes" if _binary(run) else "that their labels order"
        lines.append(f"No bags {kept} were held out: nothing is known of how well it ranks new bags.")
    else:
        split, found = measured
        if split != "test":
            lines.append("There was no test set: the validation figures are those of bags that helped to choose.")
        if _binary(run):
            least = min(found["positives"], found["bags"] - found["positives"])
            if least < FEW_BAGS:
                lines.append(
                    f"The figures rest on {least} {PART_NAMES[split]} bags of the rarer class: they are uncertain."
                )
        else:
            lines += outcome_limits(split, found)
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
