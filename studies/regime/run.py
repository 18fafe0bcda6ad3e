"""Run a study that has a design, one for a quick part and one for a trial: open its store and write its page."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

from studies.engine import Store
from studies.options import StudyOptions
from studies.page import figure_path, write_page


class Repeated(Protocol):
    """A design whose trials are repeated."""

    @property
    def repeats(self) -> tuple[int, ...]:
        """Numbers of the repeats, which are their seeds."""


D = TypeVar("D", bound=Repeated)


def run_design(
    options: StudyOptions,
    name: str,
    designs: tuple[D, D, D],
    study: Callable[[D, Store, Path], Iterable[str]],
    *,
    title: str,
    shows: str,
) -> None:
    """Run a study, of which `designs` are all of it, its quick part and its trial of seconds, and write its page.

    `study` computes what the store does not hold, draws the figure and returns the body of the page.
    """
    full, quick, smaller = designs
    part, design = ("-smaller", smaller) if options.smaller else ("-quick", quick) if options.quick else ("", full)
    with Store(options.cache, f"{name}{part}") as store:
        body = study(design, store, figure_path(options, name))
        write_page(
            options,
            name,
            title=title,
            shows=shows,
            seeds=f"repeats {design.repeats[0]} to {design.repeats[-1]}, of images, bags, weights and draws",
            seconds=store.wall_time(),
            store=store,
            body=body,
        )
