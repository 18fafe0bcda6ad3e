"""`auto` as a method of comparisons and runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from midam.compare.auto.candidates import make_candidate, usual_candidates
from midam.compare.auto.search import OnCandidate, SearchResult, search
from midam.compare.baselines import Baseline, ModelBaseline
from midam.data.bags import Bags
from midam.errors import ConfigError, DivergedError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.nn.ensemble import BagEnsemble, all_weights, scorers_of
from midam.nn.pooling.rescaled import RescaledPooling
from midam.nn.scorer import BagScorer
from midam.settings import Settings
from midam.targets import OutOfFold
from midam.train.build import fill_ensemble
from midam.train.trials import Prepare, Trial

_INNER = "pooling.inner."
_CONTRADICTS = 0.1  # AUROC of the training bags below that of held-out bags


@dataclass(frozen=True, eq=False)
class Chosen:
    """Result of the search for a model.

    Attributes
    ----------
    model : BagEnsemble
        The scorers of all chosen candidates.
    parts : list of dict
        For each chosen candidate: `method`, its name; `config`, its settings or None; `scorers`, its number of members
        in the model.
    about : dict
        Entries of summary.json: `tried`, `auroc`, `folds` and a `note`.
    out_of_fold : OutOfFold, optional
        Scores of training bags by mixtures that were not fitted to them.
    """

    model: BagEnsemble
    parts: list[dict[str, Any]]
    about: dict[str, Any]
    out_of_fold: OutOfFold | None = None


class Auto(Baseline):
    """`auto`: the weighted mean of the best of a few methods, chosen by inner cross-validation of the training bags."""

    uses_torch = True
    lacks = None
    chooses = True

    def score(self, bags: Bags, trial: Trial) -> NDArray[np.float64]:
        """Return the scores of the model that is chosen on the training bags."""
        return predict(self.choose(bags.subset(trial.train), seed=trial.seed).model, bags.subset(trial.score))

    def choose(
        self,
        bags: Bags,
        *,
        seed: int,
        budget: float | None = None,
        journal: Path | None = None,
        on_candidate: OnCandidate | None = None,
        trials: Sequence[Trial] | None = None,
        prepare: Prepare | None = None,
    ) -> Chosen:
        """Search on these bags, and train the chosen candidates on all of them; arguments are as in `search`.

        Candidates use the instances without covariates. One that diverges, or that ranks the bags that it has seen much
        worse than its folds ranked bags that they had not, is left out; if none remains, a `DivergedError` is raised.
        """
        bags = bags.replace(covariates=None)
        candidates = usual_candidates(bags.instance_shape, len(bags))
        folds: dict[str, Any] = {"trials": trials, "prepare": _without_covariates(prepare)}
        result = search(candidates, bags, seed=seed, budget=budget, journal=journal, on_candidate=on_candidate, **folds)
        members: list[BagScorer] = []
        weights: list[float] = []
        parts: list[dict[str, Any]] = []
        by_name = {candidate.name: candidate for candidate in candidates}
        rows = {row.method: row for row in result.tried}
        faults: list[str] = []
        for number, (name, line) in enumerate(zip(result.taken, result.mixture.lines)):
            candidate = by_name[name]
            if on_candidate is not None:
                on_candidate(f"{candidate.name}, on all training bags", number, len(result.taken))
            try:
                scorers = candidate.fit(bags, seed=seed, epochs=rows[name].epochs)
                _check_rank(scorers, bags, rows[name].auroc)
            except DivergedError as error:
                faults.append(f"{name} is left out: {error}")
                continue
            members += [_rescaled(scorer, line.slope, line.intercept) for scorer in scorers]
            weights += [float(result.mixture.weights[number]) / len(scorers)] * len(scorers)
            config = None if candidate.config is None else candidate.config.flat()
            parts.append({"method": candidate.name, "config": config, "scorers": len(scorers)})
        if not members:
            raise DivergedError(" ".join(faults))
        about = _summary_entries(result)
        about["note"] = " ".join([about["note"], *faults])
        weights = [weight / sum(weights) for weight in weights] if faults else weights
        return Chosen(BagEnsemble(members, weights), parts, about, result.out_of_fold)

    def model(
        self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor], parts: Sequence[Mapping[str, Any]]
    ) -> BagEnsemble:
        """Make a model of these parts to be filled with `weights`, the state dictionary of a model of `choose`.

        Raises a `ValueError` or `KeyError` if weights and parts do not fit each other.
        """
        members: list[BagScorer] = []
        states = all_weights(weights)
        if sum(part["scorers"] for part in parts) != len(states):
            raise ValueError(f"parts of other than {len(states)} scorers")
        for part in parts:
            of_part = states[len(members) : len(members) + part["scorers"]]
            if part["config"] is not None:
                saved = Settings.from_flat(part["config"])
                settings = saved.replace(members=part["scorers"]).resolve(instance_shape)
                inner = [_inner(state) for state in of_part]
                scorers = scorers_of(fill_ensemble(settings, inner, instance_shape=instance_shape))
            else:
                scorers = [_empty(part["method"], instance_shape, _inner(of_part[0]))]
            for scorer, line in zip(scorers, of_part):
                members.append(_rescaled(scorer, *(float(line[f"pooling.{name}"]) for name in ("scale", "offset"))))
        try:
            return BagEnsemble(members, weights["weights"])
        except ConfigError as error:  # the weights come from a file, so advice on settings is useless
            raise ValueError(str(error)) from error


def _without_covariates(prepare: Prepare | None) -> Prepare | None:
    return None if prepare is None else lambda trial: prepare(trial).replace(covariates=None)


def _check_rank(scorers: Sequence[BagScorer], bags: Bags, held_out: float | None) -> None:
    """Refuse scorers that rank their own training bags far below the AUROC of held-out bags of the inner folds."""
    trained = auroc(bags.require_labels(), predict(BagEnsemble(scorers), bags))
    if held_out is not None and trained < held_out - _CONTRADICTS:
        raise DivergedError(
            f"Expected an AUROC of the training bags near that of the inner folds, {held_out:.3f}, got {trained:.3f}; "
            "train another method, or midam with other settings."
        )


def _rescaled(scorer: BagScorer, scale: float, offset: float) -> BagScorer:
    pooling = RescaledPooling(scorer.pooling, scale, offset)
    return BagScorer(scorer.encoder, pooling, standardizer=scorer.standardizer)


def _empty(name: str, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:
    """Return a model of a baseline to be filled with these weights."""
    baseline = make_candidate(name, instance_shape).baseline
    if not isinstance(baseline, ModelBaseline):
        raise ValueError(f"{name} is no such method")
    return baseline.scorer(instance_shape, weights)


def _inner(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a scorer before its pooling was rescaled."""
    kept = [name for name in weights if name not in ("pooling.scale", "pooling.offset")]
    return {name.replace(_INNER, "pooling."): weights[name] for name in kept}


def _summary_entries(result: SearchResult) -> dict[str, Any]:
    """Return the summary's entries about a search."""
    taken = [row for row in result.tried if row.weight > 0]
    names = [f"{row.method} ({row.weight:.2f}{f', {row.epochs} epochs' if row.epochs else ''})" for row in taken]
    if result.folds:
        note = (
            f"Chosen by the mean AUROC over {result.folds} inner folds of the training bags: a mean of "
            f"{', '.join(names)}, weighted by closeness to the best; the mean, with the weights of the other folds for "
            f"each, has {result.auroc:.3f}."
        )
    else:
        note = f"The training bags are too few for inner folds: the mean of {', '.join(names)}, untested."
    return {"tried": [asdict(row) for row in result.tried], "auroc": result.auroc, "folds": result.folds, "note": note}
