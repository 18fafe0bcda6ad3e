"""Forms of the files of a run, one class a file; each has one reader here or in `midam.runs.report`."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, create_model, model_validator

from midam.errors import CheckpointError, nearest
from midam.evaluate.calibrate import Thresholds
from midam.reading import Count, Form, Interval, Number, Positive, Share, check_form, read_json
from midam.registry import TARGETS
from midam.runs.folder import SPLITS, RunFolder
from midam.settings import Settings
from midam.targets import Target, target_named
from midam.targets.base import NotNull, PartForm


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
    epochs: Positive | None = None
    interval: Interval | None = None


class _Feature(Form):
    feature: str
    drop: Annotated[Number, Field(ge=-1, le=1)]
    low: Annotated[Number, Field(ge=-1, le=1)]
    high: Annotated[Number, Field(ge=-1, le=1)]


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


_Seconds = Annotated[Number, Field(ge=0)]


class Summary(Form):
    """Content of ``summary.json`` for every target; `summary_form` adds the figures of the parts."""

    selected: Annotated[_Selected | None, NotNull] = None
    by_weights: dict[str, _Weights] = Field(default_factory=dict)
    method: dict[str, str] = Field(default_factory=dict)
    members: Positive = 1
    epochs: Count = 0
    baseline: _Compared | None = None
    baseline_note: Annotated[str | None, NotNull] = None
    covariates: Annotated[_Covariates | None, NotNull] = None
    auto: Annotated[_Auto | None, NotNull] = None
    deployed: Annotated[_Deployed | None, NotNull] = None
    importance: Annotated[_Importance | None, NotNull] = None
    thresholds: Annotated[Thresholds | None, NotNull] = None
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
    """Target in a file; absent for two classes."""

    target: Annotated[str | None, NotNull] = None
    names: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if len(set(self.names)) < len(self.names):
            raise ValueError("names of classes that do not differ")
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
    target = target_named(None if name is None else {"target": name, "names": content.get("names", [])})
    least, most = target.name_limits
    if name is not None and not least <= len(target.names) <= (len(target.names) if most is None else most):
        raise CheckpointError(
            f"Expected a valid entry, got {len(target.names)} names for the target {name} (in {path}, key names); "
            "restore a copy of it, or make it again."
        )
    return target


def read_summary(folder: RunFolder, settings: Settings) -> tuple[dict[str, Any], Target]:
    """Content of ``summary.json``, and the target; `settings` are those of the run, whose code is trusted."""
    found = read_json(folder.summary)
    target = read_target(found, folder.summary, trusted=settings.data.target)
    check_form(found, summary_form(target), folder.summary)
    return found, target


def summary_form(target: Target) -> type[Summary]:
    """Form of the ``summary.json`` of a run with this target."""
    return _summary_form(target.form, target.metric, target.names)


@lru_cache(maxsize=16)
def _summary_form(form: type[PartForm], figure: str, names: tuple[str, ...]) -> type[Summary]:
    metric: dict[str, Any] = {figure: (Share, ...), f"{figure}_ci95": (Interval, ...), f"{figure}_method": (str, ...)}
    alone: dict[str, Any] = {figure: (Share | None, None), f"{figure}_ci95": (Interval | None, None)}
    baseline: Any = create_model("Baseline", __base__=_Compared, **metric)
    beside: Any = create_model("Alone", __base__=_Alone, **alone)
    covariates: Any = create_model("Covariates", __base__=_Covariates, alone=(beside | None, ...))
    kind: Any = _named(form, names)
    fields: dict[str, Any] = dict.fromkeys(SPLITS, (Annotated[kind | None, NotNull], None))
    fields["baseline"] = (baseline | None, None)
    fields["covariates"] = (Annotated[covariates | None, NotNull], None)
    return create_model("Summary", __base__=Summary, **fields)


def _named(part: type[PartForm], names: tuple[str, ...]) -> type[PartForm]:
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
    """Entries of ``explain.json`` that a page links."""

    bags: list[_Entry]
