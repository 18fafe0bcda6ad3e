"""Render numbers, tables and figures as HTML by the templates of this folder, with all text escaped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure as Plot

from midam._version import __version__
from midam.evaluate.proportions import Estimate
from midam.names import visible
from midam.report.figures import svg_text
from midam.report.words import as_flags, signed

DASH = Markup("&ndash;")
_WORD = 12  # characters of a text that may have the width of its longest word
_ENDS = 30  # code of at least so many characters may be broken


class Number(NamedTuple):
    """A number, or an estimate with its interval, its format, and its place in summary.json."""

    value: float | Estimate | None
    form: str = ".3f"
    key: str | None = None


class Code(str):
    """Text in a table that is set as code."""

    __slots__ = ()


class Link(NamedTuple):
    """A link in a table."""

    text: str
    address: str


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows; if `sorts`, a click on a head sorts it. `cell` renders its cells."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    sorts: bool = False

    @property
    def kinds(self) -> list[str]:
        """Class of each column in page.css: n for numbers, t for texts that may not become narrow, or ""."""
        return [_kind(column) for column in zip(*self.rows, strict=True)] if self.rows else [""] * len(self.heads)


class Figure(NamedTuple):
    """A figure with its caption, which screen readers read as well."""

    plot: Plot
    title: str
    text: str = ""


class Pair(NamedTuple):
    """Blocks that stand side by side where there is room."""

    blocks: Sequence[Any]


class Note(NamedTuple):
    """A remark in small type."""

    text: object


class Box(NamedTuple):
    """A list of warnings in a frame."""

    title: str
    items: Sequence[str]


class Part(NamedTuple):
    """Blocks below a heading of their own; with `folded`, a click shows them."""

    title: str
    blocks: Sequence[Any]
    folded: bool = False


class Section(NamedTuple):
    """A section: its name in links, its title, and its blocks.

    A block is a paragraph (a text) or one of the classes above. Text between backticks is code. The table of contents
    shows the title up to its colon.
    """

    name: str
    title: str
    blocks: Sequence[Any]


def made(
    facts: Sequence[tuple[str, str]], changed: Sequence[tuple[str, str, str]], settings: Sequence[tuple[str, str]]
) -> list[Any]:
    """Return the blocks on facts such as versions, and on settings: those that differ from the defaults, and all."""
    heads = ["setting", "value", "default"]
    rows = [[name, Code(value), Code(default)] for name, value, default in changed]
    every = Table("All settings", heads[:2], [[name, Code(value)] for name, value in settings])
    return [
        Table("How to find and repeat it", (), [[name, Code(value)] for name, value in facts]),
        Table("Settings that differ from the defaults", heads, rows) if rows else "Every setting has its default.",
        Part(f"All {len(settings)} settings", [every], folded=True),
    ]


def render(template: str, **context: Any) -> str:
    """Return the HTML of a page by a template of this folder, with control characters in names made visible."""
    return visible(_environment().get_template(template).render(**context))


def cell(value: Any) -> Markup:
    """Return the HTML of a cell: a number holds its exact value and shows its interval, if any; None is a dash."""
    if isinstance(value, Estimate):
        value = Number(value)
    if isinstance(value, Link):
        return Markup('<a href="{}">{}</a>').format(value.address, value.text)
    if isinstance(value, Code):
        return Markup("<code>{}</code>").format(str(value))
    if not isinstance(value, Number):
        return DASH if value is None else escape(value)
    figure, form, key = value
    exact = figure.value if isinstance(figure, Estimate) else figure
    if exact is None or not np.isfinite(exact):
        return DASH
    place = Markup(' data-key="{}"').format(key) if key else ""
    number = Markup('<data value="{}"{}>{}</data>').format(repr(float(exact)), place, signed(float(exact), form))
    if isinstance(figure, Estimate) and np.isfinite(figure.low):
        return Markup("{} {}").format(number, interval(figure, form))
    return number


def interval(figure: Estimate | None, form: str = ".3f") -> Markup:
    """Return the bounds of a 95% interval in brackets; a dash if they are unknown."""
    if figure is None or not np.isfinite(figure.low):
        return DASH
    return Markup('<span class="ci">[{}, {}]</span>').format(signed(figure.low, form), signed(figure.high, form))


def prose(words: object) -> Markup:
    """Return text with parts between backticks as code, and parameters as flags (`midam.report.words.as_flags`)."""
    if isinstance(words, Markup):
        return words
    parts = as_flags(words, mark="`").split("`")
    short, long = Markup('<code class="short">{}</code>'), Markup("<code>{}</code>")
    return Markup("").join(
        (short if len(part) < _ENDS else long).format(part) if at % 2 else part for at, part in enumerate(parts)
    )


def _kind(column: Sequence[Any]) -> str:
    if any(map(_is_number, column)) and all(x is None or _is_number(x) for x in column):
        return "n"
    return "t" * any(isinstance(x, str) and len(x) > _WORD for x in column)


def _is_number(value: Any) -> bool:
    if isinstance(value, Number):
        return not isinstance(value.value, Estimate)
    return isinstance(value, int | float | np.integer)


@cache
def _environment() -> Environment:
    """Return the environment of the templates, which escape every text that is not `Markup`."""
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=PackageLoader("midam.report.page"), autoescape=True, **blocks)
    filters: dict[str, Callable[..., Any]] = {"cell": cell, "prose": prose}
    filters["kind"] = lambda block: "str" if isinstance(block, str) else type(block).__name__
    filters["svg"] = lambda figure, description: Markup(svg_text(figure, description))
    environment.filters.update(filters)
    environment.globals.update(version=__version__, asset=_asset)
    return environment


def _asset(name: str) -> Markup:
    """Return a style or a script of this package, unescaped."""
    return Markup((files("midam.report.page") / "templates" / name).read_text(encoding="utf-8"))
