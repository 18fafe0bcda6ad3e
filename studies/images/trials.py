"""Trials on images: choose settings on validation bags, train a scorer, and keep the scores of its test bags."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.errors import DivergedError
from midam.evaluate.predict import cpu_threads
from midam.evaluate.ranking import auroc
from midam.methods.names import DEFAULT
from midam.methods.store import Row
from midam.nn.standardizer import Standardizer
from midam.registry import BASELINES
from midam.settings import Settings
from midam.sklearn.classifier import MIDAMClassifier
from midam.train.members import fit_standardizers
from midam.train.side import Trial
from midam.train.trainer import Trainer
from studies.engine import Store, complete, settings_hash, short_digest, trial_name
from studies.images.design import STACKED, Recipe, image_config, is_ce
from studies.images.sets import ImageSet, image_splits
from studies.options import StudyOptions
from studies.splits import Split

_CLIP, _ROWS = 3.0, 4096  # rows at a time, for vectors that are standardized once
_NEXT_SEED = 1000  # for further trainings of a search; no trial has such a high seed


@dataclass(frozen=True, eq=False)
class Job:
    """One trial: a method (or a baseline) on one split of a set."""

    # Set and method
    name: str
    method: str
    recipe: Recipe  # Recipe of the set
    bags: Bags  # The view of the set that the method uses
    split: Split  # Its bags and seed
    cuda: bool  # Train on a GPU
    settings: str  # Digest of everything that determines the result

    @property
    def trial(self) -> Row:
        """Return the name of the trial."""
        place = {"split": self.split.split, "fold": self.split.fold}
        return trial_name("images", set=self.name, method=self.method, settings=self.settings, **place)

    @property
    def is_baseline(self) -> bool:
        """Return whether the method is a baseline."""
        return self.method in self.recipe.baselines


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of bags at some epochs."""

    epochs: tuple[int, ...]  # Epochs of the scores; fewer than requested after a divergence
    scores: NDArray[np.float64]  # Scores of the requested bags [E, n]
    train: NDArray[np.float64]  # AUROC of the training bags at the points of the training, of each epoch [epochs]
    steps: int  # Number of steps


def make_jobs(name: str, found: ImageSet, recipe: Recipe, *, cuda: bool = False) -> list[Job]:
    """Return all trials of a set, baselines first."""
    jobs = []
    splits = image_splits(found.bags, recipe)
    for method in (*recipe.baselines, *recipe.methods):
        bags = found.stacked if method in STACKED else found.bags
        settings = _settings(method, recipe, bags, cuda=cuda)
        jobs += [Job(name, method, recipe, bags, split, cuda, settings) for split in splits]
    return jobs


def run_jobs(jobs: Sequence[Job], *, store: Store, options: StudyOptions, section: str) -> None:
    """Run the trials that the store does not hold."""
    groups = [Group([job.trial], [job]) for job in jobs]
    complete(groups, run_job, store=store, options=options, section=section)


def run_job(job: Job) -> list[Row]:
    """Run a trial; test bags are scored, but choose nothing."""
    started = time.perf_counter()
    with cpu_threads(1):
        if job.recipe.standardized:
            job = replace(job, bags=_standardized(job.bags, job.split))
        found = _baseline(job) if job.is_baseline else _trained(job)
    device = torch.cuda.get_device_name() if job.cuda and not job.is_baseline else "CPU"
    return [{"seed": job.split.seed, **found, "device": device, "seconds": time.perf_counter() - started}]


def train_scored(
    config: Settings, bags: Bags, split: Split, *, score: NDArray[np.int64], epochs: Sequence[int]
) -> Scored:
    """Train on a split's training bags and score bags after some epochs."""
    trainer = make_trainer(config, bags, split)
    scored = bags.subset(score)
    reader = trainer.reader(scored) if len(score) else None
    per_epoch = -(-len(split.train) // sum(config.training.batch[:2]))
    reached, scores = [], []

    def score_bags(trainer: Trainer, _: object) -> None:
        if trainer.epoch in epochs:
            reached.append(trainer.epoch)
            scores.append(np.zeros(0) if reader is None else trainer.scores(scored, reader))

    with suppress(DivergedError):
        trainer.fit(callbacks=[score_bags])
    train = np.array([row["train_auroc"] for row in trainer.history])
    return Scored(tuple(reached), np.array(scores).reshape(len(reached), len(score)), train, trainer.epoch * per_epoch)


def make_trainer(config: Settings, bags: Bags, split: Split) -> Trainer:
    """Return the trainer of a split."""
    return Trainer(config.replace(seed=split.seed), bags.subset(split.train))


def bags_digest(bags: Bags) -> str:
    """Return the digest of bags without their groups and splits: a trial names its fold, and older trials are found."""
    return bags.replace(groups=None, splits=None).fingerprint()


def score_epochs(epochs: int, every: int) -> list[int]:
    """Return the epochs at every multiple of `every`, and the last epoch.

    Examples
    --------
    >>> score_epochs(10, 4)
    [4, 8, 10]
    """
    return sorted({*range(every, epochs + 1, every), epochs})


def search(job: Job) -> tuple[float, float, list[list[float]]]:
    """Choose learning rate and margin by the validation AUROC of short trainings: the rate first, then the margin.

    Returns
    -------
    lr, margin, tried : float, float, list of [lr, margin, validation AUROC]
        A training that diverged counts as -1; at a tie the first is chosen.
    """
    lrs, margins = job.recipe.rates(job.method), job.recipe.margins_of(job.method)
    tried: list[list[float]] = []
    if len(lrs) * len(margins) == 1:
        return lrs[0], margins[0], tried
    for lr in lrs:
        tried.append([lr, margins[0], _validated(job, lr, margins[0])])
    lr = max(tried, key=lambda row: row[2])[0]
    tried += [[lr, margin, _validated(job, lr, margin)] for margin in margins[1:]]
    best = max((row for row in tried if row[0] == lr), key=lambda row: row[2])
    return lr, best[1], tried


@torch.no_grad()
def _standardized(bags: Bags, split: Split) -> Bags:
    """Return bags of vectors in memory, standardized by the training bags of a split."""
    standardizer = Standardizer(bags.instance_shape, clip=_CLIP, scaling="linear")
    fit_standardizers([standardizer], bags.subset(split.train), seed=split.seed)
    values = np.empty((bags.num_instances, *bags.instance_shape), np.float32)
    for low in range(0, len(values), _ROWS):
        part = slice(low, low + _ROWS)
        values[part] = standardizer(torch.from_numpy(np.asarray(bags.instances[part]))).numpy()
    return bags.replace(instances=values, digests=None)


def _validated(job: Job, lr: float, margin: float) -> float:
    epochs = job.recipe.search_epochs(job.method)
    config = image_config(job.method, job.recipe, lr=lr, margin=margin, epochs=epochs, cuda=job.cuda)
    areas = []
    for number in range(job.recipe.tries):
        split = replace(job.split, seed_offset=number * _NEXT_SEED)
        found = train_scored(config, job.bags, split, score=job.split.val, epochs=[epochs])
        if not found.epochs or not np.isfinite(found.scores).all():
            return -1.0
        areas.append(auroc(job.bags.require_labels()[job.split.val], found.scores[0]))
    return float(np.mean(areas))


def _trained(job: Job) -> Row:
    lr, margin, tried = search(job)
    epochs = job.recipe.epochs_of(job.method)
    config = image_config(job.method, job.recipe, lr=lr, margin=margin, epochs=epochs, cuda=job.cuda)
    when = score_epochs(epochs, job.recipe.score_every if len(job.split.val) else epochs)
    found = train_scored(config, job.bags, job.split, score=job.split.score, epochs=when)
    row: Row = {"lr": lr, "margin": None if is_ce(job.method) else margin, "search": tried, "steps": found.steps}
    row |= {"epochs": epochs, "train_last": None, "val_best": None, "best_epoch": None}
    if not found.epochs or found.epochs[-1] < epochs or not np.isfinite(found.scores[-1]).all():
        return {**row, "test_best": None, "test_last": None}
    count = len(job.split.val)
    best = len(found.epochs) - 1
    if count:
        labels = job.bags.require_labels()[job.split.val]
        areas = [auroc(labels, own) if np.isfinite(own).all() else -1.0 for own in found.scores[:, :count]]
        best = int(np.flatnonzero(np.array(areas) == max(areas))[-1])
        row["val_best"] = float(areas[best])
    row |= {"train_last": float(found.train[-1]), "best_epoch": found.epochs[best]}
    return {**row, "test_best": _kept(found.scores[best, count:]), "test_last": _kept(found.scores[-1, count:])}


def _baseline(job: Job) -> Row:
    # A baseline has no epoch to choose, so it trains on the validation bags too.
    train = np.sort(np.concatenate([job.split.train, job.split.val]))
    if job.method == DEFAULT:
        fitted = MIDAMClassifier(seed=job.split.seed, epochs=job.recipe.epochs, threads=1).fit(job.bags.subset(train))
        scores = _kept(fitted.bag_scores(job.bags.subset(job.split.test)))
    else:
        scores = _kept(BASELINES.find(job.method)().score(job.bags, Trial(train, job.split.test, job.split.seed)))
    return {"epochs": None, "steps": 0, "test_best": scores, "test_last": scores}


def _kept(scores: NDArray[np.float64]) -> list[float]:
    return [float(f"{score:.9g}") for score in scores]


def _settings(method: str, recipe: Recipe, bags: Bags, *, cuda: bool) -> str:
    content: list[Any] = [bags_digest(bags), recipe.validates]
    if method not in recipe.baselines:
        epochs = recipe.epochs_of(method)
        config = image_config(method, recipe, lr=0.1, margin=1.0, epochs=epochs, cuda=cuda)
        grid = [recipe.rates(method), recipe.margins_of(method), recipe.search_epochs(method), recipe.score_every]
        grid += [recipe.tries] if recipe.tries > 1 else []
        content += [settings_hash(config), grid]
    elif method == DEFAULT:
        content.append(settings_hash(Settings(epochs=recipe.epochs)))
    return short_digest(content)
