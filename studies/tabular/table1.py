"""`python -m studies table1`: the loaded data sets, next to the paper's Table 1."""

import time

from midam.data.bags import Bags
from midam.errors import DataNotFoundError
from studies.options import StudyOptions
from studies.page import table, write_page
from studies.paper_tables import TABLE1
from studies.registry import as_study
from studies.sets import catalog

_SHOWS = (
    "Positive and negative bags, mean bag size and features of each data set: as the paper prints them in its Table 1, "
    "and as they are loaded here, images by the catalog's own patch size. A set without figures of ours is not here."
)
_DIFFERS = 0.006


@as_study("the data sets as loaded, beside the paper's Table 1")
def run(options: StudyOptions) -> None:
    """Write the page."""
    started = time.perf_counter()
    loaded: dict[str, Bags] = {}
    missing: dict[str, str] = {}
    for name in TABLE1:
        try:
            loaded[name] = catalog.load(name)
        except DataNotFoundError as error:
            missing[name] = str(error)
    write_page(
        options,
        "table1",
        title="Table 1: the data sets",
        shows=_SHOWS,
        seeds="none; nothing is drawn",
        seconds=time.perf_counter() - started,
        body=[*_table(loaded), "", *_notes(loaded, missing)],
        tried=False,
    )


def _table(loaded: dict[str, Bags]) -> list[str]:
    head = ["set", "bags + / -", "paper", "mean bag size", "paper", "smallest to largest", "features", "paper"]
    rows = []
    for name, (title, positive, negative, size, features) in TABLE1.items():
        ours = ["-"] * 4
        if name in loaded:
            bags = loaded[name]
            positives = int(bags.require_labels().sum())
            channels, *sides = bags.instance_shape
            width = "x".join(str(side) for side in (*sides, channels))
            span = f"{bags.sizes.min()} to {bags.sizes.max()}"
            ours = [f"{positives} / {len(bags) - positives}", f"{bags.sizes.mean():.2f}", span, width]
        rows.append([title, ours[0], f"{positive} / {negative}", ours[1], f"{size:g}", ours[2], ours[3], features])
    return table(head, rows)


def _notes(loaded: dict[str, Bags], missing: dict[str, str]) -> list[str]:
    notes = []
    wrong = [name for name in loaded if abs(loaded[name].sizes.mean() - TABLE1[name][3]) > _DIFFERS]
    for name in wrong:
        size = float(loaded[name].sizes.mean())
        twin = [other for other in wrong if other != name and abs(TABLE1[other][3] - size) <= _DIFFERS]
        hint = f", which the paper prints for {TABLE1[twin[0]][0]}" if twin else ""
        notes.append(
            f"- {TABLE1[name][0]}: the mean bag size is {size:.2f}{hint}; the paper prints {TABLE1[name][3]:g} here."
        )
    notes += [f"- {TABLE1[name][0]}: not loaded. {text}" for name, text in missing.items()]
    return notes or ["The figures agree."]
