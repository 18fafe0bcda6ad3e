"""The sizes of bags by class: the bins, and the picture."""

from pathlib import Path

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from midam.report.figures import BLUE, GREY, ORANGE, add_legend, new_figure, save_figure

_BINS = 30


def size_edges(sizes: NDArray[np.int64], *, bins: int) -> NDArray[np.int64]:
    """Whole numbers e_0 < e_1 < ... so that bin k holds the sizes e_k to e_{k+1} - 1; at most `bins` bins.

    They are equally wide on the logarithmic scale where the largest bag is ten times the smallest or more, else as
    numbers.

    Examples
    --------
    >>> size_edges(np.array([1, 3]), bins=8)
    array([1, 2, 3, 4])
    """
    low, high = int(sizes.min()), int(sizes.max()) + 1
    marks = np.geomspace(low, high, bins + 1) if _wide(sizes) else np.linspace(low, high, bins + 1)
    return np.unique(np.round(marks).astype(np.int64))


def plot_sizes(path: str | Path, *, sizes: ArrayLike, labels: ArrayLike | None, title: str) -> None:
    """Draw the histogram of the bag sizes, the classes beside each other.

    Parameters
    ----------
    path : str or Path
        PNG file to write; replaced in one step.
    sizes : array_like of int, shape [N]
        Instances of each bag.
    labels : array_like of int, shape [N], or None
        0 or 1.
    title : str
        Title of the figure.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_sizes(Path(folder) / "sizes.png", sizes=[1, 20, 300], labels=[0, 1, 1], title="Bags")
    ...     (Path(folder) / "sizes.png").exists()
    True
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    edges = size_edges(sizes, bins=_BINS)
    figure = new_figure((6.4, 3.9))
    axes = figure.add_subplot()
    parts: list[tuple[str, NDArray[np.int64], str, str | None]]
    if labels is None:
        parts = [(f"{len(sizes)} bags", sizes, GREY, None)]
    else:
        positive = np.asarray(labels) == 1
        parts = [
            (f"{(~positive).sum()} negative bags", sizes[~positive], BLUE, None),
            (f"{positive.sum()} positive bags", sizes[positive], ORANGE, "//"),
        ]
    bottom = np.zeros(len(edges) - 1)
    for name, part, color, hatch in parts:
        counts, _ = np.histogram(part, bins=edges)
        axes.bar(
            edges[:-1] - 0.5,
            counts,
            np.diff(edges),
            bottom,
            align="edge",
            color=color,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.6,
            label=name,
        )
        bottom += counts
    if _wide(sizes):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="Instances in a bag", ylabel="Bags")
    axes.set_title(title, loc="left", fontweight="bold")
    add_legend(figure, columns=2)
    save_figure(figure, Path(path))


def _wide(sizes: NDArray[np.int64]) -> bool:
    return int(sizes.max()) >= 10 * int(sizes.min())
