"""Evaluate a run by its target, and write the files of a finished run: model, predictions, summary, figures."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from midam._version import __version__
from midam.data.bags import Bags
from midam.data.column_codes import CovariateCoder
from midam.data.sources.patients import group_origin
from midam.evaluate.calibrate import BinaryDecision
from midam.evaluate.decisions import Decision
from midam.evaluate.predict import predict
from midam.evaluate.subgroups import Estimator, binary_figures, find_subgroups
from midam.files import write_text
from midam.methods.callbacks import Callbacks
from midam.methods.method import Fitted
from midam.methods.names import taken_settings
from midam.nn.scorer import BagEnsemble, scorers_of
from midam.process_group import Ranks
from midam.runs import baseline as baselines
from midam.runs.baseline import compared_part, train_baseline
from midam.runs.cross_validation import preparing
from midam.runs.data import Reading, SplitBags
from midam.runs.folder import OUT_OF_FOLD, SPLITS, RunFolder, csv_text
from midam.runs.instance_files import labeled_bags, summarize_instances
from midam.runs.result import Result
from midam.targets import OutOfFold, Target, label_columns, target_of
from midam.train.checkpoint import save_checkpoint
from midam.train.side import Trial

Scores = NDArray[np.float64]
_ROWS = 10_000  # of a table that are formatted at a time


class RunEvaluation:
    """Scores [N] or [N, C] of all bags of a run, and the decision that is fitted on its validation bags.

    If validation bags are few, training bags scored out of fold are added.

    Attributes
    ----------
    target : Target
        Target of the bags.
    splits, scores, values : array [N], [N] or [N, C], [N] or [N, L]
        Split, scores and labels of the bags.
    decision, decided : Decision or None
        Rule that turns scores of new bags, and the scores of these bags, into predictions; None if the validation bags
        do not suffice. For bags of folds, the second is what the other folds decide.
    folds : array [N], optional
        Fold of each bag, if models of folds scored them.
    """

    def __init__(self, fitted: Fitted, parts: SplitBags, scores: Scores) -> None:
        self.model, self.parts, self.chunk_size = fitted.model, parts, fitted.config.run.chunk_size
        self.target, self.folds = target_of(parts.bags), parts.folds
        rule, out_of_fold = fitted.config.run.threshold, fitted.out_of_fold
        self.decided: Decision | None
        self.splits, self.scores, self.values = parts.splits, scores, self.target.values(parts.bags)
        if parts.folds is not None and out_of_fold is not None:
            self.splits = np.full(len(scores), OUT_OF_FOLD)
            made = self.target.cross_decide(out_of_fold, rule=rule, alike=not parts.by_site)
            self.scores, self.decision, self.decided = made
            return
        held = parts.splits == "val"
        self.decision = self.target.decide(self.values[held], scores[held], rule=rule, out_of_fold=out_of_fold)
        self.decided = self.decision

    def by_site(self) -> dict[str, dict[str, Any]]:
        """Return the metrics of each site, which a model of the other sites has scored, at the threshold of those."""
        figures: Mapping[str, Estimator] = {self.target.metric: self.target.estimate}
        called: NDArray[np.int64] | None = None
        if isinstance(self.decision, BinaryDecision):
            called, figures = self.decision.call(self.scores), binary_figures(self.decision.threshold)
        bags = self.parts.bags
        sites: NDArray[np.str_] = np.asarray(bags.sites)
        entries: dict[str, dict[str, Any]] = {}
        for part in find_subgroups(self.values, self.scores, sites, figures=figures, groups=bags.groups):
            entry: dict[str, Any] = {"bags": part.bags}
            if called is not None:
                entry |= {"called": int(called[sites == part.level].sum())}
            for name, estimate in part.figures.items():
                entry |= {name: estimate and estimate.value, f"{name}_ci95": estimate and [estimate.low, estimate.high]}
            entries[part.level] = entry
        return entries

    def instances(self, calls: Callbacks) -> dict[str, Any]:
        """Return the summary's entry on labeled instances, of training bags only if no others have such."""
        labeled = labeled_bags(self.parts.bags, self.parts.splits, ("test", "val", "train"))
        if len(labeled) > 1:
            labeled.pop("train", None)
        if not labeled:
            return {}
        calls.on_stage("evaluating the instances", 0)
        options: dict[str, Any] = {"decision": self.decision, "chunk_size": self.chunk_size}
        entry = summarize_instances(self.model, self.parts.bags, self.target, labeled, self.scores, **options)
        return {"instances": entry}

    def assumption(self, calls: Callbacks) -> dict[str, Any]:
        """Return the summary's entry on changed bags, of the reported bags."""
        compared = compared_part(replace(self.parts, splits=self.splits))
        if compared is None:
            return {}
        calls.on_stage("changing bags", 0)
        from midam.runs.assumption import check_fit

        part, tested = compared
        result = check_fit(self.model, self.parts.bags, tested, self.decision, chunk_size=self.chunk_size)
        return {} if result is None else {"assumption": {"part": part, **result}}


def predictions_text(
    bags: Bags,
    target: Target,
    scores: Scores,
    *,
    splits: NDArray[np.str_] | None = None,
    folds: NDArray[Any] | None = None,
    decision: Decision | None,
    header: bool = True,
) -> str:
    """Format predictions as CSV: bag, labels, split, scores, predictions, positive class, instances, group.

    A single score column is "score", several are "score_NAME"; `Target.predictions` gives the columns that follow.
    Labels, split and group have columns if they are known, instances if splits are known; an unknown entry is empty.
    Labels and classes are words of the data, not codes; of two classes, "positive" names the one that is scored.
    """
    columns: dict[str, Sequence[Any] | None] = {
        "bag": bags.ids.tolist(),
        **label_columns(bags),
        "split": None if splits is None else splits.tolist(),
        "fold": None if folds is None else folds.tolist(),
        **dict(zip(target.score_columns, scores.reshape(len(bags), -1).T.tolist(), strict=True)),
        **target.predictions(scores, decision),
        "positive": None if target.positive is None else [target.positive] * len(bags),
        "instances": None if splits is None else bags.sizes.tolist(),
        "group": None if bags.groups is None else bags.groups.tolist(),
    }
    present = {name: values for name, values in columns.items() if values is not None}
    rows = (dict(zip(present, row)) for row in zip(*present.values(), strict=True))
    return csv_text(list(present), rows, header=header)


def predictions_parts(bags: Bags, target: Target, scores: Scores, *, decision: Decision | None) -> Iterator[bytes]:
    """Yield the table of `predictions_text` in parts of some thousand rows, with the header in the first."""
    for low in range(0, len(bags), _ROWS):
        rows = range(low, min(low + _ROWS, len(bags)))
        text = predictions_text(bags.subset(rows), target, scores[rows], decision=decision, header=low == 0)
        yield text.encode()


def summarize_parts(
    bags: Bags,
    target: Target,
    parts: NDArray[np.str_],
    scores: Scores,
    *,
    names: Sequence[str],
    decision: Decision | None,
    folds: NDArray[np.int64] | None = None,
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the entries of `Target.summarize` for each part in `names` that is not empty; `parts` has shape [N].

    With `folds` [N], all bags are in one part.
    """
    values, result = target.values(bags), {}
    for name in names:
        inside = parts == name
        if inside.any():
            groups = None if bags.groups is None else bags.groups[inside]
            result[name] = target.summarize(
                values[inside], scores[inside], groups=groups, folds=folds, decision=decision, metrics=metrics
            )
    return result


def thresholds_of(decision: Decision | None) -> dict[str, Any]:
    """Return the summary's entry on the choice of the threshold of two classes; empty if it is unknown."""
    thresholds = decision.thresholds if isinstance(decision, BinaryDecision) else None
    return {} if thresholds is None else {"thresholds": thresholds.model_dump()}


def write_results(
    folder: RunFolder,
    fitted: Fitted,
    reading: Reading,
    calls: Callbacks,
    *,
    data: str,
    took: Mapping[str, float],
    within: Mapping[str, float] = MappingProxyType({}),
    ranks: Ranks | None = None,
) -> dict[str, Any]:
    """Score all bags, and write the files of a finished run; returns the summary in the leading process.

    These are model.pt, predictions.csv and summary.json. Bags of folds have their scores out of fold. The model is
    written before the baseline is trained, and the summary last, so that a folder with a summary is complete.

    Parameters
    ----------
    folder : RunFolder
        The folder, which is held.
    fitted, reading : Fitted, Reading
        The fitted model, and the bags with their origin.
    calls : Callbacks
        Callbacks for stages and scored bags.
    data : str
        Name of the data.
    took, within : Mapping
        Seconds of the earlier parts of the run, and seconds that are part of these.
    ranks : Ranks, optional
        Processes that score the bags together, and leave then.
    """
    parts, config, model, started = reading.parts, fitted.config, fitted.model, time.monotonic()
    if parts.folds is None:
        calls.on_stage("scoring", len(parts.bags))
        scores = predict(model, parts.bags, chunk_size=config.run.chunk_size, on_bags=calls.on_bags, ranks=ranks)
    else:
        scores = cast(OutOfFold, fitted.out_of_fold).scores
    if ranks is not None:
        ranks.leave()
        if not ranks.leads:
            return {}
    evaluation = RunEvaluation(fitted, parts, scores)
    bags, target, decision = parts.bags, evaluation.target, evaluation.decision
    save_checkpoint(folder.model, model_content(fitted, reading.origin, decided=target.saved(decision)))
    scores, shown = evaluation.scores, replace(parts, splits=evaluation.splits)
    options: dict[str, Any] = {"decision": evaluation.decided, "folds": evaluation.folds}
    names = {"splits": shown.splits, "folds": bags.sites if parts.by_site else evaluation.folds}
    write_text(folder.predictions, predictions_text(bags, target, scores, **{**options, **names}))
    baseline: dict[str, Any] = {"baseline": None}
    began = time.monotonic()
    if config.run.baseline and fitted.method is None:
        calls.on_stage("training the baseline", 0)
        prepare = preparing(parts, config)
        baseline = train_baseline(shown, scores, prepare, seed=config.run.seed)
    baseline_seconds = time.monotonic() - began
    calls.on_stage("writing results", 0)
    entries = summarize_parts(bags, target, shown.splits, scores, names=SPLITS, **options)
    if evaluation.folds is not None:
        entries["folds"] = len(np.unique(evaluation.folds))
    if parts.by_site:
        entries["sites"] = {"column": config.run.site, "by_site": evaluation.by_site()}
    entries |= {**thresholds_of(decision), **target.description, **fitted.entries}
    if fitted.method is None:
        weights, metric = entries["by_weights"][entries["selected"]["weights"]], target.metric
        weights |= {f"{name}_{metric}": entries[name][metric] for name in SPLITS if name in entries}
        entries |= baseline
    else:
        entries |= {"method": {"name": fitted.method}, "members": len(scorers_of(model))}
    if (covariates := summarize_covariates(model, shown, scores)) is not None:
        entries["covariates"] = covariates
    for check in (evaluation.instances, evaluation.assumption):
        entries |= check(calls)
    result = Result(**entries, data=_of_data(parts, data, reading.origin, reading.notes))
    evaluated = time.monotonic() - started - baseline_seconds
    durations = {**took, "evaluation": evaluated, "baseline": baseline_seconds}
    durations |= {"total": sum(durations.values()), **within}
    result.seconds = {name: round(value, 3) for name, value in durations.items()}
    return result.write(folder)


def _of_data(parts: SplitBags, name: str, origin: Mapping[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """Return the summary's entry about the data."""
    return {
        "name": name,
        "bags": len(parts.bags),
        "instances": parts.bags.num_instances,
        **{key: origin["data"][key] for key in ("fingerprint", "instance_shape", "classes")},
        **({} if parts.bags.feature_names is None else {"features": list(parts.bags.feature_names)}),
        **({} if parts.imputed is None else {"imputed": {key: parts.imputed[key] for key in ("how", "missing")}}),
        **({"missing": parts.missing} if parts.missing else {}),
        **({} if parts.bags.groups is None else {"groups_from": group_origin(parts.bags)}),
        "notes": list(notes),
    }


def model_content(fitted: Fitted, origin: Mapping[str, Any], *, decided: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the model file of a run; `origin` is the result of `midam.runs.data.describe_origin`.

    `decided` is the result of `Target.saved` for the decision.
    """
    method = fitted.method
    return {
        "version": __version__,
        "config": fitted.config.flat() if method is None else taken_settings(fitted.config),
        **({} if method is None else {"method": method}),
        **({} if fitted.parts is None else {"parts": fitted.parts}),
        "model": fitted.model.state_dict(),
        **decided,
        **origin,
    }


def write_model(folder: RunFolder, content: dict[str, Any]) -> None:
    """Write a run folder of only a model and its settings; `content` is the result of `model_content`."""
    method = {"method": content["method"]} if "method" in content else {}
    folder.write_config(content["data"]["source"], {**method, **content["config"]})
    save_checkpoint(folder.model, content)


def summarize_covariates(model: BagEnsemble, parts: SplitBags, scores: Scores) -> dict[str, Any] | None:
    """Return the entry `covariates` of summary.json; None for a model without covariates.

    The entry holds `names` and `kinds` of the covariates, `weights` of the encoded columns in the model, averaged over
    the members (one for each score column), and `alone`, which compares the model's `scores` [N] or [N, C] of all bags
    with a model of the covariates alone, on the test bags, or on the validation bags if the test bags have no main
    metric. The model of covariates is linear, slightly regularized and fitted on the training bags without tuning; the
    bags of a fold are scored by a model of the other folds.
    """
    terms = [scorer.covariates for scorer in scorers_of(model)]
    if terms[0] is None:
        return None
    coder: Any = terms[0].coder
    weights = torch.stack([term.weight.detach().double().cpu() for term in terms if term is not None]).mean(dim=0)
    return {
        "names": list(coder.names),
        "kinds": list(coder.kinds.values()),
        "weights": dict(zip(coder.features, weights.numpy().T.tolist(), strict=True)),
        "alone": _alone(coder, parts, scores),
    }


def _alone(coder: CovariateCoder, parts: SplitBags, scores: Scores) -> dict[str, Any] | None:
    """Return main metric of covariates alone and difference of the model; None if no bags have a main metric."""
    bags, target, compared = parts.bags, target_of(parts.bags), compared_part(parts)
    if compared is None:
        return None
    part, tested = compared
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unknown values were warned of before; a fit to few bags may not converge
        x, values = coder.encode(bags), target.values(bags)

        def fit(trial: Trial) -> Scores:
            return target.linear_scores(x[trial.train], values[trial.train], x[trial.score])

        covariate_scores = baselines.held_out_scores(parts, tested, fit, seed=0)  # a linear model uses no seed
    entry = {"method": target.linear, "part": part, "bags": len(tested)}
    return entry | baselines.compared_auroc(bags.subset(tested), scores[tested], covariate_scores, parts.folds)
