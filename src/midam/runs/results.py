"""What a finished run leaves behind: model, predictions, summary, figures."""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam import __version__
from midam.data.bags import Bags
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.metrics import operating_point, summarize
from midam.evaluate.ranking import auroc
from midam.files import write_json, write_text
from midam.nn.ensemble import BagEnsemble, scorers_of
from midam.report.figures import plot_curves, plot_roc
from midam.runs.beside import COMPARED, Beside, train_beside, write_scores
from midam.runs.data import SplitBags
from midam.runs.folder import RunFolder, csv_text
from midam.runs.method import taken_settings
from midam.settings import ResolvedSettings, yaml_text
from midam.train.checkpoint import save_checkpoint
from midam.train.trainer import Trainer

NO_DECISION = (
    "The scores ranked the validation bags no better than chance: class and probability of a bag mean nothing."
)
SPLITS = ("test", "val", "train")


@dataclass(frozen=True)
class Fitted:
    """What `write_results` takes in place of a trainer: a model that was fitted in one step, by a method of this name.

    Of its settings, only those that such a method takes are kept.
    """

    method: str
    config: ResolvedSettings
    reported: BagEnsemble
    parts: list[dict[str, Any]] | None = None  # of a model that was chosen, as its file has them
    about: Mapping[str, Any] = field(default_factory=dict)  # what the summary tells of the choice


def write_results(
    folder: RunFolder,
    *,
    trainer: Trainer | Fitted,
    parts: SplitBags,
    data: str,
    scores: dict[str, NDArray[np.float64]],
    selected: str,
    origin: dict[str, Any],
    seconds: Callable[[float], dict[str, float]],
    on_stage: Callable[[str, int], None],
    notes: Sequence[str] = (),
    choice: str | None = None,
    about: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Write model.pt, predictions.csv, summary.json, roc.png and, of a training, baseline.csv and curves.png.

    `scores` [N] of all bags are those under the weights "last" and, where there is one, "best"; `selected` says which
    are reported, and what the trainer reports holds these weights. `origin` is what the model file remembers of the
    data; `notes` are what reading the data warned of, `choice` says which counts were chosen and why. `seconds` gives
    the seconds of each part of the run, from those of the baseline, and is asked last. `on_stage` is told what begins.
    `about` is further told by the summary. The model is written before the baseline is trained, the summary last: where
    it is, all is. Returns the summary.
    """
    bags, labels, splits = parts.bags, parts.bags.require_labels(), parts.splits
    chosen, settings = scores[selected], trainer.config.flat()
    calibrator, threshold = fit_decision(labels[splits == "val"], chosen[splits == "val"])
    probabilities = None if calibrator is None else calibrator.predict(chosen)
    made: dict[str, Any] = {"calibrator": calibrator, "threshold": threshold}
    if isinstance(trainer, Fitted):
        made |= {"method": trainer.method, "parts": trainer.parts}
    save_checkpoint(folder.model, model_content(trainer.config, trainer.reported, origin, **made))
    called = {"probabilities": probabilities, "threshold": threshold, "classes": origin["data"]["classes"]}
    write_text(folder.predictions, predictions_text(bags, chosen, splits=splits, **called))
    beside = Beside()
    if trainer.config.run.baseline and not isinstance(trainer, Fitted):
        on_stage("training the baseline", 0)
        beside = train_beside(parts, chosen, seed=trainer.config.run.seed)
        write_scores(folder, parts, beside)
    on_stage("writing results", 0)
    told: dict[str, Any] = {"threshold": threshold, "probabilities": probabilities, "notes": decision_notes(calibrator)}
    summary = summarize_parts(bags, splits, chosen, names=SPLITS, **told)
    known = {key: origin["data"][key] for key in ("fingerprint", "instance_shape", "classes")}
    if isinstance(trainer, Fitted):
        summary |= {**trainer.about, "method": {"name": trainer.method}, "members": len(scorers_of(trainer.reported))}
    else:
        plot_curves(folder.curves, trainer.history, best_epoch=trainer.best_epoch)
        weights = {"last": trainer.epoch, "best": trainer.best_epoch}
        summary |= {
            "selected": {"weights": selected, "epoch": weights[selected]},
            "by_weights": {key: {"epoch": weights[key], **_areas(labels, of, splits)} for key, of in scores.items()},
            "method": {key: settings[key] for key in ("pooling", "estimator", "objective")},
            "members": trainer.config.training.members,
            "epochs": trainer.epoch,
            "baseline": beside.found,
            **({} if beside.note is None else {"baseline_note": beside.note}),
            **_chosen(trainer.config, choice),
        }
    summary |= {
        "data": {
            "name": data,
            "bags": len(bags),
            "instances": bags.num_instances,
            **known,
            **_imputed(parts),
            "notes": list(notes),
        },
        "version": __version__,
        "environment": _environment(),
        **about,
    }
    drawn = next((name for name in COMPARED if summary.get(name, {}).get("auroc") is not None), None)
    if drawn is not None:
        inside, title = splits == drawn, f"{data}: {drawn} bags"
        held = {"labels": labels[inside], "scores": chosen[inside], "summary": summary[drawn]}
        plot_roc(folder.roc, **held, title=title, threshold=threshold, baseline=beside.scores)
    summary["seconds"] = seconds(beside.seconds)
    write_json(folder.summary, summary)
    return summary


def write_metrics(folder: RunFolder, history: Sequence[Mapping[str, Any]]) -> None:
    """Write metrics.csv, a row an epoch."""
    columns = ["epoch", "lr", "state_rate", "dual_lr", "loss", "train_auroc", "val_auroc"]
    columns += [name for name in (history or [{}])[-1] if name not in columns]
    write_text(folder.metrics, csv_text(columns, history))


def model_content(
    config: ResolvedSettings,
    model: BagEnsemble,
    origin: Mapping[str, Any],
    *,
    calibrator: PlattCalibrator | None,
    threshold: float | None,
    method: str | None = None,
    parts: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """What the model file of a run holds; `origin` is what `midam.runs.data.describe_origin` says of its data.

    `method` names one that is fitted in one step, and takes few settings; `parts` are those of a chosen model.
    """
    return {
        "version": __version__,
        "config": config.flat() if method is None else taken_settings(config),
        **({} if method is None else {"method": method}),
        **({} if parts is None else {"parts": parts}),
        "model": model.state_dict(),
        "calibrator": None if calibrator is None else calibrator.to_dict(),
        "threshold": threshold,
        **origin,
    }


def write_model(folder: RunFolder, content: dict[str, Any]) -> None:
    """Write the folder of a run that is a model alone, with its settings; `content` is of `model_content`."""
    method = {"method": content["method"]} if "method" in content else {}
    write_text(folder.config, yaml_text({"data": content["data"]["source"], **method, **content["config"]}))
    save_checkpoint(folder.model, content)


def summarize_parts(
    bags: Bags,
    parts: NDArray[np.str_],
    scores: NDArray[np.float64],
    *,
    names: Sequence[str],
    threshold: float | None,
    probabilities: NDArray[np.float64] | None,
    notes: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Entries of `midam.evaluate.metrics.summarize` of each part of labeled bags that has some, and these notes."""
    optional = {"groups": bags.groups, "probabilities": probabilities}
    labels, found = bags.require_labels(), {}
    for name in names:
        inside = parts == name
        if inside.any():
            own: dict[str, Any] = {key: None if values is None else values[inside] for key, values in optional.items()}
            found[name] = summarize(labels[inside], scores[inside], **own, threshold=threshold, metrics=metrics)
            found[name]["warnings"] += notes
    return found


def predictions_text(
    bags: Bags,
    scores: NDArray[np.float64],
    *,
    splits: NDArray[np.str_] | None = None,
    probabilities: NDArray[np.float64] | None,
    threshold: float | None,
    classes: Sequence[Any] | None,
) -> str:
    """Predictions as CSV, a row a bag: bag, label, split, score, probability, class, instances, group.

    The class is what the score is called at the threshold, by its name in `classes` (of label 0 and 1) where they have
    names. Label, split and group have columns where they are known, instances where the splits are; what is not known
    of a bag is empty.
    """
    names = (0, 1) if classes is None else classes
    columns: dict[str, Sequence[Any] | None] = {
        "bag": bags.ids.tolist(),
        "label": None if bags.labels is None else bags.labels.tolist(),
        "split": None if splits is None else splits.tolist(),
        "score": scores.tolist(),
        "probability": [None] * len(bags) if probabilities is None else probabilities.tolist(),
        "class": [None if threshold is None else names[int(score >= threshold)] for score in scores],
        "instances": None if splits is None else bags.sizes.tolist(),
        "group": None if bags.groups is None else bags.groups.tolist(),
    }
    known = {name: values for name, values in columns.items() if values is not None}
    return csv_text(list(known), (dict(zip(known, row)) for row in zip(*known.values(), strict=True)))


def _imputed(parts: SplitBags) -> dict[str, Any]:
    """What the summary says of missing values that were filled."""
    return {} if parts.imputed is None else {"imputed": {key: parts.imputed[key] for key in ("how", "missing")}}


def _chosen(config: ResolvedSettings, line: str | None) -> dict[str, Any]:
    """What the summary says of counts that were chosen."""
    if line is None:
        return {}
    counts = dict(zip(("num_positive", "num_negative", "num_instances"), config.training.batch))
    return {"chosen": {**counts, "note": line}}


def fit_decision(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> tuple[PlattCalibrator | None, float | None]:
    """Calibrator and operating point of the validation bags; None where these lack a class."""
    return (PlattCalibrator().fit(scores, labels), operating_point(labels, scores)) if _both(labels) else (None, None)


def decision_notes(calibrator: PlattCalibrator | None) -> list[str]:
    """What to say of classes and probabilities that mean nothing; nothing where they mean something, or are none."""
    return [] if calibrator is None or calibrator.ranks else [NO_DECISION]


def _areas(labels: NDArray[np.int64], scores: NDArray[np.float64], splits: NDArray[np.str_]) -> dict[str, float | None]:
    """AUROC of each split; None where it lacks a class."""
    parts = {name: (labels[splits == name], scores[splits == name]) for name in SPLITS}
    return {f"{name}_auroc": auroc(*part) if _both(part[0]) else None for name, part in parts.items()}


def _environment() -> dict[str, str]:
    """Versions that a result can depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"python": platform.python_version(), **packages, "system": f"{platform.system()} {platform.machine()}"}


def _both(labels: NDArray[np.int64]) -> bool:
    return len(np.unique(labels)) == 2
