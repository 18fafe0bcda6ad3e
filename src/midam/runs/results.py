"""What a finished run leaves behind: model, predictions, summary, figures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam import __version__
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.metrics import operating_point, summarize
from midam.evaluate.ranking import auroc
from midam.files import write_json, write_text
from midam.report.figures import plot_curves, plot_roc
from midam.runs.data import SplitBags
from midam.runs.folder import RunFolder, csv_text
from midam.train.checkpoint import save_checkpoint
from midam.train.config import to_dict
from midam.train.trainer import Trainer

SPLITS = ("test", "val", "train")


def write_reports(
    folder: RunFolder,
    *,
    trainer: Trainer,
    parts: SplitBags,
    data: str,
    scores: dict[str, NDArray[np.float64]],
    selected: str,
    described: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Write model.pt, predictions.csv, summary.json, roc.png and curves.png; returns the summary.

    Parameters
    ----------
    folder : RunFolder
        Of the run.
    trainer : Trainer
        What it reports holds the selected weights.
    parts : SplitBags
        All bags and their splits.
    data : str
        Name or path of the data.
    scores : dict of str to array [N]
        Scores of all bags under the weights "last" and, where there is one, "best".
    selected : str
        Key of `scores` that is reported.
    described : dict
        What the model file remembers of the data and its splits.
    seconds : float
        Duration of the training, of all sessions together.
    """
    bags, labels = parts.bags, parts.bags.require_labels()
    chosen = scores[selected]
    calibrator, threshold = fit_decision(labels, chosen, parts.splits)
    probabilities = None if calibrator is None else calibrator.predict(chosen)
    summary: dict[str, Any] = {}
    for name in SPLITS:
        inside = parts.splits == name
        if inside.any():
            summary[name] = summarize(
                labels[inside],
                chosen[inside],
                groups=None if bags.groups is None else bags.groups[inside],
                threshold=threshold,
                probabilities=None if probabilities is None else probabilities[inside],
            )
    weights = {"last": trainer.epoch, "best": trainer.best_epoch}
    summary["selected"] = {"weights": selected, "epoch": weights[selected]}
    summary["by_weights"] = {
        key: {
            "epoch": weights[key],
            **{f"{name}_auroc": _auroc(labels, values, parts.splits == name) for name in SPLITS},
        }
        for key, values in scores.items()
    }
    summary |= {
        "method": {k: to_dict(trainer.config)[k] for k in ("pooling", "estimator", "objective")},
        "members": trainer.config.num_members(),
        "data": {"name": data, "bags": len(bags), "instances": bags.num_instances},
        "epochs": trainer.epoch,
        "seconds": round(seconds, 3),
        "version": __version__,
    }
    save_checkpoint(
        folder.model,
        {
            "version": __version__,
            "config": to_dict(trainer.config),
            "model": trainer.reported.state_dict(),
            "calibrator": None if calibrator is None else calibrator.to_dict(),
            "threshold": threshold,
            **described,
        },
    )
    rows = prediction_rows(bags.ids, chosen, labels=labels, splits=parts.splits, probabilities=probabilities)
    write_text(folder.predictions, csv_text(["bag", "label", "split", "score", "probability"], rows))
    write_json(folder.summary, summary)
    _draw(folder, trainer, parts, scores=chosen, summary=summary, threshold=threshold)
    return summary


def fit_decision(
    labels: NDArray[np.int64], scores: NDArray[np.float64], splits: NDArray[np.str_]
) -> tuple[PlattCalibrator | None, float | None]:
    """Calibrator and operating point of the validation bags; None where these lack a class."""
    val = splits == "val"
    if not val.any() or labels[val].min() == labels[val].max():
        return None, None
    return PlattCalibrator().fit(scores[val], labels[val]), float(operating_point(labels[val], scores[val]))


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


def _auroc(labels: NDArray[np.int64], scores: NDArray[np.float64], inside: NDArray[np.bool_]) -> float | None:
    y = labels[inside]
    return None if len(y) == 0 or y.min() == y.max() else float(auroc(y, scores[inside]))


def _draw(
    folder: RunFolder,
    trainer: Trainer,
    parts: SplitBags,
    *,
    scores: NDArray[np.float64],
    summary: dict[str, Any],
    threshold: float | None,
) -> None:
    plot_curves(folder.curves, trainer.history, best_epoch=trainer.best_epoch)
    labels = parts.bags.require_labels()
    for name in ("test", "val"):
        inside = parts.splits == name
        if summary.get(name, {}).get("auroc") is not None:
            plot_roc(
                folder.roc,
                labels=labels[inside],
                scores=scores[inside],
                summary=summary[name],
                title=f"{summary['data']['name']}: {name} bags",
                threshold=threshold,
            )
            return
