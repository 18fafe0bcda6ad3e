"""Protocol `cv` of Table 2: 5 x 10-fold cross-validation, nothing chosen, methods compared in pairs.

A set has its published folds if there are any, else stratified folds with the seeds 0 to 4.
"""

import dataclasses
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from midam.compare import Grid, Workers
from midam.compare.folds import Fold, repeated_folds
from midam.compare.run import run_comparison
from midam.compare.summary import format_interval
from midam.data.bags import Bags
from midam.settings import Settings
from studies.differences import holm
from studies.engine import Store, TrialProgress, settings_hash, write_packed
from studies.options import StudyOptions
from studies.page import table, write_page
from studies.paper_tables import METHODS
from studies.peers import PEERS, installed_peers
from studies.splits import published_folds
from studies.tabular import instance_methods

NAME, SECTION = "table2-cv", "cv"
FEATURE_BASELINES = (
    "bag-statistics-extratrees",
    "bag-statistics-logistic",
    *instance_methods.NAMES,
)
FIRST = "midam-printed-att"
_MINI_BATCH = tuple(f"{loss}-mb-{pooling}" for loss in ("ce", "dam") for pooling in ("mean", "max", "smx", "att"))


@dataclass(frozen=True)
class CvPlan:
    """Methods, folds and settings of the protocol."""

    methods: tuple[str, ...]  # Method names of `midam.compare`; the first is compared with all others
    # Repeats and folds of the cross-validation
    repeats: int
    folds: int
    settings: Settings  # Settings of the methods trained here; a name replaces pooling, estimator and objective


def cv_plan(options: StudyOptions) -> CvPlan:
    """Return the plan: the library's default settings for every method, with one scorer each."""
    if options.smaller:
        few = (FIRST, "dam-mean", "bag-statistics-logistic")
        return CvPlan(few, repeats=1, folds=3, settings=_settings(epochs=2))
    others = [name for name in METHODS if name != FIRST]
    methods = (FIRST, *others, *_MINI_BATCH, *FEATURE_BASELINES, *installed_peers())
    return CvPlan(methods, 1 if options.quick else 5, folds=10, settings=_settings(members=1))


def _settings(**values: Any) -> Settings:
    return Settings(**values, accelerator="cpu").resolve((1,))


def study(options: StudyOptions, sets: Mapping[str, Bags], *, shown: Mapping[str, Bags]) -> None:
    """Compare the methods on `sets`, and write the page of `shown`."""
    plan = cv_plan(options)
    with Store(options.cache, f"{NAME}{'-quick' if options.quick else ''}") as store:
        run_cv(plan, sets, options=options, store=store)
        write_page(
            options,
            NAME,
            study="table2",
            title="Table 2 by cross-validation",
            shows=f"Test AUROC of all methods, the baselines and other libraries on the tabular sets of the [paper's "
            f"Table 2](table2.md), in cross-validation of {plan.folds} folds.",
            seeds=f"repeats of the cross-validation are seeded 0 to {plan.repeats - 1}",
            seconds=store.wall_time(),
            body=cv_tables(plan, shown, options=options),
            tried=False,  # the body has their names
        )


def run_cv(plan: CvPlan, sets: Mapping[str, Bags], *, options: StudyOptions, store: Store) -> None:
    """Compare the methods on each set; finished trials are kept in the cache folder."""
    for name, cataloged in sets.items():
        bags, folds, _ = _folds(plan, name, cataloged)
        folder = _folder(plan, name, cataloged, options.cache)
        before, started = _size(folder / "trials.csv"), time.perf_counter()
        console = options.console or Console(quiet=True)
        try:
            with TrialProgress(f"{SECTION}, {name}", console=console) as bar:
                run_comparison(
                    bags,
                    plan.methods,
                    folds,
                    settings=plan.settings,
                    grid=Grid(
                        [plan.settings.resolve(bags.instance_shape).training.lr], [plan.settings.method.margin], "last"
                    ),
                    out=folder,
                    workers=Workers(options.backend, options.jobs, options.cluster),
                    on_progress=bar.update,
                )
        finally:
            if _size(folder / "trials.csv") > before:
                store.add([{"wall": time.perf_counter() - started, "section": SECTION}])


def cv_tables(plan: CvPlan, sets: Mapping[str, Bags], *, options: StudyOptions) -> list[str]:
    """Return the tables of the finished sets, with the plan's repeats or with one; empty without finished sets."""
    found: dict[str, pd.DataFrame] = {}
    trials, origins = [], []
    for name, bags in sets.items():
        for candidate in (dataclasses.replace(plan, repeats=5), plan, dataclasses.replace(plan, repeats=1)):
            folder = _folder(candidate, name, bags, options.cache)
            if (folder / "summary.csv").is_file():
                found[name] = pd.read_csv(folder / "summary.csv")
                trials.append(pd.read_csv(folder / "trials.csv", dtype=str).assign(set=name))
                published = _folds(candidate, name, bags)[2]
                origins.append(f"{name} ({'published' if published else 'drawn'}, {candidate.repeats})")
                break
    if not found:
        return []
    return [
        *_explained(plan, found, origins),
        "",
        *_publish(trials, options),
        "## AUROC",
        "",
        "Mean over the folds ('-': not run):",
        "",
        *_auroc_table(found),
        "",
        f"## Paired difference to {FIRST}",
        "",
        "With its 95% interval:",
        "",
        *_table(found, lambda row: format_interval(row, "difference", sign=True)),
        "",
        *_multiplicity(found),
        "",
        "## Time",
        "",
        "Seconds a trial, taken while midam still trained the trials of one shape together:",
        "",
        *_table(found, lambda row: f"{row['seconds']:.2f}"),
        "",
        *_left_out(found),
    ]


def _multiplicity(found: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the section on the differences after a correction for their number: all methods, and other libraries."""
    rows = {
        (row["method"], name): (row["difference"], row["difference_low"], row["difference_high"], row["paired_folds"])
        for name, frame in found.items()
        for row in frame.to_dict("records")
        if row["method"] != FIRST
    }
    lines = []
    for what, methods in (("all methods", {method for method, _ in rows}), ("other libraries", set(PEERS))):
        own = {key: row for key, row in rows.items() if key[0] in methods and np.isfinite(row[1])}
        if not own:
            continue
        freedom = min(int(row[3]) for row in own.values()) - 1
        p = dict(zip(own, holm([row[:3] for row in own.values()], freedom=freedom)))
        apart = [f"{method} on {name}" for (method, name), value in p.items() if value < 0.05]
        first = min(p, key=p.__getitem__)
        lines.append(
            f"After Holm's correction over the {len(own)} comparisons of {what}, {_join_plain(apart)} can be told from "
            f"{FIRST}; the smallest p-value is {p[first]:.2f}, of {first[0]} on {first[1]}."
        )
    return lines


def _join_plain(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _publish(trials: Sequence[pd.DataFrame], options: StudyOptions) -> list[str]:
    if options.quick:
        return []
    path = options.out / "trials" / f"{NAME}.csv.gz"
    write_packed(path, pd.concat(trials, ignore_index=True).to_csv(index=False).encode())
    return [f"All trials, a row each: [trials/{path.name}](trials/{path.name}).", ""]


def _explained(plan: CvPlan, found: Mapping[str, pd.DataFrame], origins: Sequence[str]) -> list[str]:
    absent = [name for name in PEERS if not any(name in set(frame["method"]) for frame in found.values())]
    training = plan.settings.resolve((1,)).training
    return [
        f"Folds (published with the set or drawn; repeats): {', '.join(origins)}. Every method trained here has the "
        f"library's default settings (learning rate {training.lr:g}, margin {plan.settings.method.margin:g}, "
        f"{training.epochs} epochs) but for pooling, estimator and objective, which its name gives, and one "
        "scorer: what averaging several gains is on the page of the defaults. The last epoch is tested; nothing is "
        "chosen. The baselines choose inside the training part only; other libraries run with their own loss, "
        "optimizer and settings. Ours were chosen [on these very sets](defaults.md), theirs were not: LibAUC and midam "
        "[each at the settings of the other](tabular-settings.md). Intervals have the correction of "
        f"Nadeau and Bengio (2003).{f' Not run, because not installed: {_join(absent)}.' if absent else ''}",
    ]


def _folds(plan: CvPlan, name: str, bags: Bags) -> tuple[Bags, list[Fold], bool]:
    """Return the bags in the order of the folds, the folds, and whether they were published."""
    published = published_folds(name, bags)
    if published is None or plan.folds != published[1].shape[1]:
        return bags, repeated_folds(bags, repeats=plan.repeats, folds=plan.folds), False
    own, train = published
    folds = [
        Fold(repeat, fold, np.flatnonzero(train[repeat, fold]), np.flatnonzero(~train[repeat, fold]))
        for repeat in range(min(plan.repeats, len(train)))
        for fold in range(train.shape[1])
    ]
    return own, folds, True


def _folder(plan: CvPlan, name: str, bags: Bags, cache: Path) -> Path:
    digest = settings_hash(plan.settings, bags=bags)
    return cache / "table2-cv" / f"{name}-{plan.repeats}x{plan.folds}-lr{plan.settings.training.lr:g}-{digest}"


def _auroc_table(found: Mapping[str, pd.DataFrame]) -> list[str]:
    lines = []
    for method in _methods(found):
        values = [_value(frame, method, "auroc") for frame in found.values()]
        mean = f"{np.mean(values):.3f}" if np.isfinite(values).all() else "-"
        lines.append([method, *(f"{v:.3f}" if np.isfinite(v) else "-" for v in values), mean])
    return table(["method", *found, "mean"], lines)


def _table(found: Mapping[str, pd.DataFrame], cell: Callable[[Mapping[Hashable, Any]], str]) -> list[str]:
    lines = []
    for method in _methods(found):
        rows = [frame[frame["method"] == method].to_dict("records") for frame in found.values()]
        lines.append([method, *(cell(row[0]) if row else "-" for row in rows)])
    return table(["method", *found], lines)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _left_out(found: Mapping[str, pd.DataFrame]) -> list[str]:
    lines = []
    for name, frame in found.items():
        for row in frame.to_dict("records"):
            lost = {
                reason: int(row[reason]) for reason in ("one_class", "no_validation", "diverged") if row[reason] > 0
            }
            lines += [
                f"- {name}, {row['method']}: {count} folds left out ({reason})." for reason, count in lost.items()
            ]
    return [*lines, ""] if lines else []


def _methods(found: Mapping[str, pd.DataFrame]) -> list[str]:
    return list(dict.fromkeys(method for frame in found.values() for method in frame["method"]))


def _value(frame: pd.DataFrame, method: str, column: str) -> float:
    values = frame.loc[frame["method"] == method, column].to_numpy(dtype=np.float64)
    return float(values[0]) if len(values) else float("nan")


def _join(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
