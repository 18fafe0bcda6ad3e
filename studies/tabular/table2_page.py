"""The parts of the page of Table 2 with random splits: 15 trials, more splits, and a verdict for each row."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from midam.compare.summary import corrected_interval
from midam.data.bags import Bags
from midam.methods.store import Row as StoredRow
from midam.report.figures import new_figure
from studies.differences import holm
from studies.drawing import COLORS, add_legend, plot_points, save_figure
from studies.engine import Store
from studies.page import section, table
from studies.paper_tables import METHODS, SETS, label, printed
from studies.split_statistics import Estimate, mean_interval, paired_interval, predictive_interval, split_means
from studies.splits import FOLDS
from studies.tabular.table2_trials import PAPER_SPLITS, Chosen, Plan, choose, choose_together, select_rows

_PAPER_TRIALS = 15
# Column in the table of all splits with the position of the paper's mean.
_VERDICT = 6
# Columns in the table of differences: Holm's p-value, and the position of the corrected interval.
_HOLM, _SIGN = 5, 6
_PROTOCOL_HEAD = ("method", "ours, best epoch", "ours, last epoch", "the paper")
# Ratio of test bags to training bags: a tenth, to four fifths of the rest.
_TEST_TO_TRAIN = 0.1 / (0.9 * (1 - 1 / FOLDS))


@dataclass(frozen=True)
class Row:
    """A method on a set, after the learning rate was chosen in each of three ways."""

    # Set and method
    name: str
    method: str
    # At the best validation epoch (the paper's), at the last epoch, and with one rate for all trials
    best: list[Chosen]
    last: list[Chosen]
    together: list[Chosen]

    @property
    def splits(self) -> int:
        """Return the number of splits with a trial."""
        return len({trial.split for trial in self.best})


def split_rows(plan: Plan, sets: Mapping[str, Bags], *, store: Store) -> list[Row]:
    """Return a row for each set and method, over the splits that the store has for all methods.

    A stopped study shows only complete sets and complete splits.
    """
    found: dict[tuple[str, str], list[StoredRow]] = {}
    for name, bags in sets.items():
        of_set = {method: select_rows(plan, name, bags, method, store=store) for method in plan.methods}
        if all(_whole_splits(rows, plan) for rows in of_set.values()):
            found |= {(name, method): rows for method, rows in of_set.items()}
    whole = [_whole_splits(rows, plan) for rows in found.values()]
    table_rows = []
    for (name, method), held in found.items():
        rows = [row for row in held if all(row["split"] in splits for splits in whole)]
        best = choose(rows, epoch="best", lrs=plan.lrs)
        if best:
            last = choose(rows, epoch="last", lrs=plan.lrs)
            table_rows.append(Row(name, method, best, last, choose_together(rows, lrs=plan.lrs)))
    return table_rows


def _whole_splits(rows: Sequence[StoredRow], plan: Plan) -> set[int]:
    """Return the splits with a trial for each fold and learning rate."""
    tried: dict[tuple[int, int], set[float]] = defaultdict(set)
    for row in rows:
        tried[row["split"], row["fold"]].add(row["lr"])
    folds = Counter(split for (split, _), lrs in tried.items() if lrs >= set(plan.lrs))
    return {split for split, count in folds.items() if count >= plan.folds}


def paper_section(rows: Sequence[Row], *, margin: float) -> list[str]:
    """Return tables of the first three splits, one for each set: mean and deviation, as in the paper."""
    tables: list[str] = []
    for name in dict.fromkeys(row.name for row in rows):
        lines = [[label(row.method), *_ours_and_paper(row)] for row in rows if row.name == name]
        tables += [f"### {name}", "", *table(_PROTOCOL_HEAD, lines), ""]
    counts = sorted({len(_first(row.best)) for row in rows})
    some = f" (here: {', '.join(map(str, counts))} trials)"
    return section(
        f"The paper's protocol, margin {margin:g}",
        "Test AUROC, mean and in brackets the standard deviation over 15 trials: 3 stratified random 0.9/0.1 splits, 5 "
        f"folds each{'' if counts == [_PAPER_TRIALS] else some}. 'Best epoch' is the one with the highest validation "
        "AUROC. A trial takes the learning rate with the highest validation AUROC at the epoch that is reported: the "
        "paper reports 'a model with the largest validation AUC', which we read as a choice within each trial. Of "
        "equal rates the one with the higher validation AUROC of the last epoch is taken, then the higher rate. "
        "Cross-entropy has no margin and is shown once.",
        tables[:-1],
    )


def verdict_section(rows: Sequence[Row], *, margin: float, others: Mapping[float, Sequence[Row]]) -> list[str]:
    """Return the table of all splits: interval, predictive interval, and whether the paper's mean lies in it."""
    rows = [row for row in rows if row.splits >= 2]
    if not rows:
        return []
    lines = [_verdict(row, others) for row in rows]
    inside = sum(line[_VERDICT] == "inside" for line in lines)
    compared = sum(line[_VERDICT] != "-" for line in lines)
    count = _counted(row.splits for row in rows)
    widths = [new.high - new.low for new in (_new(means_of(row.best)) for row in rows)]
    head = ["set, method", "splits", "mean [95%]", "last epoch", "3-split mean [95%]", "paper", "paper's mean"]
    head += ["training AUROC", "sd of 3 splits", "by the last epoch", "by one rate"]
    head += [f"at margin {other:g}" for other in others]
    return section(
        f"Over {count} splits, margin {margin:g}",
        "Mean over splits with its 95% interval (t; the split, not the trial, is what was drawn), and the interval in "
        "which the mean of 3 new splits falls with 95%. The paper's mean, of 3 splits too, lies inside that interval, "
        f"above or below: {inside} of {compared} lie inside. The median width of these intervals is "
        f"{np.median(widths):.2f}: the wider, the less 'inside' says. Then come the mean AUROC of the training bags at "
        "the last epoch and the standard deviation of a 3-split mean. The last columns say whether the paper's mean "
        "lies inside after another choice: the last epoch, one learning rate for all trials (the highest mean "
        "validation AUROC), another margin.",
        table(head, lines),
    )


def paired_section(rows: Sequence[Row], *, margin: float) -> list[str]:
    """Return MIDAM minus DAM with the same pooling, paired by split; empty if no pair has two splits."""
    lines = _paired(rows)
    if not lines:
        return []
    head = ["set, difference", "splits", "mean [95%]", "corrected [95%]", "paper", "p after Holm"]
    head += ["verdict, by the corrected interval"]
    return section(
        f"What stochastic pooling adds to DAM, margin {margin:g}",
        "Test AUROC of MIDAM minus that of DAM on whole bags with the same pooling, paired by split. The first "
        "interval is that of the mean over splits. The corrected one (Nadeau and Bengio, 2003; a test bag for 7.2 "
        "training bags) knows that the splits share training bags; neither knows how many rows the table has, which "
        "the p-value of the corrected interval does, by Holm's rule. The paper's column is the difference of its two "
        "means.",
        table(head, lines),
    )


def relative_section(rows: Sequence[Row], ours: Sequence[Row], *, margin: float) -> list[str]:
    """Return MIDAM with the relative state minus that with the printed one, paired by split; empty without two."""
    printed_rows = {(row.name, row.method): row for row in rows}
    pairs = []
    for row in ours:
        other = printed_rows.get((row.name, row.method.replace("midam-", "midam-printed-")))
        if other is not None and min(row.splits, other.splits) >= 2:
            same = {trial.split for trial in row.best} & {trial.split for trial in other.best}
            pairs.append((f"{row.name}, {label(row.method)}", _of(row, same), _of(other, same), None))
    lines = [[*line[:4], *line[5:]] for line in _differences(pairs)]
    if not lines:
        return []
    higher = sum(float(line[2].split()[0]) > 0 for line in lines)
    return section(
        f"The relative state in the place of the printed one, margin {margin:g}",
        "Test AUROC of the paper's settings with the state of `midam fit` (`--estimator vrsp`) minus that with the "
        "paper's (`vrsp-printed`), paired by split, with the intervals of the table above. "
        f"{higher} of {len(lines)} differences favor the relative state.",
        table(["set, method", "splits", "mean [95%]", "corrected [95%]", "p after Holm", "verdict"], lines),
    )


def _of(row: Row, splits: set[int]) -> Row:
    parts = ([trial for trial in trials if trial.split in splits] for trials in (row.best, row.last, row.together))
    return Row(row.name, row.method, *parts)


def short_section(rows: Mapping[float, Sequence[Row]]) -> list[str]:
    """Return a summary of the tables of all splits, margin by margin; empty if there are fewer than two splits."""
    most = max((row.splits for found in rows.values() for row in found), default=0)
    lines = [line for margin, found in rows.items() for line in _short(found, margin, most)]
    return section("In short", lines) if lines else []


def _short(rows: Sequence[Row], margin: float, most: int) -> list[str]:
    paired = _paired(rows)
    if not paired:
        return []
    rows = [row for row in rows if row.splits >= 2]
    signs = Counter(line[_SIGN] for line in paired)
    gains = [float(line[2].split()[0]) for line in paired]
    count = _counted(row.splits for row in rows)
    where = f"margin {margin:g}, {count} splits" + (f" of {most}" if count != str(most) else "")
    told = ", ".join(f"{line[0]} {line[2].split()[0]} {line[3]}" for line in paired if line[_SIGN].endswith(" 0"))
    least = min(float(line[_HOLM]) for line in paired)
    verdicts = {(row.name, row.method): _verdict(row, {})[_VERDICT] for row in rows}
    known = [verdict for verdict in verdicts.values() if verdict in ("inside", "above", "below")]
    outside = len(known) - known.count("inside")
    widths = [new.high - new.low for new in (_new(means_of(row.best)) for row in rows)]
    verdict = "not reproduced" if outside > 0.1 * len(known) else "not contradicted"
    return [
        f"- **MIDAM minus DAM, {where}.** A step of MIDAM draws a few instances of a bag, one of DAM reads the whole "
        f"bag. The mean test AUROCs differ by at most {max(map(abs, gains)):.3f}; {sum(gain > 0 for gain in gains)} of "
        f"{len(gains)} differences favor MIDAM. Corrected intervals: {signs['above 0']} above 0, "
        f"{signs['below 0']} below 0, and {signs['no difference found']} hold 0{f': {told}' if told else ''}. The "
        f"smallest p-value after Holm's correction is {least:.2f}.",
        f"- **Beside the paper, {where}: {verdict}.** "
        f"{outside} of its {len(known)} means lie outside the interval in which the mean of three splits of ours falls "
        f"with 95%, where {0.05 * len(known):.1f} are expected; the median width of these intervals is "
        f"{np.median(widths):.2f}.{_outside(verdicts)}{_firsts(rows)}",
    ]


def _outside(verdicts: Mapping[tuple[str, str], str]) -> str:
    parts = []
    for side in ("below", "above"):
        names: dict[str, list[str]] = defaultdict(list)
        for (name, method), verdict in verdicts.items():
            if verdict == side:
                names[name].append(label(method))
        told = "; ".join(f"{name} {', '.join(methods)}" for name, methods in names.items())
        parts += [f" The paper's mean is {side} ours on {told}."] if told else []
    return "".join(parts)


def _firsts(rows: Sequence[Row]) -> str:
    """Return on how many sets a MIDAM row has the highest mean, in the paper and here; only for sets with all rows."""
    ours, theirs = [], []
    for name in dict.fromkeys(row.name for row in rows):
        own = {row.method: float(np.mean(means_of(row.best))) for row in rows if row.name == name}
        paper = {method: found[0] for method in METHODS for found in [printed(name, method)] if found is not None}
        if not paper or not own.keys() >= paper.keys():
            return ""
        ours.append(max(own, key=own.__getitem__).startswith("midam-"))
        theirs.append(max(paper.values()) == max(paper[method] for method in paper if method.startswith("midam-")))
    return f" A MIDAM row is first on {sum(theirs)} of {len(theirs)} sets in the paper, and on {sum(ours)} here."


def _counted(splits: Iterable[int]) -> str:
    found = sorted(set(splits))
    return f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"


def draw_rows(path: Path, rows: Sequence[Row]) -> bool:
    """Draw a panel for each set: our mean, interval of a 3-split mean, the paper's mean; False without two splits."""
    rows = [row for row in rows if row.splits >= 2]
    names = [name for name in SETS if any(row.name == name for row in rows)] or sorted({row.name for row in rows})
    if not rows:
        return False
    methods = list(dict.fromkeys(row.method for row in rows))
    figure = new_figure((2.3 * len(names) + 2.2, 0.28 * len(methods) + 1.6))
    grid = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for name, axes in zip(names, grid):
        own = [row for row in rows if row.name == name]
        places = [methods.index(row.method) for row in own]
        new = [predictive_interval(means_of(row.best), count=PAPER_SPLITS) for row in own]
        bounds = [(e.low, e.high) for e in new]
        plot_points(
            axes,
            places,
            [e.mean for e in new],
            bounds,
            name="ours, with the interval of a 3-split mean",
            horizontal=True,
        )
        theirs = [(place, printed(name, row.method)) for place, row in zip(places, own)]
        known = [(place, found[0]) for place, found in theirs if found is not None]
        if known:
            spots, values = zip(*known)
            axes.scatter(values, spots, marker="x", s=36, color=COLORS[1], zorder=4, label="the paper's mean")
        axes.set_title(name, loc="left", fontweight="bold", fontsize=10)
        axes.set_xlabel("Test AUROC")
    grid[0].set_yticks(range(len(methods)), [label(method) for method in methods])
    grid[0].invert_yaxis()
    add_legend(figure, columns=2)
    save_figure(figure, path)
    return True


def means_of(trials: Sequence[Chosen]) -> list[float]:
    """Return the mean test AUROC of each split."""
    values: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        values[trial.split].append(trial.test)
    return split_means(values)


def margin_section(rows: Mapping[float, Sequence[Row]]) -> list[str]:
    """Return what the margin changes: the AUROC at margin 1 minus that at the paper's, paired by split."""
    if len(rows) < 2:
        return []
    paper, usual = ({(row.name, row.method): row for row in found if row.splits >= 2} for found in rows.values())
    pairs = [
        (f"{name}, {label(method)}", usual[name, method], row, None)
        for (name, method), row in paper.items()
        if (name, method) in usual and usual[name, method].splits == row.splits
    ]
    lines = [[*line[:4], *line[5:]] for line in _differences(pairs)]
    if not lines:
        return []
    higher = sum(float(line[2].split()[0]) > 0 for line in lines)
    least = min(float(line[4]) for line in lines)
    first, second = rows
    return section(
        f"What the margin changes, {second:g} minus {first:g}",
        f"Test AUROC at margin {second:g} minus that at {first:g}, paired by split, with the intervals of the tables "
        f"above. {higher} of {len(lines)} means are higher at margin {second:g}; the smallest p-value after Holm's "
        f"correction is {least:.2f}.",
        table(["set, method", "splits", "mean [95%]", "corrected [95%]", "p after Holm", "verdict"], lines),
    )


def _paired(rows: Sequence[Row]) -> list[list[str]]:
    by = {(row.name, row.method): row for row in rows if row.splits >= 2}
    pairs = []
    for (name, method), row in by.items():
        other = by.get((name, method.replace("midam-printed-", "dam-")))
        if not method.startswith("midam-printed-") or other is None or other.splits != row.splits:
            continue
        theirs, without = printed(name, method), printed(name, other.method)
        paper = None if theirs is None or without is None else theirs[0] - without[0]
        pairs.append((f"{name}, {label(method)} - {label(other.method)}", row, other, paper))
    return _differences(pairs)


def _differences(pairs: Sequence[tuple[str, Row, Row, float | None]]) -> list[list[str]]:
    """Return a line for each pair: its name, both intervals of the difference, the paper's, Holm's p and the sign."""
    lines, wides = [], []
    for name, row, other, paper in pairs:
        ours, base = means_of(row.best), means_of(other.best)
        wide = corrected_interval(np.subtract(ours, base), ratio=_TEST_TO_TRAIN)
        wides.append((wide.mean, wide.low, wide.high))
        # Equal differences give NaN as bounds.
        sign = "above 0" if wide.low > 0 else "below 0" if wide.high < 0 else "no difference found"
        known = np.isfinite(wide.low)
        lines.append(
            [
                name,
                str(row.splits),
                f"{paired_interval(ours, base):+}",
                f"[{wide.low:+.3f}, {wide.high:+.3f}]" if known else "-",
                "-" if paper is None else f"{paper:+.3f}",
                sign if known else "no spread",
            ]
        )
    for line, p in zip(lines, holm(wides, freedom=max(int(line[1]) for line in lines) - 1) if lines else ()):
        line.insert(_HOLM, f"{p:.2f}")
    return lines


def _first(trials: Sequence[Chosen]) -> list[Chosen]:
    return [trial for trial in trials if trial.split < PAPER_SPLITS]


def _ours_and_paper(row: Row) -> list[str]:
    theirs = printed(row.name, row.method)
    cells = [_mean_sd([t.test for t in _first(trials)]) for trials in (row.best, row.last)]
    return [*cells, "-" if theirs is None else f"{theirs[0]:.3f} ({theirs[1]:.3f})"]


def _mean_sd(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f"{np.std(values, ddof=1):.3f}" if len(values) > 1 else "-"
    return f"{np.mean(values):.3f} ({spread})"


def _verdict(row: Row, others: Mapping[float, Sequence[Row]]) -> list[str]:
    theirs = printed(row.name, row.method)
    means = means_of(row.best)
    new = predictive_interval(means, count=PAPER_SPLITS)
    found = ["-", "-"]
    if theirs is not None:
        verdict = "inside" if new.holds(theirs[0]) else ("above" if theirs[0] > new.high else "below")
        # Equal splits give an interval without width, which has no meaning.
        found = [f"{theirs[0]:.3f}", verdict if np.ptp(means) > 0 else "no spread"]
    return [
        f"{row.name}, {label(row.method)}",
        str(row.splits),
        str(mean_interval(means)),
        f"{np.mean([t.test for t in row.last]):.3f}" if row.last else "-",
        f"[{new.low:.3f}, {new.high:.3f}]",
        *found,
        f"{np.mean([trial.train for trial in row.best]):.2f}",
        f"{np.std(means, ddof=1) / PAPER_SPLITS**0.5:.3f}",
        *_elsewise(row, others),
    ]


def _elsewise(row: Row, others: Mapping[float, Sequence[Row]]) -> list[str]:
    """Return whether the paper's mean is inside with the last epoch, one rate, another margin; '-' if unknown."""
    variants = [row.last, row.together]
    for theirs in others.values():
        same = [other.best for other in theirs if (other.name, other.method) == (row.name, row.method)]
        variants.append(same[0] if same and not row.method.startswith("ce-") else [])
    value = printed(row.name, row.method)
    means = [means_of(trials) for trials in variants]
    return ["-" if value is None or len(m) < 2 else "inside" if _new(m).holds(value[0]) else "outside" for m in means]


def _new(means: Sequence[float]) -> Estimate:
    return predictive_interval(means, count=PAPER_SPLITS)
