"""What makes the runs of tests quick: fewer trees, epochs, folds, resamples and strengths of a penalty, blank figures.

A forest stands beside each run, models of folds score its bags, and a run has ten figures: most of what a small one
costs. A test of the folds themselves has as many as users within `usual_folds`. A test that looks at a
picture carries the marker `drawn`; `drawn(False)` excepts one of a file that does. Nothing waits for the disk, as tests
kill programs, not the machine; but a command that is to be killed keeps the pace that users see.
"""

import functools
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

TREES = 20
FOLDS = 2
RESAMPLES = 100
HELD_OUT = 10  # bags of each class that a fit changes, to see what their scores do
EPOCHS = 10  # of the networks of mean vectors
DRAWS = 240  # bags drawn in a training that `auto` tries: 6 epochs of 40 bags
usual: dict[str, Any] = {}  # what users get, by its name, for tests of these values themselves
_state = {"drawn": True}


def _chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


# One gray pixel.
_HEAD, _PIXEL = bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]), zlib.compress(b"\0\x80")
_BLANK = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", _HEAD) + _chunk(b"IDAT", _PIXEL) + _chunk(b"IEND", b"")


def _plant_few_trees(fitted: Any) -> None:
    fitted._TREES, fitted._FEW = TREES, 1.0


def _train_few_folds(folds: Any) -> None:
    folds._FOLDS = FOLDS


def _train_few_epochs(networks: Any) -> None:
    networks._EPOCHS = EPOCHS


def _try_few_strengths(baselines: Any) -> None:
    """Choose between every third strength of a penalty, and few widths of a kernel."""
    names = ("_LOGISTIC_C", "_KERNEL_C", "_MAP_GAMMAS")
    usual.update({name: getattr(baselines, name) for name in names})
    baselines._LOGISTIC_C = baselines._LOGISTIC_C[1::3]
    baselines._KERNEL_C = baselines._KERNEL_C[1::3]  # with 1, which is taken where nothing is chosen
    baselines._MAP_GAMMAS = baselines._MAP_GAMMAS[1::2]


def _draw_few_bags(candidates: Any) -> None:
    usual["_MOST_DRAWS"] = candidates._MOST_DRAWS
    candidates._MOST_DRAWS = DRAWS


def _draw_few_resamples(assumption: Any) -> None:
    assumption._RESAMPLES = RESAMPLES


def _change_few_bags(assumption: Any) -> None:
    assumption.OF_FIT = HELD_OUT


def _leave_unplotted(plots: Any) -> None:
    """Let figures of runs be an empty one, unless `drawing` is on."""
    from matplotlib.figure import Figure

    empty = Figure()
    empty.add_subplot()  # a page may look at the axes

    def blank(plot: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plot)
        def plotted(*args: Any, **options: Any) -> Any:
            return plot(*args, **options) if is_drawn() else empty

        return plotted

    for name, plot in [*vars(plots).items()]:
        if name.startswith("plot_") and plot.__module__ == plots.__name__:
            setattr(plots, name, blank(plot))


def _leave_undrawn(figures: Any) -> None:
    """Let plots be empty, and other figures end as a blank picture, unless `drawing` is on."""
    _leave_unplotted(figures)
    svg_text, write_figure, finish = figures.svg_text, figures.write_figure, figures.finish

    def svg(figure: Any, description: str) -> str:
        blank = f'<svg viewBox="0 0 1 1" role="img" aria-label="{escape(description)}"></svg>'
        return str(svg_text(figure, description)) if is_drawn() else blank

    def png(figure: Any, path: Path, **options: Any) -> None:
        write_figure(figure, path, **options) if is_drawn() else figures.write_bytes(path, _BLANK)

    def finished(figure: Any, **options: Any) -> Any:
        return finish(figure, **options) if is_drawn() else figure

    figures.svg_text, figures.write_figure, figures.finish = svg, png, finished


def _leave_unmapped(run: Any) -> None:
    """Let commands that explain bags plot no map and no chart, unless `drawing` is on."""
    from midam.explain import picture

    draw_explanation = run.draw_explanation

    def drawn(*args: Any, **options: Any) -> Any:
        plots = picture.draw_map, picture.draw_chart
        if not is_drawn():
            picture.draw_map = picture.draw_chart = lambda *_, **__: None
        try:
            return draw_explanation(*args, **options)
        finally:
            picture.draw_map, picture.draw_chart = plots

    run.draw_explanation = drawn


def _ask_versions_once(folder: Any) -> None:
    """Look up the versions of packages, which each run notes twice, once."""
    folder.environment = functools.cache(folder.environment)


# They take seconds to import: each is changed when somebody else imports it.
_CHANGES: dict[str, Callable[[Any], None]] = {
    "midam.methods.statistics_models": _plant_few_trees,
    "midam.methods.baselines": _try_few_strengths,
    "midam.methods.auto.candidates": _draw_few_bags,
    "midam.methods.networks": _train_few_epochs,
    "midam.runs.folds": _train_few_folds,
    "midam.runs.folder": _ask_versions_once,
    "midam.evaluate.assumption": _draw_few_resamples,
    "midam.runs.assumption": _change_few_bags,
    "midam.report.figures": _leave_undrawn,
    "midam.explain.run": _leave_unmapped,
    "midam.report.plot_scores": _leave_unplotted,
}


class _Finder(MetaPathFinder):
    """Find the modules to change, and change each when it has been run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _CHANGES else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _CHANGES[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(*, waits: bool = False) -> None:
    """Make the runs of this process quick, whether or not it has imported what is changed; it may wait for the disk."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if not waits:
        os.fsync = lambda _file: None
    sys.meta_path.insert(0, _Finder())
    for name in [name for name in _CHANGES if name in sys.modules]:
        before = dict(vars(sys.modules[name]))
        _CHANGES[name](sys.modules[name])
        # Others have them by name.
        for module in [module for key, module in sys.modules.items() if key.startswith("midam.")]:
            for key, value in vars(sys.modules[name]).items():
                if callable(value) and value is not before[key] and vars(module).get(key) is before[key]:
                    setattr(module, key, value)


def is_drawn() -> bool:
    """Whether figures are rendered now."""
    return _state["drawn"]


def draw(drawn: bool) -> None:
    """Say whether figures are rendered from now on."""
    _state["drawn"] = drawn


def state() -> dict[str, bool]:
    """What a process that this one starts must be told, by `restore`."""
    return dict(_state)


def restore(state: dict[str, bool]) -> None:
    """Do as another process does."""
    _state.update(state)


@contextmanager
def usual_folds() -> Iterator[None]:
    """Runs have as many folds as those of users meanwhile."""
    from midam.runs import folds

    folds._FOLDS = 5
    try:
        yield
    finally:
        folds._FOLDS = FOLDS


@contextmanager
def drawing() -> Iterator[None]:
    """Figures are rendered meanwhile, as for a fixture that a test of pictures shares with others."""
    before = is_drawn()
    draw(True)
    try:
        yield
    finally:
        draw(before)
