"""The method: pooling x estimator x objective, and how instances are drawn."""

from typing import Annotated, Any, Literal

from pydantic import Field

from midam.registry import DRAWS, ESTIMATORS, OBJECTIVES, POOLINGS
from midam.settings.group import Named, SettingsGroup
from midam.settings.model import AUTO

_CENTER_SHALLOW, _CENTER_DEEP = 0.0, 0.5
_OF_TWO_CLASSES = "minmax-auc"

Center = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]


class MethodSettings(SettingsGroup):
    """The method: pooling x estimator x objective, and how instances are drawn.

    Attributes
    ----------
    pooling
        How instance scores become a bag's score.
    pooling_args
        Further arguments of the pooling.
    attention
        Where there are several score columns: one for each ("per-class"), or one for all ("shared").
    temperature
        tau of smoothed-max; default 0.1.
    estimator
        How a step estimates the pooling: "vrsp" (MIDAM: tracked state, B instances a bag), "minibatch" (B instances,
        biased), "exact" (whole bags in two passes), "exact-point" (whole bags without gradient, B instances with).
    estimator_args
        Further arguments of the estimator.
    state_rate
        gamma0 in (0, 1], the weight of the new sample in the tracked state of vrsp.
    state_schedule
        "constant", or "warmup": max(gamma0, 1/k) at a bag's k-th visit.
    state_floor
        Least share, in [0, 1), that the new sample holds of the tracked state where that weighs values, as with
        attention; at most gamma0. 0 is the paper's: a state whose weights have fallen then lives on its past.
    lag
        Linearize at the previous state, as Algorithm 1 prints it.
    state_start
        Tracked state before the first step: none until a bag's visit ("first-visit"), or streamed over all ("exact").
    state_refresh
        Set the tracked state exactly again after each so many epochs, by a pass over all bags; default: never.
    objective
        What is optimized; "auto": "minmax-auc", of an order "pairwise" (squared hinge).
    objective_args
        Further arguments of the objective.
    margin
        c > 0 of the AUC objectives.
    dual_lr
        eta' in (0, 1] of minmax-auc.
    objective_weight
        F3 of minmax-auc as printed ("paper"), or doubled ("pairwise").
    dual_domain
        Domain of the dual variable of minmax-auc.
    center_start
        Start of the centers a and b of minmax-auc, in [0, 1]; default: 0 for the mlp, as in the paper, else 0.5.
    max_fpr
        Of partial-auc, the false positive rate in (0, 1] up to which the AUC counts; default: softly, by
        fpr_temperature.
    fpr_temperature
        Of partial-auc without max_fpr, how much more the higher negative bags count, in units of the squared hinge:
        towards 0 the highest alone.
    tpr_temperature
        Of partial-auc, how much more the lower positive bags count, in units of the squared hinge; default: not more.
    pair_rate
        Weight in (0, 1] of a step in what partial-auc and average-precision remember of each positive bag.
    draw
        How a step chooses the instances of a bag: "uniform", "scored" (in proportion to the weights that were last
        seen, corrected for it) or "top" (mostly the highest last seen: for witnesses among very many instances).
    draw_args
        Further arguments of the draw.
    anneal
        Fraction of the epochs, in [0, 1], over which the weights of the instances sharpen from their power 0.2, nearer
        to the mean, to what the pooling says; 0: they are what it says from the start.
    """

    pooling: Annotated[str, Named(POOLINGS)] = "attention"
    pooling_args: dict[str, Any] = Field(default_factory=dict)
    attention: Literal["shared", "per-class"] = "per-class"
    temperature: Annotated[float, Field(gt=0)] | None = None
    estimator: Annotated[str, Named(ESTIMATORS)] = "vrsp"
    estimator_args: dict[str, Any] = Field(default_factory=dict)
    state_rate: Rate = 0.9
    state_schedule: Literal["constant", "warmup"] = "constant"
    state_floor: Annotated[float, Field(ge=0, lt=1)] = 0.1
    lag: bool = False
    state_start: Literal["first-visit", "exact"] = "first-visit"
    state_refresh: Annotated[int, Field(ge=1)] | None = None
    objective: Annotated[str, Named(OBJECTIVES, also=(AUTO,))] = AUTO
    objective_args: dict[str, Any] = Field(default_factory=dict)
    margin: Annotated[float, Field(gt=0)] = 1.0
    dual_lr: Rate = 1.0
    objective_weight: Literal["paper", "pairwise"] = "paper"
    dual_domain: Literal["nonnegative", "real"] = "nonnegative"
    center_start: Center | None = None
    max_fpr: Rate | None = None
    fpr_temperature: Annotated[float, Field(gt=0)] = 0.2
    tpr_temperature: Annotated[float, Field(gt=0)] | None = None
    pair_rate: Rate = 0.9
    draw: Annotated[str, Named(DRAWS)] = "uniform"
    draw_args: dict[str, Any] = Field(default_factory=dict)
    anneal: Annotated[float, Field(ge=0, le=1)] = 0.0

    def resolve(self, *, deep: bool) -> "ResolvedMethod":
        """These settings for the mlp, or for a deep encoder; an objective that is left open is that of two classes."""
        filled = self._filled(center_start=_CENTER_DEEP if deep else _CENTER_SHALLOW)
        objective = _OF_TWO_CLASSES if self.objective == AUTO else self.objective
        return ResolvedMethod(**filled | {"objective": objective})


class ResolvedMethod(MethodSettings):
    """Settings of the method for instances of one shape."""

    objective: Annotated[str, Named(OBJECTIVES)]
    center_start: Center
