"""The numbers of trials that hold their metric: where remembering pays, other labels, Table 2."""

import re
from functools import cache

import numpy as np
import pandas as pd
from scipy import stats
from tests.outside.published_trials import ROOT, by_number, signed, t_interval, trials, where

# Where remembering pays.
# Test bags for each training bag, where repeats share bags.
_SHARED = dict.fromkeys(("MUSK2", "intensive care", "colon, patches of 16", "breast, patches of 32"), 1 / 3)


def _remembered(other: str = "minibatch", **values: object) -> dict[str, tuple[float, float, float]]:
    """By task: `vrsp` minus another arm, the mean over the cells that are picked, and its interval.

    Each arm of a task and pooling has the optimizer with the highest mean of the trainings that choose.
    """
    rows = trials("tracked").astype({"auroc": float, "option": str}).fillna({"auroc": 0.5})
    rows = rows[rows["arm"].isin(["vrsp", other])]
    arm = ["task", "pooling", "arm"]
    means = rows[rows["repeat"] >= 100].groupby([*arm, "option"], sort=False)["auroc"].mean()
    best = means.groupby(level=arm).idxmax().tolist()
    rows = rows[pd.MultiIndex.from_frame(rows[[*arm, "option"]]).isin(best)]
    rows = where(rows[rows["repeat"] < 100], **values)
    cells = rows.pivot(index=["task", "pooling", "instances", "arm"], columns="repeat", values="auroc").unstack("arm")
    gaps = (cells.xs("vrsp", level="arm", axis=1) - cells.xs(other, level="arm", axis=1)).dropna()
    return {
        str(task): t_interval(own.mean(axis=0).to_numpy(), overlap=_SHARED.get(str(task), 0.0))
        for task, own in gaps.groupby(level="task")
    }


def _over_tasks(gains: dict[str, tuple[float, float, float]]) -> str:
    means, halves = (np.array(own) for own in zip(*((mean, high - mean) for mean, _, high in gains.values())))
    mean, half = means.mean(), np.sqrt((halves**2).sum()) / len(gains)
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def _remembered_in(task: str, **values: object) -> str:
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*_remembered(task=task, **values)[task])


def remembering() -> list[str]:
    """The primary comparison, at one, two and four instances a step, over the tasks; and the default."""
    usual = _over_tasks(_remembered(pooling="attention", instances=8))
    return [_over_tasks(_remembered(instances=[1, 2, 4])), usual]


def remembering_by_size() -> list[str]:
    """At one, two and four instances a step, in bags of 5000 and of 200 digits."""
    return [_remembered_in(f"digits, bags of {size}", instances=[1, 2, 4]) for size in (5000, 200)]


def relative_minus_printed() -> list[str]:
    """At one, two and four instances a step, over the tasks."""
    return [_over_tasks(_remembered("vrsp-printed", instances=[1, 2, 4]))]


# The needle, and studies of other labels.


def _needle(way: str, size: int) -> pd.Series:
    """Return the judged trainings of a way, at the rate that validation bags chose."""
    rows = where(trials("needle"), way=way, size=size).astype({"auroc": float})
    rate = rows[rows["repeat"] >= 100].groupby("lr")["auroc"].mean().idxmax()
    return by_number(rows[(rows["repeat"] < 100) & (rows["lr"] == rate)], "repeat", "auroc")


def needle() -> list[str]:
    """Mean AUROC with one witness in 100, with a tracked state and without."""
    return [f"{_needle(way, 100).mean():.3f}" for way in ("uniform, tracked state", "uniform")]


def ten_labels() -> list[str]:
    """Macro AUROC of ten labels at once and alone, and the cost of all of one."""
    rows = trials("labels")
    return [f"{rows['together'].mean():.3f}", f"{rows['alone'].mean():.3f}", f"{rows['ratio'].mean():.2f}"]


def survival() -> list[str]:
    """C-index of the true hazard minus that of smoothed-max, with the settings that validation bags chose."""
    rows = where(trials("survival"), way="tracked state, pairs, smoothed-max")
    tuned = rows[rows["repeat"] >= 100]
    rows = where(rows[rows["repeat"] < 100], settings=tuned.loc[tuned["val"].idxmax(), "settings"])
    return [signed((by_number(rows, "repeat", "oracle") - by_number(rows, "repeat")).to_numpy())]


def screening() -> list[str]:
    """Sensitivity of the default objective, at the rate chosen on three other seeds."""
    rows = where(trials("screening"), rule="minmax-auc")
    chosen = rows[rows["seed"] >= 100].groupby("lr")["sensitivity"].mean().idxmax()
    return [f"{by_number(where(rows[rows['seed'] < 100], lr=chosen), 'seed', 'sensitivity').mean():.3f}"]


# Table 2.
_SETS = ("musk1", "musk2", "fox", "tiger", "elephant")


@cache
def _table2(margin: float) -> pd.DataFrame:
    """Mean test AUROC of each split: sets and the methods of the paper by splits; validation bags choose rates."""
    rows = trials("table2")
    rows = rows[~rows["method"].isin(["midam-smx", "midam-att"])]  # with the relative state, on three splits
    rows = rows[(rows["margin"] == margin) | rows["margin"].isna()].dropna(subset=["val_best", "train_last"])
    # Equals go to the higher validation AUROC of the last epoch, then to the higher rate.
    rows = rows.sort_values(["val_best", "val_last", "lr"], ascending=False, kind="stable")
    chosen = rows.drop_duplicates(["set", "method", "split", "fold"])
    return chosen.pivot_table(index=["set", "method"], columns="split", values="test_best", aggfunc="mean")


def _paper() -> dict[tuple[str, str], float]:
    """Mean AUROC that the paper prints, which the record page repeats."""
    text = (ROOT / "records" / "table2.md").read_text("utf-8").partition("## Over 30 splits, margin 0.1\n")[2]
    lines = re.findall(r"^\| (\w+), (\w+) \((\w+)\) \| 30 \|[^|]*\|[^|]*\|[^|]*\| (\d\.\d+) \|", text, flags=re.M)
    objectives = {"CE": "ce", "DAM": "dam", "MIDAM": "midam-printed"}
    return {(name, f"{objectives[objective]}-{pooling}"): float(value) for name, objective, pooling, value in lines}


def _midam_minus_dam(margin: float) -> list[float]:
    means = _table2(margin)
    return [
        float((means.loc[name, f"midam-printed-{pooling}"] - means.loc[name, f"dam-{pooling}"]).mean())
        for name in _SETS
        for pooling in ("smx", "att")
    ]


def firsts_of_entropy() -> list[str]:
    """Splits, and the sets on which a row of cross-entropy has the highest mean, at the paper's margin and at 1."""
    counts = []
    for margin in (0.1, 1.0):
        means = _table2(margin).mean(axis=1)
        counts.append(sum(means.loc[name].idxmax().startswith("ce-") for name in _SETS))
    return [_splits(0.1), *map(str, counts)]


def outside_the_paper() -> list[str]:
    """Means of the paper outside the interval in which the mean of three splits of ours falls, and of how many."""
    means, paper = _table2(0.1), _paper()
    if len(paper) != len(means):
        raise ValueError(f"Expected {len(means)} means of the paper, got {len(paper)}; look at records/table2.md.")
    return [str(sum(_is_outside(means.loc[key], value) for key, value in paper.items())), str(len(paper))]


def _is_outside(means: pd.Series, value: float) -> bool:
    own = means.dropna().to_numpy()
    half = stats.t.ppf(0.975, len(own) - 1) * own.std(ddof=1) * np.sqrt(1 / 3 + 1 / len(own))
    return not max(0.0, own.mean() - half) <= value <= min(1.0, own.mean() + half)


def outside_by_kind() -> list[str]:
    """The same, the splits, and how many of these means are of cross-entropy and of the objectives with a margin."""
    outside, known = outside_the_paper()
    without = sum(_is_outside(_table2(0.1).loc[key], value) for key, value in _paper().items() if key[1][:3] == "ce-")
    return [outside, known, _splits(0.1), str(without), str(int(outside) - without)]


def _splits(margin: float) -> str:
    return str(where(trials("table2"), margin=margin)["split"].nunique())


def largest_difference() -> list[str]:
    """Splits, and the largest absolute mean difference of MIDAM and DAM at either margin."""
    return [_splits(0.1), f"{np.abs([_midam_minus_dam(0.1), _midam_minus_dam(1.0)]).max():.3f}"]


def ahead_at_both_margins() -> list[str]:
    """Splits; the cases in which MIDAM is ahead of DAM, of how many, by how much at most; the most at margin 1."""
    gaps, usual = _midam_minus_dam(0.1), np.abs(_midam_minus_dam(1.0))
    return [_splits(0.1), str(sum(gap > 0 for gap in gaps)), str(len(gaps)), f"{max(gaps):.3f}", f"{usual.max():.3f}"]
