"""Measure by simulation how often the intervals of the AUROC and of paired differences contain the true value.

    python benchmarks/coverage.py --sims 2000 --write
    python benchmarks/coverage.py --part calibration --sims 40 --write

Scores are binormal with a known AUROC. The first table has independent bags, the second has correlated bags in groups,
the third has two scorers on the same bags in groups. The last table compares Platt's line on the score and on its
logit.
"""

import argparse
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from midam.evaluate.calibrate import PlattCalibrator, calibration_line
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.ranking import placements, resampled_areas

AREAS = (0.5, 0.7, 0.85, 0.95, 0.98)
SIZES = ((10, 10), (20, 20), (50, 50), (10, 90), (30, 300), (100, 300), (200, 200))
PAIRS = ((0.8, 0.8), (0.95, 0.85))
GROUPS = ((10, 4), (20, 3), (40, 3), (100, 2), (400, 2))
PAGE = Path(__file__).parents[1] / "records" / "coverage.md"
RESAMPLES = 1000
CALIBRATION, TESTED = "## Calibration: ", 5000
# Mean and spread of the logit of the true probability; the logit of the score is `power` times it.
TRUTHS = {
    "the probability": (0, 3, 1.0),
    "the probability, 9% positive": (-6, 3, 1.0),
    "the probability, 3% positive": (-12, 6, 1.0),
    "too extreme": (0, 2, 3.0),
    "too timid": (0, 2, 0.25),
    "too timid, 17% positive": (-3, 2.5, 0.25),
}


def plain_logit_delong(labels: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    of_pos, of_neg = placements(labels, scores)
    area = of_pos.mean()
    error = np.sqrt(of_pos.var(ddof=1) / of_pos.size + of_neg.var(ddof=1) / of_neg.size)
    if error == 0 or area in (0, 1):
        return area, area
    half = norm.ppf(0.975) * error / (area * (1 - area))
    return expit(logit(area) - half), expit(logit(area) + half)


def independent_rows(sims: int) -> Iterator[str]:
    yield "| sd of positives | bags (+, -) | AUROC | logit DeLong alone | midam | mean width |"
    yield "|---|---|---|---|---|---|"
    generator = np.random.default_rng(0)
    for spread, (positives, negatives), area in product((1, 2), SIZES, AREAS):
        labels = np.repeat([1, 0], [positives, negatives])
        shift = norm.ppf(area) * np.sqrt(1 + spread**2)
        alone, ours, width = 0, 0, 0.0
        for _ in range(sims):
            noise = generator.standard_normal(labels.size)
            scores = np.where(labels == 1, shift + spread * noise, noise)
            low, high = plain_logit_delong(labels, scores)
            alone += low <= area <= high
            interval = auroc_interval(labels, scores)
            ours += interval.low <= area <= interval.high
            width += interval.high - interval.low
        yield (
            f"| {spread} | {positives} + {negatives} | {area} | {alone / sims:.3f} | {ours / sims:.3f} "
            f"| {width / sims:.2f} |"
        )


def resampled_aurocs(
    labels: NDArray[np.int64], scores: NDArray[np.float64], units: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the AUROC of draws of whole groups."""
    return resampled_areas(labels == 1, scores, units, resamples=RESAMPLES)["auroc"][1]


def grouped_rows(sims: int) -> Iterator[str]:
    yield "| groups x bags | labels | correlation | AUROC | percentile bootstrap alone | midam | mean width |"
    yield "|---|---|---|---|---|---|---|"
    generator = np.random.default_rng(0)
    for (groups, bags), mixed, correlation, area in product(GROUPS, (False, True), (0.3, 0.8), (0.7, 0.95)):
        units = np.repeat(np.arange(groups), bags)
        labels = (np.arange(units.size) if mixed else units) % 2
        shift = norm.ppf(area) * np.sqrt(2)
        alone, ours, width = 0, 0, 0.0
        for _ in range(sims):
            shared = generator.standard_normal(groups)[units]
            own = generator.standard_normal(units.size)
            scores = shift * labels + np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
            draws = resampled_aurocs(labels, scores, units)
            low, high = np.quantile(draws, [0.025, 0.975])
            alone += low <= area <= high
            interval = auroc_interval(labels, scores, groups=units.astype(str))
            ours += interval.low <= area <= interval.high
            width += interval.high - interval.low
        yield (
            f"| {groups} x {bags} | {'mixed in a group' if mixed else 'one a group'} | {correlation} | {area} "
            f"| {alone / sims:.3f} | {ours / sims:.3f} | {width / sims:.2f} |"
        )


def paired_rows(sims: int) -> Iterator[str]:
    heads = ("groups x bags", "labels", "correlation", "AUROCs", "DeLong without groups", "percentile bootstrap")
    yield f"| {' | '.join(heads)} | midam | mean width |"
    yield "|---|---|---|---|---|---|---|---|"
    generator = np.random.default_rng(0)
    for (groups, bags), mixed, correlation, areas in product(GROUPS, (False, True), (0.3, 0.8), PAIRS):
        units = np.repeat(np.arange(groups), bags)
        labels = (np.arange(units.size) if mixed else units) % 2
        # Bags of one group share noise, so their pairs are easier; this is their share of all pairs.
        within = (units[labels == 1][:, None] == units[labels == 0]).mean()
        shifts = [norm.ppf(area) * np.sqrt(2) for area in areas]
        true = [(1 - within) * area + within * norm.cdf(norm.ppf(area) / np.sqrt(1 - correlation)) for area in areas]
        held, width = np.zeros(3), 0.0
        for _ in range(sims):
            # Noise that both scorers share, and noise of each scorer.
            shared = generator.standard_normal((3, groups))[:, units]
            noise = np.sqrt(correlation) * shared
            noise += np.sqrt(1 - correlation) * generator.standard_normal((3, units.size))
            scores = [shift * labels + np.sqrt(0.5) * (noise[0] + own) for shift, own in zip(shifts, noise[1:])]
            a, b = (resampled_aurocs(labels, s, units) for s in scores)
            found = [paired_delong(labels, *scores)[1:3], np.quantile(a - b, [0.025, 0.975])]
            found.append(paired_delong(labels, *scores, groups=units)[1:3])
            held += [low <= true[0] - true[1] <= high for low, high in found]
            width += found[2][1] - found[2][0]
        cells = " | ".join(f"{share:.3f}" for share in held / sims)
        yield (
            f"| {groups} x {bags} | {'mixed in a group' if mixed else 'one a group'} | {correlation} "
            f"| {areas[0]}, {areas[1]} | {cells} | {width / sims:.2f} |"
        )


def calibration_rows(sims: int) -> Iterator[str]:
    yield "| the score is | validation bags | line on | log loss | above the truth | Brier | slope, median |"
    yield "|---|---|---|---|---|---|---|"
    generator = np.random.default_rng(0)
    for (name, (center, spread, power)), bags in product(TRUTHS.items(), (100, 1000)):
        found: dict[str, list[NDArray[np.float64]]] = {"score": [], "logit": []}
        for _ in range(sims):
            held, new = (center + spread * generator.standard_normal(size) for size in (bags, TESTED))
            labels, truth = ((generator.random(len(x)) < expit(x)).astype(int) for x in (held, new))
            if labels.min() == labels.max():
                continue
            scores, tested = (expit(power * x).astype(np.float32).astype(np.float64) for x in (held, new))
            least = log_loss(truth, new)
            for on, figures in found.items():
                calibrator = PlattCalibrator.fit(scores, labels, raw=on == "score")
                logits = calibrator.logits(tested)
                line = calibration_line(truth, expit(logits)) or (np.nan, np.nan)
                loss, brier = log_loss(truth, logits), np.mean((expit(logits) - truth) ** 2)
                figures.append(np.array([loss, loss - least, brier, line[0]]))
        for on, figures in found.items():
            loss, excess, brier, _ = np.mean(figures, axis=0)
            slope = np.nanmedian([own[3] for own in figures])
            yield f"| {name} | {bags} | {on} | {loss:.4f} | {excess:.4f} | {brier:.4f} | {slope:.2f} |"


def log_loss(labels: NDArray[np.int64], logits: NDArray[np.float64]) -> float:
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


def calibration(sims: int) -> Iterator[str]:
    yield f"\n{CALIBRATION}Platt's line on the score or on its logit, {sims} simulations a row\n"
    yield (
        f"Command: `python benchmarks/coverage.py --part calibration --sims {sims} --write`, "
        f"{datetime.now(UTC):%Y-%m-%d}. The line is fitted on the validation bags and tested on {TESTED} others. "
        "'Above the truth': log loss beyond that of the true probabilities. 'Too extreme' and 'too timid': the logit "
        "of the score is 3 times and a fourth of that of the probability. midam takes the logit. Scores are simulated; "
        "the rows are the smallest that answer the question.\n"
    )
    yield from calibration_rows(sims)


def page(sims: int) -> Iterator[str]:
    grouped = max(sims // 4, 1)
    yield "# Coverage of the AUROC's intervals\n"
    yield f"Command: `python benchmarks/coverage.py --sims {sims} --write`, {datetime.now(UTC):%Y-%m-%d}."
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    yield f"Python {platform.python_version()}, {versions}. Nominal coverage 0.95.\n"
    yield "The rules are described in `midam.auroc_interval` and `midam.paired_delong`.\n"
    yield f"## Independent bags, {sims} simulations a row\n"
    yield f"Standard error of a coverage of 0.95: {np.sqrt(0.95 * 0.05 / sims):.4f}.\n"
    yield from independent_rows(sims)
    yield f"\n## Groups of bags, {grouped} simulations a row, {RESAMPLES} resamples\n"
    yield f"Standard error of a coverage of 0.95: {np.sqrt(0.95 * 0.05 / grouped):.4f}.\n"
    yield from grouped_rows(grouped)
    yield f"\n## Paired differences in groups, {grouped} simulations a row, {RESAMPLES} resamples\n"
    yield (
        "Two scorers on the same bags, with half of their noise in common. 'Percentile bootstrap': of whole groups, "
        "the same ones for both scorers."
    )
    yield f"Standard error of a coverage of 0.95: {np.sqrt(0.95 * 0.05 / grouped):.4f}.\n"
    yield from paired_rows(grouped)
    yield from calibration(max(sims // 50, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sims", type=int, default=2000, help="simulations a row of independent bags (default 2000)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} as well")
    parser.add_argument("--part", choices=("all", "calibration"), default="all", help="which tables (default: all)")
    chosen = parser.parse_args()
    whole = chosen.part == "all"
    kept = "" if whole else PAGE.read_text(encoding="utf-8").split(f"\n{CALIBRATION}")[0].rstrip()
    lines = [] if whole else [kept]
    for line in page(chosen.sims) if whole else calibration(chosen.sims):
        print(line, flush=True)
        lines.append(line)
    if chosen.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
