"""`auto` as a method."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from midam.data.bags import Bags
from midam.errors import ConfigError, DivergedError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods.auto.candidates import Candidate, usual_candidates
from midam.methods.auto.search import SearchResult, search
from midam.methods.callbacks import QUIET, Callbacks
from midam.methods.method import Baseline, Fitted, Folds, by_bag, few_threads
from midam.methods.names import make_method
from midam.nn.pooling.base import RescaledPooling
from midam.nn.scorer import BagEnsemble, BagScorer, all_weights, scorers_of
from midam.settings import ResolvedSettings, Settings
from midam.train.build import fill_ensemble
from midam.train.side import Prepare

_INNER = "pooling.inner."
_CONTRADICTS = 0.1  # AUROC of the training bags below that of held-out bags


class Auto(Baseline):
    """`auto`: the weighted mean of the best of a few methods, chosen by inner cross-validation of the training bags.

    Parameters
    ----------
    journal
        As in `midam.methods.auto.search.search`.
    """

    uses_torch = True
    lacks = None

    def __init__(self, *, journal: Path | None = None) -> None:
        self.journal = journal

    def trained(self, bags: Bags, *, seed: int) -> BagEnsemble:
        """Return the model that is chosen on these bags."""
        return self.fit(bags, None, Settings(seed=seed).resolve(bags.instance_shape)).model

    def fit(
        self,
        train: Bags,
        val: Bags | None,  # noqa: ARG002
        settings: ResolvedSettings,
        callbacks: Callbacks = QUIET,
        folds: Folds | None = None,
    ) -> Fitted:
        """Search on the training bags, and train the chosen candidates on all of them.

        The search uses the `folds`, or else inner folds. Candidates use the instances without covariates. One that
        diverges, or that ranks the bags that it has seen much worse than its folds ranked bags that they had not, is
        left out; if none remains, a `DivergedError` is raised.
        """
        bags, seed = train.replace(covariates=None), settings.run.seed
        candidates = usual_candidates(bags.instance_shape, len(bags), bags.num_instances)
        trials, prepare = (None, None) if folds is None else folds
        with few_threads(settings):
            result = search(
                candidates,
                bags,
                seed=seed,
                journal=self.journal,
                on_candidate=callbacks.on_candidate,
                trials=trials,
                prepare=_without_covariates(prepare),
            )
            model, parts, faults = _fit_chosen(result, candidates, bags, callbacks, seed=seed)
        about = _summary_entries(result)
        about["note"] = " ".join([about["note"], *faults])
        scored = result.out_of_fold if folds is None else by_bag(result.out_of_fold, folds)
        return Fitted(model, settings, self.name, parts, {"auto": about}, out_of_fold=scored)

    def model(
        self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor], parts: Sequence[Mapping[str, Any]]
    ) -> BagEnsemble:
        """Make a model of these parts to be filled with `weights`, the state dictionary of a model of `fit`.

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
                method = make_method(part["method"])
                scorers = [method.empty(instance_shape, _inner(state)) for state in of_part]
            for scorer, line in zip(scorers, of_part):
                members.append(_rescaled(scorer, *(float(line[f"pooling.{name}"]) for name in ("scale", "offset"))))
        try:
            return BagEnsemble(members, weights["weights"])
        except ConfigError as error:  # the weights come from a file, so advice on settings is useless
            raise ValueError(str(error)) from error


def _fit_chosen(
    result: SearchResult, candidates: Sequence[Candidate], bags: Bags, callbacks: Callbacks, *, seed: int
) -> tuple[BagEnsemble, list[dict[str, Any]], list[str]]:
    """Return the model of the chosen candidates, its parts, and a line about each that is left out."""
    members, weights, parts, faults = list[BagScorer](), list[float](), list[dict[str, Any]](), list[str]()
    by_name = {candidate.name: candidate for candidate in candidates}
    rows = {row.method: row for row in result.tried}
    for number, (name, line) in enumerate(zip(result.taken, result.mixture.lines)):
        candidate = by_name[name]
        callbacks.on_candidate(f"{candidate.name}, on all training bags", number, len(result.taken), 0.0)
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
    weights = [weight / sum(weights) for weight in weights] if faults else weights
    return BagEnsemble(members, weights), parts, faults


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
            f"{', '.join(names)}, weighted by closeness to the best; the mean, chosen for each fold without it, has "
            f"{result.auroc:.3f}."
        )
    else:
        note = f"The training bags are too few for inner folds: the mean of {', '.join(names)}, untested."
    return {"tried": [asdict(row) for row in result.tried], "auroc": result.auroc, "folds": result.folds, "note": note}
