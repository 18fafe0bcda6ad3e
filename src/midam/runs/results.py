"""What a finished run leaves behind: model, predictions, summary, figures."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam import __version__
from midam.data.bags import Bags
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.metrics import operating_point, summarize
from midam.evaluate.ranking import auroc
from midam.files import write_json, write_text
from midam.report.figures import plot_curves, plot_roc
from midam.runs.data import SplitBags
from midam.runs.folder import RunFolder, csv_text
from midam.train.checkpoint import save_checkpoint
from midam.train.trainer import Trainer

SPLITS = ("test", "val", "train")


def write_results(
    folder: RunFolder,
    *,
    trainer: Trainer,
    parts: SplitBags,
    data: str,
    scores: dict[str, NDArray[np.float64]],
    selected: str,
    origin: dict[str, Any],
    seconds: float,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Write model.pt, predictions.csv, summary.json, roc.png and curves.png; returns the summary.

    `scores` [N] of all bags are those under the weights "last" and, where there is one, "best"; `selected` says which
    are reported, and what the trainer reports holds these weights. `origin` is what the model file remembers of the
    data, `seconds` the duration of the training, of all sessions together, `notes` what reading the data warned of.
    """
    bags, labels, splits = parts.bags, parts.bags.require_labels(), parts.splits
    chosen, settings = scores[selected], trainer.config.flat()
    calibrator, threshold = _fit_decision(labels[splits == "val"], chosen[splits == "val"])
    probabilities = None if calibrator is None else calibrator.predict(chosen)
    summary = summarize_parts(bags, splits, chosen, names=SPLITS, threshold=threshold, probabilities=probabilities)
    known = {key: origin["data"][key] for key in ("fingerprint", "instance_shape", "classes")}
    weights = {"last": trainer.epoch, "best": trainer.best_epoch}
    summary |= {
        "selected": {"weights": selected, "epoch": weights[selected]},
        "by_weights": {key: {"epoch": weights[key], **_areas(labels, of, splits)} for key, of in scores.items()},
        "method": {key: settings[key] for key in ("pooling", "estimator", "objective")},
        "members": trainer.config.training.members,
        "data": {"name": data, "bags": len(bags), "instances": bags.num_instances, **known, "notes": list(notes)},
        "epochs": trainer.epoch,
        "seconds": round(seconds, 3),
        "version": __version__,
        "environment": _environment(),
    }
    decision = {"calibrator": None if calibrator is None else calibrator.to_dict(), "threshold": threshold}
    content = {"version": __version__, "config": settings, "model": trainer.reported.state_dict()}
    save_checkpoint(folder.model, {**content, **decision, **origin})
    rows = prediction_rows(bags.ids, chosen, labels=labels, splits=splits, probabilities=probabilities)
    for i, row in enumerate(rows):
        row |= {"group": None if bags.groups is None else str(bags.groups[i]), "instances": int(bags.sizes[i])}
    columns = ["bag", "label", "split", "score", "probability", *(["group"] if bags.groups is not None else [])]
    write_text(folder.predictions, csv_text([*columns, "instances"], rows))
    write_json(folder.summary, summary)
    plot_curves(folder.curves, trainer.history, best_epoch=trainer.best_epoch)
    drawn = next((name for name in ("test", "val") if summary.get(name, {}).get("auroc") is not None), None)
    if drawn is not None:
        inside, title = splits == drawn, f"{data}: {drawn} bags"
        held = {"labels": labels[inside], "scores": chosen[inside], "summary": summary[drawn]}
        plot_roc(folder.roc, **held, title=title, threshold=threshold)
    return summary


def summarize_parts(
    bags: Bags,
    parts: NDArray[np.str_],
    scores: NDArray[np.float64],
    *,
    names: Sequence[str],
    threshold: float | None,
    probabilities: NDArray[np.float64] | None,
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Entries of `midam.evaluate.metrics.summarize` of each part of labeled bags that has some."""
    optional = {"groups": bags.groups, "probabilities": probabilities}
    labels, found = bags.require_labels(), {}
    for name in names:
        inside = parts == name
        if inside.any():
            own: dict[str, Any] = {key: None if values is None else values[inside] for key, values in optional.items()}
            found[name] = summarize(labels[inside], scores[inside], **own, threshold=threshold, metrics=metrics)
    return found


def prediction_rows(
    ids: NDArray[np.str_],
    scores: NDArray[np.float64],
    *,
    labels: NDArray[np.int64] | None,
    splits: NDArray[np.str_] | None,
    probabilities: NDArray[np.float64] | None,
) -> list[dict[str, Any]]:
    """A row a bag: bag, label, split, score, probability (None where unknown)."""
    return [
        {
            "bag": str(bag),
            "label": None if labels is None else int(labels[i]),
            "split": None if splits is None else str(splits[i]),
            "score": float(scores[i]),
            "probability": None if probabilities is None else float(probabilities[i]),
        }
        for i, bag in enumerate(ids)
    ]


def _fit_decision(
    labels: NDArray[np.int64], scores: NDArray[np.float64]
) -> tuple[PlattCalibrator | None, float | None]:
    """Calibrator and operating point of the validation bags; None where these lack a class."""
    return (PlattCalibrator().fit(scores, labels), operating_point(labels, scores)) if _both(labels) else (None, None)


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
