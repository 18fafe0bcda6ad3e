"""Draw `minibatch_bias.svg`: what a few instances a visit say about a bag, alone and remembered.

Run `python docs/figures/minibatch_bias.py` from the repository's root. The scores are made up (200 instances,
4 witnesses); the arithmetic is that of smoothed-max pooling.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

TAU, DRAWN, VISITS = 0.1, 8, 200
STATE_RATES = {0.9: "tab:orange", 0.1: "tab:blue"}  # the library's default, and a long memory
SIZE, WITNESSES = 200, 4


def main() -> None:
    """Simulate the visits of one positive bag and write the figure beside this file."""
    rng = np.random.default_rng(0)
    phi = rng.uniform(0.05, 0.15, SIZE)
    phi[:WITNESSES] = 0.9
    weight = np.exp(phi / TAU)

    seen = np.array([rng.choice(weight, DRAWN, replace=False).mean() for _ in range(VISITS)])

    mpl.rcParams.update({"svg.hashsalt": "midam", "font.size": 10})
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    visit = np.arange(1, VISITS + 1)
    axes.plot(visit, TAU * np.log(seen), ".", color="0.6", label=f"from the {DRAWN} instances of this visit alone")
    for rate, color in STATE_RATES.items():
        label = f"remembered over visits, state rate {rate}"
        axes.plot(visit, TAU * np.log(_remembered(seen, rate)), color=color, linewidth=1.2, label=label)
    axes.axhline(TAU * np.log(weight.mean()), color="black", linestyle="--", label=f"from all {SIZE} instances")
    axes.set(xlabel="visit of the bag", ylabel="smoothed-max score of the bag", xlim=(0, VISITS + 1), ylim=(0, 1.3))
    axes.legend(loc="upper center", ncols=1, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def _remembered(seen: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    state = [seen[0]]
    for value in seen[1:]:
        state.append((1 - rate) * state[-1] + rate * value)
    return np.array(state)


if __name__ == "__main__":
    main()
