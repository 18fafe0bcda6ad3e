"""Measure by simulation how often the intervals of the C-index and of the macro AUROC contain the true value.

    python benchmarks/target_coverage.py --sims 1000 --write

Labels and scores of the first table have a bivariate normal distribution with a known correlation; labels are cut into
grades or converted to times. In the second table, the scores of some bags are only noise. The third table has classes,
with normal scores around them. The true value is the mean over 200 000 bags of other samples.
"""

import argparse
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from midam.errors import OneClassError
from midam.evaluate.classes import class_aurocs, class_moves, macro_auroc_interval
from midam.evaluate.concordance import concordance_interval, concordance_moves, moves_variance, units_of_sides
from midam.evaluate.ranking import Pairs

PAGE = Path(__file__).parents[1] / "records" / "outcome-coverage.md"
Z = norm.ppf(0.975)
RESAMPLES = 300
KINDS = ("numbers", "grades", "times", "few events")
SIZES = ((20, 1), (150, 1), (12, 4), (60, 3))
MIXES = {"0.7, 0.2, 0.1": [0.7, 0.2, 0.1], "five": [0.4, 0.3, 0.15, 0.1, 0.05]}


def pairs_of(kind: str, latent: np.ndarray, generator: np.random.Generator) -> Pairs:
    if kind == "numbers":
        return Pairs.of_numbers(latent)
    if kind == "grades":
        return Pairs.of_numbers(np.digitize(latent, [-1, 0, 1]))
    time, censored = np.exp(-latent), generator.exponential(1.0 if kind == "times" else 0.25, latent.size)
    return Pairs.of_times(np.minimum(time, censored), time <= censored)


def normals(units: np.ndarray, correlation: float, generator: np.random.Generator) -> np.ndarray:
    shared = generator.standard_normal(units.max() + 1)[units]
    return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * generator.standard_normal(units.size)


def made(
    kind: str, units: np.ndarray, signal: float, noise: float, generator: np.random.Generator
) -> tuple[Pairs, np.ndarray]:
    """Return pairs and scores; both correlate within a group; the scores of a share `noise` of the bags are noise."""
    correlation = 0.6 if units.max() + 1 < units.size else 0.0
    latent = normals(units, correlation, generator)
    scores = signal * latent + np.sqrt(1 - signal**2) * normals(units, correlation, generator)
    lost = generator.random(units.size) < noise
    return pairs_of(kind, latent, generator), np.where(lost, generator.standard_normal(units.size), scores)


def true_concordance(kind: str, units: np.ndarray, signal: float, noise: float) -> float:
    generator, won, of = np.random.default_rng(12345), 0.0, 0.0
    if units.max() + 1 == units.size:
        units = np.arange(2000)
    for _ in range(200_000 // units.size):
        pairs, scores = made(kind, units, signal, noise, generator)
        if pairs.total:
            won, of = won + pairs.concordance(scores) * pairs.total, of + pairs.total
    return won / of


def on_logit_scale(center: float, variance: float) -> tuple[float, float]:
    if not variance > 0 or center in (0, 1):
        return center, center
    half = Z * np.sqrt(variance) / (center * (1 - center))
    return expit(logit(center) - half), expit(logit(center) + half)


def plain_jackknife(pairs: Pairs, scores: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    center = pairs.concordance(scores)
    return on_logit_scale(
        center, moves_variance(concordance_moves(pairs, scores, center), units, units_of_sides(pairs, units)[0])
    )


def bootstrap(pairs: Pairs, scores: np.ndarray, units: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the percentile interval over whole groups; resamples without a comparable pair are left out."""
    order = pairs._order
    table = (np.arange(order.size) >= pairs._stop[:, None]) * pairs._event[:, None]
    ahead = np.sign(scores[order][:, None] - scores[order]) / 2 + 0.5
    member = np.eye(units.max() + 1)[units[order]]
    of, won = member.T @ table @ member, member.T @ (table * ahead) @ member
    counts = generator.multinomial(len(of), np.full(len(of), 1 / len(of)), size=RESAMPLES).astype(float)
    totals = ((counts @ of) * counts).sum(axis=1)
    return np.quantile(((counts @ won) * counts).sum(axis=1)[totals > 0] / totals[totals > 0], [0.025, 0.975])


def concordance_row(kind: str, size: tuple[int, int], signal: float, noise: float, sims: int) -> str:
    units = np.repeat(np.arange(size[0]), size[1])
    truth = true_concordance(kind, units, signal, noise)
    generator, held, widths, count = np.random.default_rng(0), np.zeros(3), np.zeros(3), 0
    groups = units if size[1] > 1 else None
    for _ in range(sims):
        pairs, scores = made(kind, units, signal, noise, generator)
        try:
            ours = concordance_interval(pairs, scores, groups=groups)[:2]
        except OneClassError:
            continue
        found = (plain_jackknife(pairs, scores, units), bootstrap(pairs, scores, units, generator), ours)
        held += [low <= truth <= high for low, high in found]
        widths += [high - low for low, high in found]
        count += 1
    cells = " | ".join(f"{share:.3f}" for share in held / count)
    return f"{truth:.3f} | {cells} | {widths[2] / count:.2f} | {widths[0] / count:.2f} |"


def concordance_rows(sims: int) -> Iterator[str]:
    yield "| labels | bags | correlation | C-index | jackknife alone | bootstrap | midam | mean width | jackknife |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for kind, size, signal in product(KINDS, SIZES, (0.3, 0.8, 0.97)):
        bags = f"{size[0]}" if size[1] == 1 else f"{size[0]} x {size[1]}"
        yield f"| {kind} | {bags} | {signal} | {concordance_row(kind, size, signal, 0.0, sims)}"


def noise_rows(sims: int) -> Iterator[str]:
    yield "| labels | bags | bags of noise | C-index | jackknife alone | bootstrap | midam | mean width | jackknife |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for kind, bags, noise in product(("numbers", "grades", "times"), (50, 150, 300), (0.01, 0.05)):
        yield f"| {kind} | {bags} | {noise} | {concordance_row(kind, (bags, 1), 0.9998, noise, sims)}"


def class_sample(
    mix: list[float], size: tuple[int, int], signal: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, scores [N, C] and groups [N]; all bags of a group have one class."""
    units, count = np.repeat(np.arange(size[0]), size[1]), len(mix)
    labels = np.eye(count)[generator.choice(count, p=mix, size=size[0])[units]]
    correlation = 0.6 if size[1] > 1 else 0.0
    scores = np.stack([normals(units, correlation, generator) for _ in mix], axis=1) + signal * labels
    return labels, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)), units


def class_bootstrap(
    labels: np.ndarray, scores: np.ndarray, units: np.ndarray, generator: np.random.Generator
) -> object:
    """Return the percentile interval of the mean over the classes in a resample."""
    groups = int(units.max()) + 1
    counts = generator.multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES)[:, units].astype(float)
    areas = []
    for of, own in zip(labels.T == 1, scores.T):
        won = np.sign(own[of][:, None] - own[~of]) / 2 + 0.5
        pos, neg = counts[:, of], counts[:, ~of]
        pairs = pos.sum(axis=1) * neg.sum(axis=1)
        area = np.full(RESAMPLES, np.nan)
        np.divide(((pos @ won) * neg).sum(axis=1), pairs, out=area, where=pairs > 0)
        areas.append(area)
    return np.nanquantile(np.nanmean(areas, axis=0), [0.025, 0.975])


def class_rows(sims: int) -> Iterator[str]:
    yield "| classes | bags | signal | macro AUROC | DeLong alone | bootstrap | midam | mean width | DeLong |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for (name, mix), size, signal in product(MIXES.items(), ((60, 1), (300, 1), (40, 3)), (0.5, 2, 4)):
        generator = np.random.default_rng(0)
        labels, scores, _ = class_sample(mix, (200_000, 1), signal, generator)
        truth = float(class_aurocs(labels, scores).mean())
        held, widths, count = np.zeros(3), np.zeros(3), 0
        for _ in range(sims):
            labels, scores, units = class_sample(mix, size, signal, generator)
            if not labels.any(axis=0).all():
                continue
            moves = np.mean([class_moves(of, own, units)[0] for of, own in zip(labels.T, scores.T)], axis=0)
            plain = on_logit_scale(float(class_aurocs(labels, scores).mean()), float(moves @ moves))
            ours = macro_auroc_interval(labels, scores, groups=units if size[1] > 1 else None)[:2]
            found = (plain, class_bootstrap(labels, scores, units, generator), ours)
            held += [low <= truth <= high for low, high in found]
            widths += [high - low for low, high in found]
            count += 1
        cells = " | ".join(f"{share:.3f}" for share in held / count)
        bags = f"{size[0]}" if size[1] == 1 else f"{size[0]} x {size[1]}"
        yield (
            f"| {name} | {bags} | {signal} | {truth:.4f} | {cells} | {widths[2] / count:.3f} "
            f"| {widths[0] / count:.3f} |"
        )


def page(sims: int) -> Iterator[str]:
    yield "# Coverage of intervals, other targets\n"
    yield f"Command: `python benchmarks/target_coverage.py --sims {sims} --write`, {datetime.now(UTC):%Y-%m-%d}."
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    yield f"Python {platform.python_version()}, {versions}. Nominal coverage 0.95, {sims} simulations a row:"
    yield f"the standard error of a coverage of 0.95 is {np.sqrt(0.95 * 0.05 / sims):.4f}.\n"
    yield "The rules are described in `concordance_interval` and `macro_auroc_interval` of `midam.evaluate`."
    where = "of bags, or of groups ('12 x 4' are 12 groups of 4 bags)"
    yield f"'Bootstrap': the percentiles of {RESAMPLES} resamples {where}."
    yield "The last two columns are the mean width of midam's interval, and of the first of the three.\n"
    yield "## C-index\n"
    yield from concordance_rows(sims)
    yield "\n## C-index, some bags with a score of noise\n"
    yield "All other bags are ranked nearly as their labels are.\n"
    yield from noise_rows(sims)
    yield "\n## Macro AUROC of classes against the rest\n"
    yield "Samples without a bag of some class are left out.\n"
    yield from class_rows(sims)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sims", type=int, default=1000, help="simulations a row (default 1000)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} as well")
    chosen = parser.parse_args()
    lines = []
    for line in page(chosen.sims):
        print(line, flush=True)
        lines.append(line)
    if chosen.write:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
