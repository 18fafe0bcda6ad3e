"""Pieces of HTML: numbers that carry their exact value, tables, figures, tiles. All text is escaped here."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from midam.evaluate.proportions import Estimate
from midam.report.words import signed


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Cell = str | int | None
DASH = Html("&ndash;")
_VOID = ("img", "input")  # elements without an end


def text(value: Cell) -> Html:
    """A value as HTML; a dash for None."""
    if value is None:
        return DASH
    return value if isinstance(value, Html) else Html(escape(str(value)))


def prose(words: str) -> Html:
    """Text whose parts between backticks are code."""
    parts = words.split("`")
    short = ("short" if len(part) < 30 else None for part in parts)
    return join(tag("code", part, class_=kind) if at % 2 else part for at, (part, kind) in enumerate(zip(parts, short)))


def join(parts: Iterable[Cell], between: str = "") -> Html:
    """Values one after the other."""
    return Html(between.join(text(part) for part in parts))


def tag(name: str, /, *inside: Cell, **attributes: str | None) -> Html:
    """An element; `class_` stands for class, ``aria_label`` for aria-label, and None leaves an attribute out."""
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    given = "".join(f' {names[key]}="{escape(value)}"' for key, value in attributes.items() if value is not None)
    return Html(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{join(inside)}</{name}>")


def number(value: float | None, *, form: str = ".3f", key: str | None = None) -> Html:
    """A number with its exact value in it, and its place in summary.json as `key`; a dash for None."""
    if value is None:
        return DASH
    return tag("data", signed(value, form), value=repr(float(value)), data_key=key)


def interval(low: float, high: float, *, form: str = ".3f") -> Html:
    """The bounds of a 95% interval in brackets."""
    return tag("span", f"[{signed(low, form)}, {signed(high, form)}]", class_="ci")


def estimate(found: Estimate | None, *, form: str = ".3f", key: str | None = None) -> Html:
    """A figure with its interval, where it has one; a dash for None."""
    if found is None:
        return DASH
    shown = number(found.value, form=form, key=key)
    return join([shown, interval(found.low, found.high, form=form)], " ") if math.isfinite(found.low) else shown


def paragraph(*inside: Cell, note: bool = False) -> Html:
    """A paragraph, or a note in small type."""
    return tag("p", *map(_prose, inside), class_="note" if note else None)


def listing(items: Iterable[Cell]) -> Html:
    """A list of points; nothing without any."""
    found = join(tag("li", _prose(item)) for item in items)
    return tag("ul", found) if found else found


def box(title: str, *inside: Cell, warn: bool = False) -> Html:
    """A box that stands out."""
    return tag("div", tag("h3", title), *inside, class_="box warn" if warn else "box")


def tiles(entries: Iterable[tuple[str, Html, Cell]]) -> Html:
    """Key figures: name, figure, and what stands below it."""
    found = (
        tag("div", tag("dt", name), tag("dd", shown), tag("dd", below), class_="tile") for name, shown, below in entries
    )
    return tag("dl", *found, class_="tiles")


class Column(NamedTuple):
    """Head of a column; numbers stand to the right."""

    name: str
    numbers: bool = False


def table(
    caption: Cell, columns: Sequence[str | Column], rows: Iterable[Sequence[Cell]], *, sorts: bool = False
) -> Html:
    """A table whose first cells head their rows; where it is too wide, it alone scrolls. `sorts`: by a click."""
    heads = [column if isinstance(column, Column) else Column(column) for column in columns]
    kinds = ["n" if head.numbers else None for head in heads]
    top = join(tag("th", head.name, scope="col", class_=kind) for head, kind in zip(heads, kinds))
    body = []
    for row in rows:
        first, *rest = row
        cells = (tag("td", cell, class_=kind) for cell, kind in zip(rest, kinds[1:]))
        body.append(tag("tr", tag("th", first, scope="row", class_=kinds[0]), *cells))
    inside = (tag("caption", tag("span", caption)), tag("thead", tag("tr", top)), tag("tbody", *body))
    whole = tag("table", *inside, class_="sorts" if sorts else None)
    name = str(caption) if not isinstance(caption, Html) else heads[0].name
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=f"Table: {name}")


def facts(entries: Iterable[tuple[str, Cell]], *, caption: str) -> Html:
    """A table of names and values."""
    rows = (tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in entries)
    inside = tag("table", tag("caption", tag("span", caption)), tag("tbody", *rows), class_="steady")
    return tag("div", inside, class_="scroll", tabindex="0", role="region", aria_label=f"Table: {caption}")


def figure(drawing: Html, caption: Cell, *, keys: Cell = "", kind: str | None = None) -> Html:
    """A drawing with its legend and its caption; of `kind` "tall" it may be wider."""
    return tag("figure", drawing, keys, tag("figcaption", caption), class_=kind)


def titled(title: str, *rest: Cell) -> Html:
    """A caption with its title."""
    return join([tag("strong", title), *rest])


def pair(*parts: Html) -> Html:
    """Parts side by side where there is room."""
    return tag("div", *parts, class_="pair")


def folded(title: str, *inside: Cell) -> Html:
    """What is shown on a click, and on paper."""
    return tag("details", tag("summary", title), *inside)


def _prose(value: Cell) -> Cell:
    return prose(value) if isinstance(value, str) and not isinstance(value, Html) else value


class Section(NamedTuple):
    """A section of the page, with the name that links to it; the contents hold its title up to a colon."""

    name: str
    title: str
    body: Html


def document(
    *, title: str, kicker: str, lead: Sequence[Cell], sections: Sequence[Section], footer: Cell, description: str
) -> str:
    """The whole page: style and script stand in it, and nothing is fetched."""
    style, script = ((files(__package__) / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    links = join(tag("li", tag("a", section.title.partition(":")[0], href=f"#{section.name}")) for section in sections)
    body = join(tag("section", tag("h2", title), inside, id=name) for name, title, inside in sections)
    opening = (tag("p", kicker, class_="kicker"), tag("h1", title), *(tag("p", words, class_="lead") for words in lead))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="description" content="{escape(description)}">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + tag("a", "Skip to the report", class_="skip", href="#report")
        + tag("header", tag("div", *opening))
        + tag("div", tag("nav", tag("ol", links), aria_label="Contents"), tag("main", body, id="report"), class_="page")
        + tag("footer", tag("div", footer))
        + f"\n<script>\n{script}</script>\n</body>\n</html>\n"
    )
