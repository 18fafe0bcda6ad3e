"""Forms of the entries of `summary.json` about the bags of one part, which `Target.summarize` writes."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from midam.reading import Count, Form, Interval, Number, Positive, Share


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise ValueError("null where an entry is expected")
    return value


NotNull = BeforeValidator(_refuse_null)
"""Refuses null where an entry may be left out."""


def all_or_none(form: Form, *names: str) -> None:
    """Refuse a figure without its interval and method, or these without the figure."""
    known = [getattr(form, name) is not None for name in names]
    if any(known) and not all(known):
        raise ValueError(f"{names[known.index(True)]} without {names[known.index(False)]}")


class PartForm(Form):
    """Entries of every target."""

    bags: Positive
    groups: Positive | None = None
    metrics: dict[str, Number | None] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)


Confusion = list[list[Count]]


class CallsForm(PartForm):
    """How well classes or grades are called."""

    accuracy: Share | None = None
    accuracy_ci95: Interval | None = None
    balanced_accuracy: Share | None = None
    confusion: Annotated[Confusion | None, NotNull] = None

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.confusion is None:
            return self
        if any(len(row) != len(self.confusion) for row in self.confusion):
            raise ValueError("a confusion that is not square")
        if sum(map(sum, self.confusion)) != self.bags:
            raise ValueError("a confusion of another number of bags")
        return self
