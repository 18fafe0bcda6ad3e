"""The trials of the study of screening: its bags, its rules, their training, and the results of a trial."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.evaluate.metrics import auprc
from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions

SECTION = "screening"
FALSE_ALARMS = 0.05  # the specificity of the first metric is at least 95%
GRID = tuple(round(0.005 * k, 3) for k in range(41))  # false positive rates of the curves
_NINE = 9
_SHARES = (0.6, 0.15)  # of the images: train, validation; the rest is for test bags
METRICS = ("sensitivity", "average_precision", "auroc")


@dataclass(frozen=True)
class Rule:
    """An objective, defined by the settings that differ from the other objectives."""

    name: str
    settings: dict[str, Any] = field(hash=False)


REFERENCE = Rule("minmax-auc", {"objective": "minmax-auc"})
RULES = (
    REFERENCE,
    Rule("partial-auc", {"objective": "partial-auc"}),
    Rule("partial-auc, two-way", {"objective": "partial-auc", "tpr_temperature": 1.0}),
    Rule("partial-auc, max_fpr 0.1", {"objective": "partial-auc", "max_fpr": 0.1}),
    Rule("average-precision", {"objective": "average-precision"}),
    Rule("pairwise", {"objective": "pairwise"}),
    Rule("bce", {"objective": "bce"}),
)


@dataclass(frozen=True)
class Design:
    """Sizes of the study: bags of `size` instances, one of which makes a bag positive."""

    seeds: tuple[int, ...] = tuple(range(10))
    choice_seeds: tuple[int, ...] = (100, 101, 102)  # seeds that choose the rates
    rates: tuple[float, ...] = (0.0003, 0.001, 0.003, 0.01, 0.03)
    size: int = 20
    train: tuple[int, int] = (20, 380)  # positive and negative bags
    test: tuple[int, int] = (100, 1900)
    epochs: int = 60

    def config(self, rule: Rule, rate: float) -> Settings:
        """Return the settings of a training."""
        return Settings(
            pooling="smoothed-max",
            estimator="vrsp",
            epochs=self.epochs,
            optimizer="adam",
            lr=rate,
            num_instances=8,
            hidden=[32],
            members=1,
            center_start=0.5,
            standardize=False,
            accelerator="cpu",
            threads=1,
            **rule.settings,
        )


FULL = Design()
QUICK = Design(seeds=(0, 1, 2), choice_seeds=(100,), rates=(0.003, 0.01))
SMALLER = Design(seeds=(0, 1), choice_seeds=(100,), rates=(0.003, 0.01), size=6, train=(8, 16), test=(4, 36), epochs=2)
# A design, a rule, its learning rate, and the seeds that train together.
Task = tuple[Design, Rule, float, tuple[int, ...]]


def run_trials(design: Design, *, store: Store, options: StudyOptions) -> dict[str, float]:
    """Compute the trials that are not in the store; returns the learning rate of each rule."""
    groups = [_group(design, rule, rate, design.choice_seeds) for rule in RULES for rate in design.rates]
    complete(groups, _train, store=store, options=options, section=SECTION)
    chosen = {rule.name: _best_rate(design, rule, store) for rule in RULES}
    groups = [_group(design, rule, chosen[rule.name], design.seeds) for rule in RULES]
    complete(groups, _train, store=store, options=options, section=SECTION)
    return chosen


def outcomes(design: Design, store: Store, rule: Rule, rate: float, seeds: Sequence[int]) -> list[Row]:
    """Return the outcome of each seed from the store."""
    found = store.find([_name(design, rule, rate, seed) for seed in seeds])
    return [row for row in found if row is not None]


def sensitivities(
    labels: NDArray[np.int64], scores: NDArray[np.float64], rates: Sequence[float]
) -> NDArray[np.float64]:
    """Return the largest share of positive bags above a threshold, at false positive rates of at most `rates`.

    With scores that are not finite, no bag is found.

    Examples
    --------
    >>> sensitivities(np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.7, 0.1]), [0.0, 0.5]).tolist()
    [0.5, 1.0]
    """
    if not np.isfinite(scores).all():
        return np.zeros(len(rates))
    negatives = np.sort(scores[labels == 0])[::-1]
    allowed = np.floor(np.asarray(rates) * len(negatives) + 1e-9).astype(np.int64)
    above = np.append(negatives, -np.inf)[allowed]
    found: NDArray[np.float64] = (scores[labels == 1] > above[:, None]).mean(axis=1)
    return found


def image_share(design: Design) -> float:
    """Return the average share of the negative test bags that contain a given image of the test pool."""
    images = split_images(design.seeds[0])
    count = len(images["val"][1]) + len(images["test"][1])
    return float(1 - (1 - 1 / count) ** design.size)


@lru_cache(maxsize=8)
def split_images(seed: int) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the 8x8 digits of each split, the nines and the others, disjoint between the splits."""
    digits = load_digits().target
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed])))
    parts = []
    for rows in (np.flatnonzero(digits == _NINE), np.flatnonzero(digits != _NINE)):
        cuts = (np.cumsum(_SHARES) * len(rows)).astype(np.int64)
        parts.append(np.split(rng.permutation(rows), cuts))
    return dict(zip(("train", "val", "test"), zip(*parts)))


@lru_cache(maxsize=8)
def scaled_images(seed: int) -> NDArray[np.float16]:
    """Return all digits [1797, 64], centered and scaled by the pixels of the training images of a seed."""
    images = load_digits().data
    train = images[np.concatenate(split_images(seed)["train"])]
    return ((images - train.mean()) / train.std()).astype(np.float16)


@lru_cache(maxsize=2)
def screening_bags(design: Design, seeds: tuple[int, ...]) -> Bags:
    """Return bags of digits for each seed, training bags before test bags; a positive bag has one nine.

    Training and test bags share no image. Images are drawn with replacement.
    """
    rows, labels = [], []
    for seed in seeds:
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, design.size])))
        images = split_images(seed)
        rest = tuple(np.concatenate([images["val"][k], images["test"][k]]) for k in range(2))
        for (nines, others), (positive, negative) in ((images["train"], design.train), (rest, design.test)):
            drawn = rng.choice(others, (positive + negative, design.size))
            drawn[:positive, 0] = rng.choice(nines, positive)
            rows.append(scaled_images(seed).take(rng.permuted(drawn, axis=1), axis=0))
            labels.append(np.arange(positive + negative) < positive)
    instances = np.concatenate(rows).astype(np.float32)
    count = len(instances)
    return Bags(
        instances.reshape(-1, instances.shape[-1]),
        starts=np.arange(count) * design.size,
        sizes=np.full(count, design.size),
        labels=np.concatenate(labels).astype(np.int64),
        source="digits",
    )


def _train(task: Task) -> list[Row]:
    """Train a rule on the bags of all seeds together; a trial that diverged finds no bag."""
    design, rule, rate, seeds = task
    bags, trials = screening_bags(design, seeds), []
    train, total = sum(design.train), sum(design.train) + sum(design.test)
    for place, seed in enumerate(seeds):
        own = np.arange(place * total, (place + 1) * total)
        trials.append(Trial(own[:train], own[train:], seed))
    labels, rows = bags.require_labels(), []
    for trial, found in zip(trials, train_trials(design.config(rule, rate), bags, trials)):
        y, h = labels[trial.score], found.scores[-1]
        lost = not np.isfinite(h).all()
        rows.append(
            {
                "sensitivity": float(sensitivities(y, h, [FALSE_ALARMS])[0]),
                "average_precision": float(y.mean()) if lost else auprc(y, h),
                "auroc": 0.5 if lost else auroc(y, h),
                "curve": [round(float(x), 4) for x in sensitivities(y, h, GRID)],
            }
        )
    return rows


def _best_rate(design: Design, rule: Rule, store: Store) -> float:
    """Return the learning rate with the highest mean sensitivity on the seeds of the choice, the first at a tie."""
    means = [
        np.mean([row["sensitivity"] for row in outcomes(design, store, rule, rate, design.choice_seeds)])
        for rate in design.rates
    ]
    return design.rates[int(np.argmax(means))]


def _group(design: Design, rule: Rule, rate: float, seeds: tuple[int, ...]) -> Group[Task]:
    return Group([_name(design, rule, rate, seed) for seed in seeds], [(design, rule, rate, seeds)])


def _name(design: Design, rule: Rule, rate: float, seed: int) -> Row:
    return trial_name(
        SECTION,
        rule=rule.name,
        lr=rate,
        seed=seed,
        bags=[design.size, *design.train, *design.test],
        settings=settings_hash(design.config(rule, rate)),
    )
