"""Cross-validation as the answer of a run: models that have not seen a bag score it, and all bags train the model."""

import hashlib
import json
import warnings
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from midam.data.bags import Bags
from midam.data.column_codes import prepare
from midam.errors import CheckpointError, ConfigError, DivergedError
from midam.evaluate.predict import predict
from midam.files import Journal
from midam.methods.callbacks import Callbacks
from midam.reading import Form, Share, check_form
from midam.runs.data import SplitBags
from midam.runs.folder import RunFolder
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


class _Row(Form):
    """A line of folds.jsonl."""

    fold: Annotated[int, Field(ge=0)]
    digest: str
    scores: list[Share] | list[list[Share]]


def train_folds(parts: SplitBags, config: ResolvedSettings, folder: RunFolder, calls: Callbacks) -> OutOfFold:
    """Train a model for each fold on the bags of the others, and score its bags; a second call skips finished folds."""
    if parts.folds is None:
        raise ConfigError("Expected bags with folds, got none; choose them first.")
    bags, folds = parts.bags, parts.folds
    trials, prepared = fold_trials(folds, seed=config.run.seed), preparing(parts, config)
    calls.on_stage(f"cross-validation, {len(trials)} folds", len(bags))
    busy = ConfigError(f"Expected no other process that continues {folder.root}, got one; wait for its end.")
    scores: Scores | None = None
    with Journal(folder.folds, busy=busy) as journal:
        digest = hashlib.sha256(json.dumps([bags.fingerprint(), folds.tolist()]).encode()).hexdigest()
        done = _finished(journal, trials, folder, digest)
        for fold, trial in enumerate(trials):
            if fold not in done:
                seen = bags if prepared is None else prepared(trial)
                done[fold] = _score(seen, config, trial, fold)
                journal.add([{"fold": fold, "digest": digest, "scores": done[fold].tolist()}])
            if scores is None:
                scores = np.empty((len(bags), *done[fold].shape[1:]))
            scores[trial.score] = done[fold]
            calls.on_bags(trial.score.tolist())
    return OutOfFold(target_of(bags).values(bags), np.asarray(scores), folds)


def _score(bags: Bags, config: ResolvedSettings, trial: Trial, fold: int) -> Scores:
    try:
        with warnings.catch_warnings(action="ignore"):  # the training on all bags has warned
            trainer = Trainer(config.replace(seed=trial.seed), bags.subset(trial.train)).fit()
    except DivergedError as error:
        raise DivergedError(f"Fold {fold + 1} of the cross-validation: {error}") from error
    return predict(trainer.reported, bags.subset(trial.score), chunk_size=config.run.chunk_size)


def _finished(journal: Journal, trials: list[Trial], folder: RunFolder, digest: str) -> dict[int, Scores]:
    """Return the scores of the folds in the journal; `digest` is that of bags and folds."""
    advice = "remove the file to score the folds again"
    if journal.damaged is not None:
        raise CheckpointError(
            f"Expected a fold in each line, got damage (in {folder.folds}, line {journal.damaged}); {advice}."
        )
    done: dict[int, Scores] = {}
    for row in journal.rows:
        check_form(row, _Row, folder.folds, expected="a scored fold", advice=advice)
        if (
            row["digest"] != digest
            or row["fold"] >= len(trials)
            or len(row["scores"]) != len(trials[row["fold"]].score)
        ):
            raise CheckpointError(
                f"Expected the bags, groups and folds that the run was started with, got others (in {folder.folds}, "
                f"fold {row['fold']}); resume with the same data, or {advice}."
            )
        done[row["fold"]] = np.array(row["scores"], dtype=np.float64)
    return done
