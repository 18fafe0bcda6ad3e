"""Distance of the tracked pooling from the exact pooling of a bag, along the training, over all training bags.

    MIDAM_DATA=... python benchmarks/tracking.py --write

After each epoch, the tracked (l, r) of every training bag, sampled in that epoch or not, is compared with the exact (l,
r) of the bag, streamed over all its instances with the current weights. In the paper's space, the state is s = exp(l)
for smoothed-max and s = (exp(l) r, exp(l)) for attention. The reference "1 (mini-batch)" keeps no history: its state is
the last sample of a bag. All rates except this one are halved when the learning rate is divided by ten.
"""

import argparse
import datetime
import os
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

import midam
from midam.data.batch import InstanceReader, WholeBatch
from midam.data.sets import catalog
from midam.evaluate.stream import stream_bags
from midam.report.figures import write_figure
from midam.settings import Settings
from midam.train.trainer import Trainer

PAGE = Path(__file__).parents[1] / "records" / "tracking-rates.md"
POOLINGS = ("attention", "smoothed-max")
SEEDS = range(5)
LAST = 10
MEASURES = ("s", "l", "r")
NAMES = {
    "s": "error in s, relative to mean squared s",
    "l": "mean squared error in l = log s",
    "r": "mean squared error in r",
}


class Rule(NamedTuple):
    """A rule for gamma0, with its style in the figure (colors of Okabe and Ito)."""

    name: str
    settings: dict[str, Any]
    color: str
    dashes: Any


MINI_BATCH = "1 (mini-batch)"
RULES = (
    Rule(MINI_BATCH, {"state_rate": 1.0}, "#6E6E6E", (0, (1, 1))),
    Rule("0.9", {"state_rate": 0.9}, "#D55E00", (0, (4, 1))),
    Rule("0.5", {"state_rate": 0.5}, "#E69F00", (0, (6, 1, 1, 1))),
    Rule("0.1", {"state_rate": 0.1}, "#56B4E9", (0, (2, 1))),
)


class ForgetfulTrainer(Trainer):
    """Trainer whose tracked state is always only the last sample: gamma0 stays 1 when the other rates are halved."""

    def _set_rates(self) -> dict[str, float]:
        rates = super()._set_rates()
        for member in self.members:
            member.estimator.state_rate = 1.0
        return rates


def run(name: str, pooling: str, rule: Rule, seed: int, epochs: int) -> NDArray[np.float64]:
    """Return errors and coverage of a run: [epochs, 4], columns s, l, r and the share of bags visited so far."""
    torch.set_num_threads(1)
    bags = catalog.load(name)
    config = Settings.from_flat(
        {"pooling": pooling, "members": 1, "epochs": epochs, "seed": seed, "accelerator": "cpu", **rule.settings}
    )
    trainer = (ForgetfulTrainer if rule.name == MINI_BATCH else Trainer)(config, bags)
    whole = WholeBatch(InstanceReader(bags), torch.arange(len(bags)), torch.from_numpy(bags.require_labels()))
    rows = []
    while not trainer.finished:
        trainer.train_epoch()
        (member,) = trainer.members
        exact = stream_bags(member.model.eval(), whole, chunk_size=trainer.config.run.chunk_size)
        state = member.estimator.get_buffer("bag_state").double().numpy()
        visited = state[:, 0] > 0
        want = np.column_stack([exact.l.numpy(), exact.r.numpy()]).astype(np.float64)[visited]
        rows.append([*errors(state[visited, 1:], want), visited.mean()])
    return np.array(rows)


def errors(got: NDArray[np.float64], want: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the error in s over mean squared s, and mean squared errors in l and r (NaN without r); columns l, r."""
    raw_got, raw_want = (np.exp(x[:, :1]) * np.column_stack([x[:, 1:], np.ones(len(x))]) for x in (got, want))
    in_s = ((raw_got - raw_want) ** 2).sum() / (raw_want**2).sum()
    squares = (got - want) ** 2
    in_r = float(squares[:, 1:].sum(axis=1).mean()) if got.shape[1] > 1 else np.nan
    return float(in_s), float(squares[:, 0].mean()), in_r


def interval(values: NDArray[np.float64]) -> str:
    """Return the mean over seeds, and the half-width of its 95% t interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3g} ± {half:.2g}"


def table(results: dict[tuple[str, str], NDArray[np.float64]]) -> list[str]:
    """Return the Markdown table: means over the last epochs and over all epochs, with intervals over seeds."""
    spans = ((f"last {LAST}", slice(-LAST, None)), ("all", slice(None)))
    head = [f"{m}, {span}" for m in MEASURES for span, _ in spans]
    lines = [f"| pooling | gamma0 | {' | '.join(head)} | bags visited, first and last epoch |", "|---" * 9 + "|"]
    for (pooling, rule), runs in results.items():
        cells = [
            "-" if np.isnan(runs[..., i]).all() else interval(runs[:, span, i].mean(axis=1))
            for i in range(3)
            for _, span in spans
        ]
        coverage = f"{runs[:, 0, 3].mean():.0%}, {runs[:, -1, 3].mean():.0%}"
        lines.append(f"| {pooling} | {rule} | {' | '.join(cells)} | {coverage} |")
    return lines


def seen(results: dict[tuple[str, str], NDArray[np.float64]]) -> str:
    """Return what the numbers show, in words that depend on the numbers."""
    sentences = []
    for pooling in POOLINGS:
        parts = []
        for i, measure in ((0, "s"), (1, "l")):
            late = {rule.name: results[pooling, rule.name][:, -LAST:, i].mean() for rule in RULES}
            best = min(late, key=lambda rule: late[rule])
            order = ", ".join(f"{rule}: {late[MINI_BATCH] / late[rule]:.2g}" for rule in late if rule != MINI_BATCH)
            parts.append(f"in {measure} is lowest for {best} (mini-batch error over tracked error: {order})")
        sentences.append(f"{pooling.capitalize()}: over the last {LAST} epochs the error {' and '.join(parts)}.")
    return " ".join(sentences)


def draw(results: dict[tuple[str, str], NDArray[np.float64]], path: Path) -> None:
    """Draw error against epoch: a row for each pooling, s on the left, l on the right; bands over the seeds."""
    figure = Figure(figsize=(9.2, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(POOLINGS), 2, sharex=True, squeeze=False)
    for row, pooling in zip(grid, POOLINGS, strict=True):
        for i, axes in enumerate(row):
            for rule in RULES:
                runs = results[pooling, rule.name][..., i]
                epochs = np.arange(1, runs.shape[1] + 1)
                axes.plot(epochs, runs.mean(0), color=rule.color, linestyle=rule.dashes, lw=1.8, label=rule.name)
                axes.fill_between(epochs, runs.min(0), runs.max(0), color=rule.color, alpha=0.12, lw=0)
            axes.set_yscale("log")
            axes.set_title(f"{pooling}: {NAMES[MEASURES[i]]}", loc="left", fontsize=9.5)
            axes.grid(which="major", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            for fraction in Settings().training.decay_at:
                axes.axvline(fraction * runs.shape[1], color="#6E6E6E", lw=0.8, ls=":")
    for axes in grid[-1]:
        axes.set_xlabel("Epoch (dotted: rates are lowered)")
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, title="gamma0", loc="outside lower center", ncols=len(RULES), frameon=False)
    write_figure(figure, path)


def page(lines: list[str], words: str, *, name: str, epochs: int, command: str) -> str:
    """Return the results page."""
    about, defaults = (__doc__ or "").split("\n\n", 2)[2].strip(), Settings().resolve((1,))
    return "\n".join(
        [
            "# Error of the tracked pooling at fixed settings",
            "",
            words,
            "",
            "![Error of the tracked pooling along training](tracking-rates.png)",
            "",
            about,
            "",
            f"- Command: `{command}`",
            f"- {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, midam {midam.__version__}, torch {torch.__version__}, "
            f"numpy {np.__version__}, {platform.machine()} CPU, one thread a process",
            "- Trials: not published. To check a figure, run the command again.",
            f"- {name}, all its bags; {epochs} epochs; seeds {SEEDS.start} to {SEEDS.stop - 1}; everything else "
            f"as the defaults: {defaults.training.optimizer}, lr {defaults.training.lr:g}, "
            f"{defaults.training.num_instances} instances a bag.",
            "- s: squared error in s over all visited bags, relative to their squared s; l, r: mean squared errors. "
            "Bags not yet visited have no state; the last column counts the others.",
            "- Means over epochs; ± is the half-width of the 95% t interval over seeds. Bands of the figure: "
            "smallest to largest seed.",
            "",
            *lines,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--set", default="musk2", help="name in the catalog")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write records/tracking-rates.md and its figure")
    parser.add_argument("--figure", type=Path, help="write the figure here as well")
    options = parser.parse_args()
    cells = [(pooling, rule) for pooling in POOLINGS for rule in RULES]
    runs = Parallel(n_jobs=options.jobs)(
        delayed(run)(options.set, *cell, seed, options.epochs) for cell in cells for seed in SEEDS
    )
    stacked = np.array(runs).reshape(len(cells), len(SEEDS), options.epochs, 4)
    results = {(pooling, rule.name): stacked[i] for i, (pooling, rule) in enumerate(cells)}
    lines, words = table(results), seen(results)
    print("\n".join([*lines, "", words]))
    if options.figure:
        draw(results, options.figure)
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        data = "MIDAM_DATA=... " if "MIDAM_DATA" in os.environ else ""
        command = " ".join([f"{data}python benchmarks/tracking.py", *sys.argv[1:]])
        PAGE.write_text(page(lines, words, name=options.set, epochs=options.epochs, command=command), encoding="utf-8")
        draw(results, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
