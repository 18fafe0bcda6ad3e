"""Forms of the files of a run, one class a file; each has one reader here or in `midam.runs.scored`."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, create_model, model_validator

from midam.errors import CheckpointError, nearest
from midam.reading import Count, Form, Interval, Number, Positive, Share, check_form, read_json
from midam.registry import TARGETS
from midam.runs.folder import SPLITS, RunFolder
from midam.settings import Settings
from midam.targets import Target, target_named


def _given(value: Any) -> Any:
    """Refuse null where an entry may be left out, and no more."""
    if value is None:
        raise ValueError("null where an entry is expected")
    return value


def _together(form: Form, *names: str) -> None:
    """Refuse a figure without its interval and method, or these without the figure."""
    known = [getattr(form, name) is not None for name in names]
    if any(known) and not all(known):
        raise ValueError(f"{names[known.index(True)]} without {names[known.index(False)]}")


class _Threshold(Form):
    threshold: Number
    sensitivity: Share | None
    sensitivity_ci95: Interval | None
    specificity: Share | None
    specificity_ci95: Interval | None
    balanced_accuracy: Share | None
    f1: Share | None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name in ("sensitivity", "specificity"):
            _together(self, name, f"{name}_ci95")
        return self


class _Part(Form):
    bags: Positive
    groups: Positive | None = None
    metrics: dict[str, Number | None] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)


class BinaryPart(_Part):
    """Figures of a part of bags of two classes: `midam.evaluate.metrics.summarize`."""

    positives: Count
    auroc: Share | None
    auroc_ci95: Interval | None
    auroc_method: str | None
    auprc: Share | None
    at_threshold: Annotated[_Threshold | None, BeforeValidator(_given)] = None
    brier: Annotated[Share | None, BeforeValidator(_given)] = None
    calibration_slope: Number | None = None
    calibration_intercept: Number | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _together(self, "auroc", "auroc_ci95", "auroc_method", "auprc")
        if self.positives > self.bags:
            raise ValueError("more positive bags than bags")
        if (self.auroc is not None) != (0 < self.positives < self.bags):
            raise ValueError("an AUROC of one class, or none of two")
        at = self.at_threshold
        if at is not None and (at.sensitivity is None, at.specificity is None) != (
            self.positives == 0,
            self.positives == self.bags,
        ):
            raise ValueError("sensitivity and specificity that do not fit the number of positive bags")
        return self


class _OfClass(Form):
    positives: Count
    negatives: Count
    auroc: Share | None
    auroc_ci95: Interval | None
    ap: Share | None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _together(self, "auroc", "auroc_ci95", "ap")
        return self


_Square = list[list[Count]]


class _Called(_Part):
    accuracy: Share | None = None
    accuracy_ci95: Interval | None = None
    balanced_accuracy: Share | None = None
    confusion: Annotated[_Square | None, BeforeValidator(_given)] = None

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.confusion is None:
            return self
        if any(len(row) != len(self.confusion) for row in self.confusion):
            raise ValueError("a confusion that is not square")
        if sum(map(sum, self.confusion)) != self.bags:
            raise ValueError("a confusion of another number of bags")
        return self


class LabelsPart(_Part):
    """Figures of a part of bags of several labels: `midam.targets.Target.summarize`, as those below."""

    auroc_macro: Share | None
    auroc_macro_ci95: Interval | None
    auroc_macro_method: str | None
    auroc_weighted: Share | None
    per_class: dict[str, _OfClass]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _together(self, "auroc_macro", "auroc_macro_ci95", "auroc_macro_method", "auroc_weighted")
        return self


class ClassesPart(LabelsPart, _Called):
    """Figures of a part of bags of several classes."""

    accuracy: Share
    balanced_accuracy: Share
    confusion: _Square


class _Ranked(_Part):
    c_index: Share | None
    c_index_ci95: Interval | None
    c_index_method: str | None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _together(self, "c_index", "c_index_ci95", "c_index_method")
        return self


class GradesPart(_Ranked, _Called):
    """Figures of a part of graded bags."""

    kendall_tau: Number | None
    quadratic_kappa: Number | None = None


class NumbersPart(_Ranked):
    """Figures of a part of bags with a number."""

    kendall_tau: Number | None
    spearman: Number | None
    mae: Annotated[Number | None, BeforeValidator(_given)] = None
    mae_constant: Annotated[Number | None, BeforeValidator(_given)] = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        _together(self, "mae", "mae_constant")
        return self


class _Risk(Form):
    group: Annotated[int, Field(ge=0, le=2)]
    bags: Positive
    events: Count
    median_time: Number | None


class TimesPart(_Ranked):
    """Figures of a part of bags with a time and an event."""

    events: Count
    median_follow_up: Number | None
    c_ipcw: Share | None
    c_ipcw_ci95: Interval | None
    c_ipcw_method: str | None
    c_ipcw_truncation: Number | None
    risk_groups: Annotated[list[_Risk] | None, BeforeValidator(_given)] = None
    log_rank_p: Share | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _together(self, "c_ipcw", "c_ipcw_ci95", "c_ipcw_method")
        rows = self.risk_groups or []
        if len({row.group for row in rows}) < len(rows) or any(row.events > row.bags for row in rows):
            raise ValueError("a risk group twice, or with more events than bags")
        return self


# Least and most names of a target; and the figure that stands where something is decided of the scores.
_NAMES = {
    "multiclass": (2, None),
    "multilabel": (1, None),
    "ordinal": (2, None),
    "continuous": (1, 1),
    "survival": (2, 2),
}
DECIDED = {"binary": "brier", "ordinal": "quadratic_kappa", "continuous": "mae", "survival": "risk_groups"}
_PARTS: dict[str, type[_Part]] = {
    "binary": BinaryPart,
    "multiclass": ClassesPart,
    "multilabel": LabelsPart,
    "ordinal": GradesPart,
    "continuous": NumbersPart,
    "survival": TimesPart,
}


class _Selected(Form):
    weights: Literal["last", "best"]
    epoch: Count | None


class _Weights(Form):
    epoch: Count | None


class _Compared(Form):
    method: str
    part: Literal["test", "val"]
    difference: Number
    difference_ci95: Interval
    difference_method: str


class _Alone(Form):
    """Covariates alone, beside the model."""

    method: str
    part: Literal["test", "val"]
    bags: Positive
    difference: Number | None
    difference_ci95: Interval | None


class _Covariates(Form):
    names: list[str]
    kinds: list[str]
    alone: _Alone | None

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.names) != len(self.kinds):
            raise ValueError("as many kinds as names are expected")
        return self


class _Tried(Form):
    method: str
    auroc: Share | None = None
    seconds: Annotated[Number, Field(ge=0)]
    weight: Share
    note: str | None = None


class _Auto(Form):
    tried: list[_Tried]
    auroc: Share | None
    folds: Count
    note: str


class _Deployed(Form):
    note: str


class _Data(Form):
    name: str
    bags: Positive
    instances: Positive
    fingerprint: str = ""
    instance_shape: Annotated[list[Positive], Field(min_length=1, max_length=8)] | None = None
    classes: Annotated[list[str | bool | int | float], Field(min_length=2, max_length=2)] | None = None
    notes: list[str] = Field(default_factory=list)
    options: list[str] = Field(default_factory=list)


_Seconds = Annotated[Number, Field(ge=0)]


class Summary(Form):
    """What ``summary.json`` holds whatever the target; `summary_form` adds the figures of the parts."""

    selected: Annotated[_Selected | None, BeforeValidator(_given)] = None
    by_weights: dict[str, _Weights] = Field(default_factory=dict)
    method: dict[str, str] = Field(default_factory=dict)
    members: Positive = 1
    epochs: Count = 0
    baseline: _Compared | None = None
    baseline_note: Annotated[str | None, BeforeValidator(_given)] = None
    covariates: Annotated[_Covariates | None, BeforeValidator(_given)] = None
    auto: Annotated[_Auto | None, BeforeValidator(_given)] = None
    deployed: Annotated[_Deployed | None, BeforeValidator(_given)] = None
    warnings: list[str] = Field(default_factory=list)
    data: _Data
    version: str
    environment: dict[str, str] = Field(default_factory=dict)
    seconds: dict[str, _Seconds] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_parts(self) -> Self:
        own = [getattr(self, name, None) for name in SPLITS]
        if not any(own):
            raise ValueError("figures of no part")
        compared = [] if self.baseline is None else [self.baseline.part]
        compared += [] if self.covariates is None or self.covariates.alone is None else [self.covariates.alone.part]
        if any(getattr(self, part) is None for part in compared):
            raise ValueError("a baseline that is compared on a part without figures")
        return self


class _Titled(Form):
    """What a file says of the target; nothing where bags have two classes."""

    target: Annotated[str | None, BeforeValidator(_given)] = None
    names: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if len(set(self.names)) < len(self.names):
            raise ValueError("names of classes that do not differ")
        least, most = _NAMES.get(self.target or "binary", (0, None))
        if len(self.names) < least or (most is not None and len(self.names) > most):
            raise ValueError(f"{len(self.names)} names for the target {self.target}")
        return self


def read_target(content: Mapping[str, Any], path: Path, *, trusted: str = "binary") -> Target:
    """Target that a file says it has, among the known ones, or the `trusted` class path of its settings.

    Nothing is imported for the name that stands in the file.
    """
    check_form(content, _Titled, path)
    name = content.get("target")
    if name is not None and name not in (*TARGETS.names(), trusted):
        raise CheckpointError(
            f"Expected a known target, got {name!r} (in {path}, key target); {nearest(name, TARGETS.names())}"
        )
    return target_named(None if name is None else {"target": name, "names": content.get("names", [])})


def read_summary(folder: RunFolder, settings: Settings) -> tuple[dict[str, Any], Target]:
    """Content of ``summary.json``, and the target; `settings` are those of the run, whose code is trusted."""
    found = read_json(folder.summary)
    target = read_target(found, folder.summary, trusted=settings.data.target)
    check_form(found, summary_form(target), folder.summary)
    return found, target


def summary_form(target: Target) -> type[Summary]:
    """Form of the ``summary.json`` of a run with this target."""
    return _summary_form(target.name, target.metric, target.names)


@lru_cache(maxsize=16)
def _summary_form(name: str, figure: str, names: tuple[str, ...]) -> type[Summary]:
    part = _PARTS.get(name)
    merit: dict[str, Any] = {figure: (Share, ...), f"{figure}_ci95": (Interval, ...), f"{figure}_method": (str, ...)}
    alone: dict[str, Any] = {figure: (Share | None, None), f"{figure}_ci95": (Interval | None, None)}
    baseline: Any = create_model("Baseline", __base__=_Compared, **merit)
    beside: Any = create_model("Alone", __base__=_Alone, **alone)
    covariates: Any = create_model("Covariates", __base__=_Covariates, alone=(beside | None, ...))
    kind: Any = dict[str, Any] if part is None else _named(part, names)
    fields: dict[str, Any] = dict.fromkeys(SPLITS, (Annotated[kind | None, BeforeValidator(_given)], None))
    fields["baseline"] = (baseline | None, None)
    fields["covariates"] = (Annotated[covariates | None, BeforeValidator(_given)], None)
    return create_model("Summary", __base__=Summary, **fields)


def _named(part: type[_Part], names: tuple[str, ...]) -> type[_Part]:
    """The form of a part, in which each class, label or grade has its place."""
    count = len(names)

    class Named(part):  # type: ignore[misc, valid-type]
        @model_validator(mode="after")
        def _has_all(self) -> Self:
            per_class, confusion = getattr(self, "per_class", None), getattr(self, "confusion", None)
            if per_class is not None and sorted(per_class) != sorted(names):
                raise ValueError(f"figures of other classes than {', '.join(names[:8])}")
            if confusion is not None and len(confusion) != count:
                raise ValueError(f"a confusion of {len(confusion)} classes, not of {count}")
            return self

    return Named


class _Files(Form):
    picture: str


class _Entry(Form):
    bag: str
    split: Literal["train", "val", "test"] | None
    files: _Files


class Explanations(Form):
    """What ``explain.json`` holds, of what a page links."""

    bags: list[_Entry]
