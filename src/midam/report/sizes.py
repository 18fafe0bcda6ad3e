"""The picture of the sizes of bags by class."""

from pathlib import Path

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from midam.report.describe import is_wide, size_edges
from midam.report.figures import BLUE, GRAY, ORANGE, add_legend, new_figure, save_figure

_BINS = 30


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
        parts = [(f"{len(sizes)} bags", sizes, GRAY, None)]
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
    if is_wide(sizes):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="Instances in a bag", ylabel="Bags")
    axes.set_title(title, loc="left", fontweight="bold")
    add_legend(figure, columns=2)
    save_figure(figure, Path(path))
