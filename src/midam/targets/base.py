"""The base of the targets; each target is a class and a row of `midam.registry.TARGETS`."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.bags import Bags
from midam.data.splits import split_strata, stratified_folds
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, ConfigError, nearest
from midam.evaluate.calibrate import one_scale
from midam.evaluate.decisions import Decision
from midam.evaluate.metrics import measure
from midam.evaluate.proportions import Estimate
from midam.evaluate.ranking import group_numbers
from midam.names import name_of

_MAX_ITERATIONS = 1000


Scores = NDArray[np.float64]
Groups = NDArray[np.str_] | None
Decided = Decision | None


class CardWords(NamedTuple):
    """Words of a model card.

    Attributes
    ----------
    task : {"classification", "regression"}
        The task, by its name on the Hugging Face hub.
    ranks : str
        The end of the sentence "it takes all instances of a bag and ..."; with fields `count` and `names`.
    predicts : str
        The predictions that are made from the scores.
    figures : sequence of (str, str)
        Rows of the page's table of metrics, and columns of the card's, after the main metric: name, and key in the
        summary, with a dot for nested keys. The console has those of `midam.report.terminal`.
    """

    task: str
    ranks: str
    predicts: str
    figures: Sequence[tuple[str, str]] = ()


class Difference(NamedTuple):
    """Difference of the main metric between two scores of the same bags: 95% interval, p-value and their method.

    Examples
    --------
    The AUROC of two methods on the same bags:

    >>> from midam import Bags
    >>> from midam.targets import target_of
    >>> bags = Bags.from_list([[[0.0]]] * 6, labels=[0, 0, 0, 1, 1, 1])
    >>> first, second = np.array([0.1, 0.2, 0.6, 0.4, 0.7, 0.9]), np.array([0.3, 0.5, 0.4, 0.2, 0.6, 0.8])
    >>> gain = target_of(bags).difference(bags.labels, first, second)
    >>> round(gain.value, 2), round(gain.low, 2), round(gain.high, 2), gain.method
    (0.22, -0.26, 0.71, 'paired delong')
    """

    value: float
    low: float
    high: float
    p: float
    method: str


class OutOfFold(NamedTuple):
    """Labels, scores and groups [N] of training bags, each scored by the model of its fold, which did not see it.

    Examples
    --------
    Four validation bags, and six training bags that models of inner folds scored:

    >>> from midam import Bags
    >>> from midam.targets import target_of
    >>> target = target_of(Bags.from_list([[[0.0]]], labels=[0]))
    >>> folds = np.array([0, 0, 0, 1, 1, 1])
    >>> more = OutOfFold(np.array([0, 1, 0, 1, 0, 1]), np.array([0.2, 0.7, 0.3, 0.4, 0.5, 0.8]), folds)
    >>> decision = target.decide(np.array([0, 1, 0, 1]), np.array([0.1, 0.6, 0.2, 0.9]), out_of_fold=more)
    >>> round(decision.threshold, 2)
    0.35
    """

    values: NDArray[Any]
    scores: Scores
    folds: NDArray[np.int64]
    groups: Groups = None


@dataclass(frozen=True)
class FoldDecision:
    """The decision for new bags, and the predictions of cross-validated bags, which the other folds decide.

    Attributes
    ----------
    final : Decision
        The decision for new bags, fitted on all folds.
    predicted : array [N] or [N, C]
        The predictions of the bags of a fold by a decision that was fitted on those of the others.
    """

    final: Any
    predicted: NDArray[Any]

    def predict(self, scores: ArrayLike) -> NDArray[Any]:  # noqa: ARG002
        """Return the predictions of the cross-validated bags."""
        return self.predicted

    def to_dict(self) -> dict[str, Any]:
        """Return the decision for new bags as plain numbers and texts."""
        return dict(self.final.to_dict())


class CrossValidated(NamedTuple):
    """What cross-validated bags decide: their scores on one scale, the decision for new bags, and their own."""

    scores: Scores
    decision: Decision | None
    own: FoldDecision | None


class Target:
    """Base of the targets.

    Parameters
    ----------
    names : tuple of str
        Names in the bags' `midam.data.target_labels.TargetLabels`.

    Attributes
    ----------
    name : str
        As in `midam.registry.TARGETS`.
    pairs : {"binary", "classes", "labels", "order", "survival"}
        Which pairs of bags a label orders; objectives name the pairs that they support.
    objectives : tuple of str
        Objectives for this target, the default first.
    metric : str
        Name of the main metric in `summary.json`, in [0, 1]; higher is better.

    Examples
    --------
    >>> from midam import Bags
    >>> from midam.targets import target_of
    >>> bags = Bags.from_list([[[0.0]]] * 4, labels=[0, 1, 0, 1])
    >>> target = target_of(bags)
    >>> target.name, target.metric, target.objectives[0]
    ('binary', 'auroc', 'minmax-auc')
    >>> target.metric_value(target.values(bags), np.array([0.1, 0.4, 0.6, 0.8]))
    0.75
    """

    name: ClassVar[str]
    pairs: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]]
    metric: ClassVar[str]
    linear: ClassVar[str] = "logistic regression"
    """Name of the method of `linear_scores`."""
    ordered: ClassVar[str] = "that their labels order"
    """Which bags have a main metric, in words that follow "bags"."""
    given: ClassVar[tuple[str, ...]] = ("groups", "predictions")
    """Parameters that user-defined metrics may have."""
    name_limits: ClassVar[tuple[int, int | None]] = (0, None)
    """Minimum and maximum number of names; None for no limit."""
    decided_by: ClassVar[type[Any]]
    """Class of the decisions that `fit_decision` fits."""
    decided_figure: ClassVar[str | None] = None
    """Key in the summary of a metric that exists only with predictions."""
    card: ClassVar[CardWords] = CardWords(
        "classification", "gives scores in [0, 1] that rank bags by their label", "the predictions of its target"
    )
    """Words of a model card."""
    positive: str | None = None
    """Of two classes, the name of the one that scores and probabilities belong to."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the score columns; one is called "score"."""
        return ("score",)

    @property
    def count(self) -> int:
        """Number of score columns, C."""
        return len(self.columns)

    @property
    def score_columns(self) -> list[str]:
        """Columns of the scores in a table."""
        return ["score"] if self.count == 1 else [f"score_{name}" for name in self.columns]

    @property
    def predicted_names(self) -> tuple[Any, ...]:
        """Names of the predicted classes, labels, grades or risk groups, or of the number."""
        return self.names

    def read_labels(self, table: Mapping[str, Sequence[str]]) -> NDArray[Any]:
        """Read labels [N] or [N, L], in the form of `values`, from columns of text."""
        return TargetLabels.of_columns(self.name, self.names, table).values

    def read_predictions(self, table: Mapping[str, Sequence[Any]]) -> Scores | None:  # noqa: ARG002
        """Read predictions as numbers from the columns of `predictions`; None if nothing was predicted.

        Probabilities [N] or [N, C], numbers [N], or positions [N] in `predicted_names`; NaN if one is missing.
        """
        return None

    @property
    def description(self) -> dict[str, Any]:
        """Entries of a summary or a record that name the target."""
        return {"target": self.name, "names": list(self.names)}

    def values(self, bags: Bags) -> NDArray[Any]:
        """Return labels for objectives and metrics: [N], or [N, L] from an outcome."""
        return self._outcome(bags).values

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the strata of bags, int [N], of which splits and folds hold equal shares: by default the values."""
        return values.reshape(-1).astype(np.int64)

    def split(
        self, values: NDArray[Any], *, groups: Groups = None, fractions: Sequence[float], seed: int
    ) -> NDArray[np.str_]:
        """Return "train", "val" or "test" for each bag, with these fractions of each stratum, and disjoint by group."""
        return split_strata(self.strata(values), groups=groups, fractions=fractions, seed=seed)

    def folds(self, values: NDArray[Any], *, groups: Groups = None, folds: int, seed: int) -> NDArray[np.int64]:
        """Return the test fold of each bag, stratified and disjoint by group."""
        return stratified_folds(self.strata(values), groups=groups, folds=folds, seed=seed, binary=False)

    def most_folds(self, values: NDArray[Any], units: NDArray[np.str_]) -> int:  # noqa: ARG002
        """Return the maximum number of folds; `units` [N] are the groups of the bags, or the bags themselves."""
        return len(np.unique(units))

    def sides(self, values: NDArray[Any]) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return, for each score column, the bags [N] that belong above another bag, and those that belong below."""
        raise NotImplementedError

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Return scores [n] or [n, C] of the rows `scored` [n, P] by a `linear` model.

        It is fitted to the rows `x` [N, P] of the training bags and their values [N] or [N, L].
        """
        raise NotImplementedError

    def turns(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the strata of training bags, int [N], that alternate in a batch."""
        return self.strata(values)

    def check(self, bags: Bags) -> None:
        """Refuse training bags from which nothing can be learned, with a `BagDataError`."""
        raise NotImplementedError

    def check_rule(self, rule: str) -> None:
        """Refuse a threshold rule with a `ConfigError`; only two classes have a threshold."""
        if rule != "youden":
            raise ConfigError(f"Expected no `threshold` with the target {self.name!r}, got {rule!r}; leave it out.")

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Return whether bags with these values have a main metric: by default, whether two values differ."""
        return len(np.unique(values)) > 1

    def metric_value(self, values: NDArray[Any], scores: Scores) -> float | None:
        """Return the main metric of scores [N] or [N, C]; None if there is none."""
        raise NotImplementedError

    def estimate(self, values: NDArray[Any], scores: Scores, *, groups: Groups = None) -> Estimate | None:
        """Return the main metric with its interval; None if there is none."""
        raise NotImplementedError

    def difference(
        self,
        values: NDArray[Any],
        scores: Scores,
        other: Scores,
        *,
        groups: Groups = None,
        folds: NDArray[np.int64] | None = None,
    ) -> Difference:
        """Return the main metric of `scores` minus that of `other` scores of the same bags.

        Of cross-validated scores, with `folds` [N], the AUROC of two classes compares bags of one fold.
        """
        raise NotImplementedError

    def decide(
        self,
        values: NDArray[Any],
        scores: NDArray[Any],
        *,
        rule: str = "youden",  # noqa: ARG002
        out_of_fold: OutOfFold | None = None,  # noqa: ARG002
    ) -> Decision | None:
        """Fit a decision, from scores to predictions, on validation bags; None if there are too few.

        The `rule` for the threshold and the bags scored `out_of_fold` are used only with two classes.
        """
        return self.fit_decision(values, scores) if len(values) and self.has_metric(values) else None

    def cross_decide(self, scored: OutOfFold, *, rule: str = "youden", alike: bool = True) -> CrossValidated:
        """Fit the decision for new bags on cross-validated bags, and decide the bags of each fold by the others.

        A single score column is brought to one scale first, see `midam.evaluate.calibrate.one_scale`, unless the folds
        are not `alike`, such as sites, whose bags may truly score higher. There is no decision if the bags, or those
        without a fold, are too few.
        """
        if alike and scored.scores.ndim == 1:
            scored = scored._replace(scores=one_scale(scored.scores, scored.folds, groups=scored.groups))
        final, by_fold = self.decide(scored.values, scored.scores, rule=rule), dict[int, Decision]()
        if final is None:
            return CrossValidated(scored.scores, None, None)
        for fold in np.unique(scored.folds).tolist():
            others = scored.folds != fold
            with warnings.catch_warnings(action="ignore"):  # the decision on all folds warns
                decision = self.decide(scored.values[others], scored.scores[others], rule=rule)
            if decision is None:
                return CrossValidated(scored.scores, final, None)
            by_fold[fold] = decision
        parts = [decision.predict(scored.scores[scored.folds == fold]) for fold, decision in by_fold.items()]
        back = np.argsort(np.concatenate([np.flatnonzero(scored.folds == fold) for fold in by_fold]))
        by_others = FoldDecision(final, np.concatenate(parts)[back])
        return CrossValidated(*self.aligned(scored, by_fold, final), by_others)

    def aligned(
        self,
        scored: OutOfFold,
        by_fold: Mapping[int, Decision],  # noqa: ARG002
        final: Decision,
    ) -> tuple[Scores, Decision]:
        """Return scores of the folds to which the one decision for new bags applies as the decisions by fold did.

        The decision is returned with what the decisions by fold chose in these scores.
        """
        return scored.scores, final

    def fit_decision(self, values: NDArray[Any], scores: Scores) -> Decision:
        """Fit a decision, from scores to predictions, on bags that `has_metric` accepts."""
        return self.decided_by.fit(scores, _flat(values))

    def saved(self, decision: Decided) -> dict[str, Any]:
        """Return the entries of a model file that hold the decision."""
        entry = {} if decision is None else {"decision": decision.to_dict()}
        return {"calibrator": None, "threshold": None, **entry}

    def decision(self, saved: Mapping[str, Any]) -> Decision | None:
        """Return the decision in the entries of a model file."""
        values = saved.get("decision")
        return None if values is None else self.decided_by.from_dict(values)

    def notes(self, decision: Decided) -> list[str]:  # noqa: ARG002
        """Return warnings about predictions that mean nothing."""
        return []

    def predictions(self, scores: NDArray[Any], decision: Decided) -> dict[str, list[Any]]:
        """Return predictions from scores [N] or [N, C], by column of predictions.csv; None without a decision."""
        raise NotImplementedError

    def main_column(self, scores: NDArray[Any], decision: Decided) -> NDArray[np.int64]:  # noqa: ARG002
        """Return the main score column of each bag, int [N], for scores [N] or [N, C]: by default the only one."""
        return np.zeros(len(scores), dtype=np.int64)

    def column(self, name: str) -> int:
        """Return the position of the score column of a class or label; raise a `ConfigError` for another name."""
        names = self.columns if self.count > 1 else ()
        if name_of(name) not in names:
            raise ConfigError(f"Expected a class of the run, got {name!r}; {nearest(name, names)}")
        return names.index(name_of(name))

    def summarize(
        self,
        values: NDArray[Any],
        scores: NDArray[Any],
        *,
        groups: Groups = None,
        folds: NDArray[np.int64] | None = None,  # noqa: ARG002
        decision: Decided = None,
        metrics: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the entries of `summary.json` for scores [N] or [N, C], and for the predictions of the decision.

        Cross-validated bags have `folds` [N]; the AUROC of two classes compares bags of one fold.

        `metrics` are names of further metrics, see `midam.evaluate.metrics.measure`. They get the
        values [N] or [N, L] and the scores, and `groups` and `predictions` if they have parameters of these names.
        """
        result = self.describe(values, scores, decision, groups=groups)
        if groups is not None:
            units = group_numbers(groups, len(values))
            result["groups"] = None if units is None else int(units.max()) + 1
        if metrics:
            given = {"groups": groups, "predictions": None if decision is None else decision.predict(scores)}
            result["metrics"] = measure(metrics, _flat(values), scores, given, target=self.name)
        return result

    def describe(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Return the entries of `summarize` without groups and further metrics: main metric, `bags`, `warnings`, ..."""
        raise NotImplementedError

    def _outcome(self, bags: Bags) -> TargetLabels:
        if bags.outcome is None or bags.outcome.target != self.name:
            got = f"Expected bags with labels of the target {self.name!r}, got others (in {bags.source})"
            raise BagDataError(f"{got}; name their column with `label_column`.")
        return bags.outcome


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    """Return values of one column as [N], others unchanged."""
    return values[:, 0] if values.shape[1] == 1 else values


def read_numbers(column: Sequence[Any]) -> Scores:
    """Read a column of numbers or text as numbers [N]; NaN if an entry is empty."""
    return np.array([np.nan if value in ("", None) else float(value) for value in column], dtype=np.float64)


def read_codes(column: Sequence[Any], names: Sequence[Any]) -> Scores | None:
    """Read a column of names as positions [N]; NaN for an unknown name, None if all are unknown."""
    codes = {name: code for code, name in enumerate(names)}
    positions = np.array([codes.get(name, np.nan) for name in column], dtype=np.float64)
    return None if np.isnan(positions).all() else positions


def difference_method(name: str, groups: Groups) -> str:
    """Return the name of the method of an interval, with "(groups)" if groups hold several bags."""
    return f"{name} (groups)" if clustered(groups) else name


def clustered(groups: Groups) -> bool:
    """Return whether some group holds several bags."""
    return groups is not None and len(np.unique(groups)) < len(groups)


def logistic_shares(x: Scores, codes: NDArray[np.int64], scored: Scores) -> Scores:
    """Return probabilities [n, C] of classes by logistic regression with a weak penalty."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=_MAX_ITERATIONS).fit(x, codes).predict_proba(scored)
