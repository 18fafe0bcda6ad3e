"""Cross-validation as the answer of a run: models that have not seen a bag score it, and all bags train the model."""

import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.column_codes import prepare
from midam.errors import CheckpointError, DivergedError
from midam.evaluate.predict import predict
from midam.methods.callbacks import QUIET, Callbacks
from midam.methods.method import Folds
from midam.methods.store import Row, TrialStore
from midam.reading import Form, Share, check_form
from midam.runs.data import SplitBags
from midam.runs.folds import fold_trials
from midam.settings import ResolvedSettings, Settings
from midam.targets import OutOfFold, target_of
from midam.train.side import Prepare, Trial
from midam.train.trainer import Trainer

Scores = NDArray[np.float64]


def preparing(parts: SplitBags, settings: Settings) -> Prepare | None:
    """Return the function that codes columns and fills gaps by the training bags of a fold; None if there are none."""
    if parts.raw is None:
        return None
    raw = parts.raw

    def prepared(trial: Trial) -> Bags:
        with warnings.catch_warnings(action="ignore"):  # the training on all bags has warned
            return prepare(raw, settings.data, train=trial.train).bags

    return prepared


def trials_of(parts: SplitBags, settings: Settings) -> Folds | None:
    """Return the trainings of the folds of the bags; None if they have none."""
    if parts.folds is None:
        return None
    return Folds(fold_trials(parts.folds, seed=settings.run.seed), preparing(parts, settings))


class _Row(Form):
    """A line of folds.jsonl."""

    fold: int
    digest: str
    scores: list[Share] | list[list[Share]]


def train_folds(
    parts: SplitBags, config: ResolvedSettings, journal: Path | None = None, calls: Callbacks = QUIET
) -> OutOfFold:
    """Train a model for each fold on the bags of the others, and score its bags.

    With a `journal`, a file, a second call skips finished folds.
    """
    bags, folds = parts.bags, np.asarray(parts.folds)
    trials, prepared = fold_trials(folds, seed=config.run.seed), preparing(parts, config)
    calls.on_stage(f"cross-validation, {len(trials)} folds", len(bags))
    digest = hashlib.sha256(json.dumps([bags.fingerprint(), folds.tolist()]).encode()).hexdigest()
    scores: Scores | None = None
    with TrialStore(journal) as store:
        if journal is not None:
            _check_rows(store.rows, trials, journal, digest)
        for fold, trial in enumerate(trials):
            name = {"fold": fold, "digest": digest}
            (row,) = store.find([name])
            if row is None:
                seen = bags if prepared is None else prepared(trial)
                row = {**name, "scores": _score(seen, config, trial, fold).tolist()}
                store.add([row])
            of_fold = np.array(row["scores"], dtype=np.float64)
            scores = np.empty((len(bags), *of_fold.shape[1:])) if scores is None else scores
            scores[trial.score] = of_fold
            calls.on_bags(trial.score.tolist())
    return OutOfFold(target_of(bags).values(bags), np.asarray(scores), folds, bags.groups)


def _score(bags: Bags, config: ResolvedSettings, trial: Trial, fold: int) -> Scores:
    try:
        with warnings.catch_warnings(action="ignore"):  # the training on all bags has warned
            trainer = Trainer(config.replace(seed=trial.seed), bags.subset(trial.train)).fit()
    except DivergedError as error:
        raise DivergedError(f"Fold {fold + 1} of the cross-validation: {error}") from error
    return predict(trainer.model, bags.subset(trial.score), chunk_size=config.run.chunk_size)


def _check_rows(rows: Sequence[Row], trials: Sequence[Trial], journal: Path, digest: str) -> None:
    """Refuse scores of folds of other bags; `digest` is that of bags and folds."""
    advice = "remove the file to score the folds again"
    sizes = [len(trial.score) for trial in trials]
    for row in rows:
        check_form(row, _Row, journal, expected="a scored fold", advice=advice)
        if row["digest"] != digest or sizes[row["fold"] : row["fold"] + 1] != [len(row["scores"])]:
            raise CheckpointError(
                f"Expected the bags, groups and folds that the run was started with, got others (in {journal}, "
                f"fold {row['fold']}); resume with the same data, or {advice}."
            )
