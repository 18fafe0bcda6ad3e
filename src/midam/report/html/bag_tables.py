"""Tables of single bags, and how to find out why they scored as they did."""

import shlex
from collections.abc import Callable, Sequence

from midam.report.html.markup import DASH, Cell, Column, Html, paragraph, table, tag
from midam.report.html.study import Report

_ASKED = 4  # bags named in the command that explains them


def bag_table(
    study: Report,
    index: Sequence[int],
    heads: Sequence[Column],
    cells: Callable[[int], Sequence[Cell]],
    *,
    caption: str,
) -> Html:
    """Tested bags at these positions: name, cells, instances and group where known, explanation where there is one."""
    tested, rows = study.tested, []
    known = {} if study.explained is None else study.explained.pictures
    pictures = [known.get(str(tested.ids[i])) for i in index]
    for at, i in enumerate(index):
        row: list[Cell] = [str(tested.ids[i]), *cells(i)]
        if tested.sizes is not None:
            row.append(int(tested.sizes[i]))
        if tested.groups is not None:
            row.append(str(tested.groups[i]))
        if any(pictures):
            picture = pictures[at]
            row.append(DASH if picture is None else tag("a", "explanation", href=picture))
        rows.append(row)
    columns = [Column("bag"), *heads]
    columns += [Column("instances", True)] if tested.sizes is not None else []
    columns += [Column("group")] if tested.groups is not None else []
    columns += [Column("why")] if any(pictures) else []
    return table(caption, columns, rows, sorts=True)


def why(study: Report, bags: Sequence[str]) -> list[Html]:
    """Where the explanations of these bags are, or how to make them."""
    known = {} if study.explained is None else study.explained.pictures
    missing, body = [bag for bag in bags if bag not in known][:_ASKED], list[Html]()
    if study.explained is not None and len(missing) < len(bags):
        link = tag("a", "explanations", href=study.explained.page)
        body.append(paragraph("The ", link, " stand beside this page and do not travel with it.", note=True))
    if missing:
        command = f"{study.explain_command} --bags {' '.join(shlex.quote(bag) for bag in missing)}"
        body.append(paragraph("Which instances decided is shown by ", tag("code", command), ".", note=True))
    return body
