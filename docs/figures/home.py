"""Draw the picture of the home page: train on `digits` as `make demo` does; weighed instances, ranked bags.

Run `python docs/figures/home.py` from the repository's root. It writes `home.png` beside this file.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from PIL import Image

import midam
from midam.cli import main as command
from midam.data.bags import Bags
from midam.report.figures import BLUE, ORANGE, new_figure, save_figure

# The bags that stand at these shares of their class, by score: a rule, not a choice.
_SHOWN = {1: (0.67, 0.33), 0: (0.67, 0.33)}
_NAMES = {1: "holds a nine", 0: "holds none"}


def main() -> None:
    """Train, then write the figure."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "demo"
        if command(["fit", "digits", "--num-instances", "4", "--seed", "0", "--out", str(run)]):
            raise SystemExit(1)
        model = midam.load_run(run).model
        result = json.loads((run / "summary.json").read_text(encoding="utf-8"))["test"]
        bags = midam.read_bags("digits")
        test = bags.subset(bags.where_split("test"))
        scores = midam.predict(model, test)
        figure = new_figure((6.8, 5.2))
        top, bottom = figure.subplots(2, 1, gridspec_kw={"height_ratios": [1.9, 1]})
        _draw_bags(top, test, scores, model)
        _draw_ranking(bottom, test.require_labels(), scores, result)
        save_figure(figure, Path(folder) / "figure.png")
        with Image.open(Path(folder) / "figure.png") as drawn:
            drawn.convert("RGB").quantize(96, dither=Image.Dither.NONE).save(
                Path(__file__).with_suffix(".png"), optimize=True
            )


def _draw_bags(axes: Axes, bags: Bags, scores: np.ndarray, model: midam.BagScorer) -> None:
    labels, shown = bags.require_labels(), []
    for label, shares in _SHOWN.items():
        ranked = np.flatnonzero(labels == label)[np.argsort(scores[labels == label])]
        shown += [int(ranked[round(share * (len(ranked) - 1))]) for share in shares]
    shown.sort(key=lambda bag: -scores[bag])
    widest = int(bags.sizes[shown].max())
    for row, bag in enumerate(shown):
        color = ORANGE if labels[bag] else BLUE
        weights = midam.instance_scores(model, bags, bag).weight
        weights = weights / weights.max()
        for place, pixels in enumerate(np.asarray(bags.instances[bags.starts[bag] :][: bags.sizes[bag]])):
            left, top = place * 1.1, row * 2.25
            axes.imshow(1 - pixels.reshape(8, 8), cmap="gray", extent=(left, left + 1, top + 1, top), vmin=0, vmax=1)
            axes.bar(left + 0.5, 0.55 * weights[place], 0.9, bottom=top + 1.1, color=color)
        words = {"ha": "right", "va": "center", "color": color}
        axes.text(-0.3, row * 2.25 + 0.4, f"score {scores[bag]:.2f}", weight="bold", fontsize=12, **words)
        axes.text(-0.3, row * 2.25 + 1.2, _NAMES[int(labels[bag])], fontsize=11, **words)
    axes.set(xlim=(-3.9, widest * 1.1), ylim=(len(shown) * 2.25 - 0.3, -0.3), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    _title(axes, "Four test bags; bars: how much each digit weighs")


def _draw_ranking(axes: Axes, labels: np.ndarray, scores: np.ndarray, result: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    for label, color in ((1, ORANGE), (0, BLUE)):
        own = scores[labels == label]
        axes.scatter(own, label + rng.uniform(-0.28, 0.28, len(own)), s=24, color=color, alpha=0.75, linewidths=0)
    low, high = result["auroc_ci95"]
    axes.set(ylim=(-0.5, 1.5), yticks=[0, 1])
    axes.set_yticklabels(
        [f"{_NAMES[label].split(' ', 1)[1]}:\n{(labels == label).sum()} bags" for label in (0, 1)], fontsize=11
    )
    axes.set_xlabel("Score of the bag", fontsize=11)
    _title(axes, f"All test bags: AUROC {result['auroc']:.3f}, 95% interval {low:.3f} to {high:.3f}")


def _title(axes: Axes, text: str) -> None:
    """A title at the left edge of the figure."""
    axes.set_title(text, loc="left", fontsize=12, weight="bold")


if __name__ == "__main__":
    main()
