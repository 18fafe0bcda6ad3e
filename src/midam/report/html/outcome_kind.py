"""What the page of a run says of its target: sentences, key figures, sections; one class a target."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.proportions import Estimate
from midam.report.html.bag_tables import bag_table, why
from midam.report.html.making import Counts
from midam.report.html.markup import (
    DASH,
    Cell,
    Column,
    Html,
    Section,
    interval,
    join,
    number,
    paragraph,
    tag,
)
from midam.report.html.outcome_study import OutcomeBags, OutcomeStudy

Tile = tuple[str, Html, Cell]
MOST_NAMES = 12  # classes, labels or grades up to which all are shown without a click
UNDECIDED = "This needs validation bags from which it can be told, and the run has none."
_WORST = 10  # bags shown of a kind
# Bags of a class, or events, below which a validation says little (Collins et al. 2016, Statistics in Medicine 35:214).
FEW = 100


class Kind:
    """Base of the kinds, and what is said of a target that has none.

    Attributes
    ----------
    label : str
        What the authors of a study have to define.
    pairs : str
        Which pairs the figure of merit is a share of.
    claim : str
        What is right of such a pair; stands behind "On N bags, that played no part in training".
    """

    label: ClassVar[str] = "the label"
    claim: ClassVar[str] = ": of two bags the one with the higher label had the higher score"
    pairs: ClassVar[str] = "comparable pairs"

    def __init__(self, study: OutcomeStudy) -> None:
        self.study, self.tested, self.summary = study, study.tested, study.summary

    def counted(self) -> str:
        """Number of the tested bags in words, with what matters of their labels."""
        return f"{len(self.tested)} bags"

    def second(self) -> Html | None:
        """The second sentence of the page."""
        return None

    def tiles(self) -> list[Tile]:
        """Key figures."""
        return [self.merit()]

    def counts(self) -> Counts:
        """How labels are counted where the page says where the bags went."""
        return Counts(lambda _: [], (), lambda _: (), self.validates)

    validates: ClassVar[str] = "helps to choose the model"

    def flow(self) -> list[Html]:
        """What else is to say of where the bags went."""
        return []

    def sections(self) -> list[Section]:
        """How bags are ranked, and what is told of them."""
        return []

    def errors(self) -> Section | None:
        """The most wrong bags."""
        return None

    def few(self) -> list[str]:
        """What rests on few bags."""
        return list(self.summary.get("warnings", []))

    def shift(self) -> list[str]:
        """What changes with other shares of labels."""
        return []

    def merit(self) -> Tile:
        """The tile of the figure of merit."""
        return tile(self.study.merit_name, self.study.figure(self.study.merit), key=self.study.merit)

    def worst(
        self, title: str, order: Sequence[int], heads: Sequence[Column], cells: Callable[[int], Sequence[Cell]]
    ) -> tuple[Html, list[str]]:
        """A table of the first of some bags, the worst first, and their names."""
        shown = list(order)[:_WORST]
        if not shown:
            return join([tag("h3", title), paragraph("None.")]), []
        rest = f", the worst {len(shown)}" if len(shown) < len(order) < len(self.tested) else ""
        count = len(order) if rest else len(shown)
        caption = f"{count} of {len(self.tested)} bags{rest}"
        found = bag_table(self.study, shown, heads, cells, caption=caption)
        return join([tag("h3", title), found]), self.tested.ids[shown].tolist()

    def section_of_errors(self, opening: str, *tables: tuple[Html, list[str]]) -> Section:
        """The section of the most wrong bags."""
        bags = list(dict.fromkeys(bag for _, names in tables for bag in names))
        words = paragraph(f"{opening} Look at them: labels can be wrong too.")
        # The command explains one score a bag, not one a class.
        asked = why(self.study, bags) if self.tested.scores.ndim == 1 else []
        return Section("errors", "Errors: the most wrong bags", join([words, *(table for table, _ in tables), *asked]))


def tile(name: str, found: Estimate | None, below: Cell = None, *, key: str, form: str = ".3f") -> Tile:
    """A tile of a figure of the summary: below it stands its interval, where it has one, or what is given."""
    if found is None:
        return name, DASH, DASH if below is None else below
    bounds = interval(found.low, found.high, form=form) if np.isfinite(found.low) else None
    return name, number(found.value, form=form, key=key), join([part for part in (bounds, below) if part], " ")


def p_value(value: float | None, *, key: str | None = None) -> Html:
    """A p-value, in words where it is tiny; a dash for None."""
    if value is None:
        return DASH
    shown = "< 0.001" if value < 0.001 else f"{value:.3f}"
    return tag("data", shown, value=repr(float(value)), data_key=key)


def joined(parts: Sequence[OutcomeBags]) -> NDArray[np.float64]:
    """Values of the bags of some parts."""
    return np.concatenate([part.values for part in parts])


def plural(count: int, one: str) -> str:
    """A number of things.

    Examples
    --------
    >>> plural(1, "bag"), plural(2, "class")
    ('1 bag', '2 classes')
    """
    return f"{count:,} {one}" + ("" if count == 1 else "es" if one.endswith("s") else "s")


def named_counts(codes: NDArray[np.float64], names: Sequence[str], one: str) -> list[str]:
    """How many bags have each class or grade; their range where they are many."""
    counts = np.bincount(codes.astype(np.int64), minlength=len(names))
    if len(names) <= 4:
        return [f"{name}: {count:,}" for name, count in zip(names, counts.tolist())]
    low, high = f"{counts.min():,}", f"{counts.max():,}"
    return [plural(len(names), one), f"{low if low == high else f'{low} to {high}'} bags of each"]
