"""The baseline beside a run: a plain method, trained on the same bags and scored on the same bags as the model.

Statistics of each bag (mean, minimum, maximum and deviation of each feature; of images mean and deviation of each
color) in 500 extremely randomized trees, as `midam compare` trains them. Nothing of it is tuned.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import first_line
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.ranking import auroc
from midam.files import write_text
from midam.registry import BASELINES
from midam.runs.data import SplitBags
from midam.runs.folder import RunFolder, csv_text
from midam.settings.model import are_pixels
from midam.train.lockstep import Trial

COMPARED = ("test", "val")  # splits to compare on, the first that holds both classes
_FEATURES, _PIXELS = "bag-statistics-extratrees", "rgb-trees"


@dataclass(frozen=True)
class Beside:
    """What came of the baseline.

    Attributes
    ----------
    found : dict, optional
        Entry of summary.json; None without a baseline.
    note : str, optional
        Why there is none.
    scores : array [N], optional
        Scores of the bags of the split that `found` names as `part`.
    seconds : float
        What it took.
    """

    found: dict[str, Any] | None = None
    note: str | None = None
    scores: NDArray[np.float64] | None = None
    seconds: float = 0.0


def usual_baseline(instance_shape: tuple[int, ...]) -> str:
    """Name of the baseline of instances of a shape: statistics of features, or of the colors of images and volumes."""
    return _PIXELS if are_pixels(instance_shape) else _FEATURES


def train_beside(parts: SplitBags, scores: NDArray[np.float64], *, seed: int) -> Beside:
    """Train the baseline on the training bags, and compare the model's `scores` [N] of all bags with it.

    Compared are the test bags, or the validation bags where there are no test bags of both classes. Whatever goes wrong
    is a note: a trained model is not lost for its baseline.
    """
    bags, splits = parts.bags, parts.splits
    labels = bags.require_labels()
    part = next((name for name in COMPARED if len(np.unique(labels[splits == name])) > 1), None)
    if part is None:
        return Beside(note="there are no test or validation bags of both classes to compare on")
    name, started = usual_baseline(bags.instance_shape), time.monotonic()
    train, tested = (np.flatnonzero(splits == own) for own in ("train", part))
    try:
        found = np.asarray(BASELINES.find(name)().score(bags, Trial(train, tested, seed)), dtype=np.float64)
        entry = {"method": name, "part": part, **compared_auroc(bags.subset(tested), scores[tested], found)}
    except Exception as error:  # a package of others raises what it likes
        return Beside(note=f"{name} failed ({first_line(error)})", seconds=time.monotonic() - started)
    return Beside(entry, scores=found, seconds=time.monotonic() - started)


def compared_auroc(bags: Bags, model: NDArray[np.float64], baseline: NDArray[np.float64]) -> dict[str, Any]:
    """AUROC of a baseline's scores [N] of bags, and how much higher that of a model is, with their intervals."""
    labels, groups = bags.require_labels(), bags.groups
    area, own = auroc(labels, baseline), auroc_interval(labels, baseline, groups=groups)
    difference, low, high, _ = paired_delong(labels, model, baseline, groups=groups)
    clustered = groups is not None and len(np.unique(groups)) < len(bags)
    return {
        "auroc": area,
        "auroc_ci95": [own.low, own.high],
        "auroc_method": own.method,
        "difference": difference,
        "difference_ci95": [low, high],
        "difference_method": "paired obuchowski (groups)" if clustered else "paired delong",
    }


def write_scores(folder: RunFolder, parts: SplitBags, beside: Beside) -> None:
    """Write baseline.csv, a row a compared bag: bag, label, split, score."""
    if beside.found is None or beside.scores is None:
        return
    part = beside.found["part"]
    bags = parts.part(part)
    columns: dict[str, list[Any]] = {"bag": bags.ids.tolist(), "label": bags.require_labels().tolist()}
    columns |= {"split": [part] * len(bags), "score": beside.scores.tolist()}
    rows = (dict(zip(columns, row)) for row in zip(*columns.values(), strict=True))
    write_text(folder.baseline, csv_text(list(columns), rows))


def read_scores(folder: RunFolder, ids: NDArray[np.str_], labels: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Scores [N] of the baseline for just these bags with these labels; None where the run has none, or of others."""
    if not folder.baseline.exists():
        return None
    frame = pd.read_csv(folder.baseline, dtype={"bag": str}, keep_default_na=False).set_index("bag")
    if sorted(frame.index) != sorted(ids.tolist()):
        return None
    found = frame.loc[ids.tolist()]
    return found["score"].to_numpy(dtype=np.float64) if found["label"].tolist() == labels.tolist() else None
