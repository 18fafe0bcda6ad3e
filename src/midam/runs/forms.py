"""Forms of the JSON files of a run, which are read here or in `midam.runs.report`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from midam.errors import CheckpointError, nearest
from midam.evaluate.calibrate import Thresholds
from midam.reading import Count, Form, Interval, Number, Positive, Share, check_form, read_json
from midam.registry import TARGETS
from midam.runs.folder import SPLITS, RunFolder
from midam.targets import Target, target_named

_ABSENT: Any = None  # default of an entry that may be missing but never null
_Seconds = Annotated[Number, Field(ge=0)]
_Drop = Annotated[Number, Field(ge=-1, le=1)]


class _Figures(Form):
    """Metrics; a metric that can have an interval has one, or both are null."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name in type(self).model_fields:
            figure = name.removesuffix("_ci95")
            if figure != name and (getattr(self, figure) is None) != (getattr(self, name) is None):
                raise ValueError(f"{figure} without {name}, or the reverse")
        return self


class _Main(_Figures):
    """The main metric of any target."""

    auroc: Share | None = None
    auroc_ci95: Interval | None = None
    auroc_method: str | None = None
    auroc_macro: Share | None = None
    auroc_macro_ci95: Interval | None = None
    auroc_macro_method: str | None = None
    c_index: Share | None = None
    c_index_ci95: Interval | None = None
    c_index_method: str | None = None


class _AtThreshold(_Figures):
    threshold: Number
    sensitivity: Share | None
    sensitivity_ci95: Interval | None
    specificity: Share | None
    specificity_ci95: Interval | None
    balanced_accuracy: Share | None
    f1: Share | None


class _Column(_Figures):
    """A class or label among others."""

    positives: Count
    negatives: Count
    auroc: Share | None
    auroc_ci95: Interval | None
    ap: Share | None


class _Risk(Form):
    group: Annotated[int, Field(ge=0, le=2)]
    bags: Positive
    events: Count
    median_time: Number | None


class _Part(_Main):
    """Metrics of a part of the bags; `midam.targets.Target.figures` lists those that a target requires."""

    bags: Positive
    groups: Positive | None = None
    metrics: dict[str, Number | None] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)
    positives: Count = _ABSENT
    auprc: Share | None = None
    at_threshold: _AtThreshold = _ABSENT
    brier: Share = _ABSENT
    calibration_slope: Number | None = None
    calibration_intercept: Number | None = None
    auroc_weighted: Share | None = None
    per_class: dict[str, _Column] = Field(default_factory=dict)
    accuracy: Share = _ABSENT
    accuracy_ci95: Interval = _ABSENT
    balanced_accuracy: Share = _ABSENT
    confusion: list[list[Count]] = _ABSENT
    kendall_tau: Number | None = None
    spearman: Number | None = None
    quadratic_kappa: Number | None = None
    mae: Number = _ABSENT
    mae_constant: Number = _ABSENT
    events: Count = _ABSENT
    median_follow_up: Number | None = None
    c_ipcw: Share | None = None
    c_ipcw_ci95: Interval | None = None
    c_ipcw_truncation: Number | None = None
    risk_groups: list[_Risk] = _ABSENT
    log_rank_p: Share | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.mae is None) != (self.mae_constant is None):
            raise ValueError("an error without the error of a constant, or the reverse")
        if self.positives is None:
            return self
        classes, at = (self.positives > 0, self.positives < self.bags), self.at_threshold
        if self.positives > self.bags or (self.auroc is not None) != all(classes):
            raise ValueError("an AUROC with one class, no AUROC with two, or more positive bags than bags")
        if at is not None and (at.sensitivity is not None, at.specificity is not None) != classes:
            raise ValueError("sensitivity and specificity that do not fit the number of positive bags")
        return self


class _Weights(Form):
    epoch: Count | None


class _Selected(_Weights):
    weights: Literal["last", "best"]


class _Alone(_Main):
    """A model of the covariates alone, compared with the run's model."""

    method: str
    part: Literal["test", "val"]
    bags: Positive = _ABSENT
    difference: Number | None
    difference_ci95: Interval | None


class _Compared(_Alone):
    difference: Number
    difference_ci95: Interval
    difference_method: str


class _Covariates(Form):
    names: list[str]
    kinds: list[str]
    alone: _Alone | None

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.names) != len(self.kinds):
            raise ValueError("as many kinds as names are expected")
        return self


class _State(Form):
    bags: Positive
    tracked: Number
    whole: Number
    l: Number  # noqa: E741
    r: Number | None


class _Tried(Form):
    method: str
    auroc: Share | None = None
    seconds: _Seconds
    weight: Share
    note: str | None = None
    epochs: Positive | None = None
    interval: Interval | None = None


class _Feature(Form):
    feature: str
    drop: _Drop
    low: _Drop
    high: _Drop


class _Importance(Form):
    part: Literal["val", "test"]
    features: list[_Feature]


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
    features: list[str] = Field(default_factory=list)


class _Summary(Form):
    """Content of ``summary.json``, whatever the target."""

    test: _Part = _ABSENT
    val: _Part = _ABSENT
    train: _Part = _ABSENT
    selected: _Selected = _ABSENT
    by_weights: dict[str, _Weights] = Field(default_factory=dict)
    method: dict[str, str] = Field(default_factory=dict)
    members: Positive = 1
    epochs: Count = 0
    state: _State = _ABSENT
    baseline: _Compared | None = None
    baseline_note: str = _ABSENT
    covariates: _Covariates = _ABSENT
    auto: _Auto = _ABSENT
    deployed: _Deployed = _ABSENT
    importance: _Importance = _ABSENT
    thresholds: Thresholds = _ABSENT
    warnings: list[str] = Field(default_factory=list)
    data: _Data
    version: str
    environment: dict[str, str] = Field(default_factory=dict)
    seconds: dict[str, _Seconds] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_parts(self) -> Self:
        if not any(getattr(self, name) for name in SPLITS):
            raise ValueError("metrics of no part")
        for entry in (self.baseline, self.covariates.alone if self.covariates is not None else None):
            if entry is not None and getattr(self, entry.part) is None:
                raise ValueError("a baseline that is compared on a part without metrics")
        return self


class _Titled(Form):
    """Target in a file; missing for two classes."""

    target: str = _ABSENT
    names: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if len(set(self.names)) < len(self.names):
            raise ValueError("names of classes that do not differ")
        return self


def read_target(content: Mapping[str, Any], path: Path) -> Target:
    """Return the target that a file names."""
    check_form(content, _Titled, path)
    name = content.get("target")
    if name is not None and name not in TARGETS.names():
        raise CheckpointError(
            f"Expected a known target, got {name!r} (in {path}, key target); {nearest(name, TARGETS.names())}"
        )
    target = target_named(None if name is None else {"target": name, "names": content.get("names", [])})
    least, most = target.name_limits
    if name is not None and not least <= len(target.names) <= (len(target.names) if most is None else most):
        raise CheckpointError(
            f"Expected a valid entry, got {len(target.names)} names for the target {name} (in {path}, key names); "
            "restore a copy of it, or make it again."
        )
    return target


def read_summary(folder: RunFolder) -> tuple[dict[str, Any], Target]:
    """Return the content of ``summary.json`` and the target."""
    summary = read_json(folder.summary)
    target = read_target(summary, folder.summary)
    check_form(summary, _Summary, folder.summary)
    for name in ("baseline", *SPLITS):
        fault = _fault(summary[name], target, compared=name == "baseline") if summary.get(name) else None
        if fault is not None:
            raise CheckpointError(
                f"Expected {folder.summary.name} as midam writes it, got {name}: {fault} (in {folder.summary}); "
                "restore a copy of it, or make it again."
            )
    return summary, target


def _fault(entry: Mapping[str, Any], target: Target, *, compared: bool) -> str | None:
    """Return a fault in the metrics of a part, or of the `compared` baseline, of this target; None for no fault."""
    metric, names = target.metric, target.names
    required = [metric, f"{metric}_ci95", f"{metric}_method", *(() if compared else target.figures)]
    lacking = [key for key in required if key not in entry or (compared and entry[key] is None)]
    if lacking:
        return f"no {lacking[0]}"
    if sorted(entry.get("per_class", names)) != sorted(names):
        return f"metrics of other classes than {', '.join(names[:8])}"
    square = "confusion" not in entry or [len(row) for row in entry["confusion"]] == [len(names)] * len(names)
    return None if square else f"a confusion that is not of {len(names)} classes"


class _Files(Form):
    picture: str


class _Entry(Form):
    bag: str
    split: Literal["train", "val", "test"] | None
    files: _Files


class Explanations(Form):
    """Entries of ``explain.json`` to which a page links."""

    bags: list[_Entry]
