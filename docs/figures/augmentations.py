"""Draw `augmentations.png`: a handwritten digit as each augmentation changes it.

Run `python docs/figures/augmentations.py` from the repository's root. The digit is the first 4 of scikit-learn's set.
"""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from sklearn.datasets import load_digits

from midam.report.figures import new_figure, save_figure
from midam.train.augment import Augment

DRAWS = 3
COLUMNS = ("flip", "rotate90", "crop", "intensity")


def main() -> None:
    """Augment the digit with fixed seeds and write the figure beside this file."""
    digits = load_digits()
    digit = torch.from_numpy(digits.images[digits.target == 4][0]).float().view(1, 1, 8, 8)
    figure = new_figure((8.2, 4.7))
    grid = figure.subplots(DRAWS, len(COLUMNS) + 2)
    # One scale of grey for all, so that a change of intensity shows.
    limits = {"vmin": -6.0, "vmax": 22.0}
    for row in range(DRAWS):
        changes = [(), *[(name,) for name in COLUMNS], COLUMNS]
        for axes, names in zip(grid[row], changes):
            torch.manual_seed(row + 1)
            _show(axes, Augment(names, instance_shape=(1, 8, 8))(digit)[0, 0], limits)
        grid[row][0].set_ylabel(f"draw {row + 1}", fontsize=10)
    for axes, title in zip(grid[0], ["as it is", *COLUMNS, "all four"]):
        axes.set_title(title, fontsize=10)
    save_figure(figure, Path(__file__).with_suffix(".png"))


def _show(axes: Axes, image: torch.Tensor, limits: dict[str, float]) -> None:
    axes.imshow(image.numpy(), cmap="gray", **limits)
    axes.set(xticks=[], yticks=[])


if __name__ == "__main__":
    main()
