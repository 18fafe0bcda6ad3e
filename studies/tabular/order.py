"""`python -m studies order`: the gain from features of the order in a bag, on stays in intensive care and visits.

Question: do `--order` and its features (position, times since the previous and the first instance, change of each
feature) rank new bags better than the same table with the time as an ordinary feature?

Rule, fixed before the first run: on the same folds, the order adds something to a method on a set where the 95%
interval of the paired difference, corrected for folds that share training bags, lies above 0; it takes something where
the interval lies below 0; else nothing is shown. Nothing is chosen: trees have their defaults, `midam` one member and
its defaults, but 20 passes over the stays, about as many steps as its 100 over the visits.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.compare import repeated_folds, run_comparison
from midam.compare.engine import Group, Row
from midam.compare.summary import corrected_interval
from midam.data.bags import Bags
from midam.data.sets import catalog
from midam.settings import Settings
from studies.engine import Store, complete, short_digest, trial_name
from studies.options import StudyOptions
from studies.page import write_page
from studies.registry import as_study

SECTION = "order"
METHODS = ("bag-statistics-extratrees", "midam")
ARMS = ("time as a feature", "order")
_FOLDS = 5
_METRICS = {"binary": "AUROC", "survival": "C-index"}


@dataclass(frozen=True)
class Design:
    """The sets, with their epochs."""

    epochs: Mapping[str, int] = field(hash=False)


FULL = Design({"pbc2_landmark2y": 100, "physionet2012_icu": 20})
QUICK = Design({"pbc2_landmark2y": 100})
SMALLER = Design({"pbc2_landmark2y": 1})
_SHOWS = (
    "A stay in intensive care is a bag of 4-hour bins, and a patient with cirrhosis a bag of visits. Their time is a "
    "plain feature here, and there what `--order` takes: position in the bag, times since the previous and the first "
    "instance, and the change of each feature are added."
)


def with_order(bags: Bags) -> Bags:
    """Return the bags with the features of an order by their first feature, made through a table.

    Examples
    --------
    >>> with_order(Bags.from_list([[[0.0, 5.0], [2.0, 4.0]]])).instances.tolist()
    [[5.0, 0.5, 0.0, 0.0, 0.0], [4.0, 1.0, 2.0, 2.0, -1.0]]
    """
    frame = pd.DataFrame(np.asarray(bags.instances), columns=[f"x{i}" for i in range(bags.instance_shape[0])])
    with warnings.catch_warnings(action="ignore"):  # equal hours, constant features
        made = Bags.from_dataframe(frame.assign(bag=np.repeat(bags.ids, bags.sizes)), order="x0")
    return made.replace(labels=bags.labels, outcome=bags.outcome, source=bags.source)


Task = tuple[Design, str, str, int]


def _train(task: Task) -> list[Row]:
    design, name, arm, number = task
    bags = catalog.load(name)
    chosen = [fold for fold in repeated_folds(bags, repeats=1, folds=_FOLDS) if fold.fold == number]
    bags = with_order(bags) if arm == ARMS[1] else bags
    settings = Settings(members=1, threads=1, accelerator="cpu", epochs=design.epochs[name])
    rate = settings.resolve(bags.instance_shape).training.lr
    with warnings.catch_warnings(action="ignore"):
        found = run_comparison(
            bags, METHODS, chosen, settings=settings, lrs=[rate], margins=[1.0], select="last", measure_memory=False
        )
    rows = found.trials.set_index("method")
    return [
        {method: float(rows[found.metric][method]) for method in METHODS}
        | {"ratio": len(chosen[0].test) / len(chosen[0].train)}
    ]


def _group(design: Design, name: str, arm: str, fold: int) -> Group[Task]:
    settings = short_digest([design.epochs[name], METHODS])
    found = trial_name(SECTION, data=name, arm=arm, repeat=0, fold=fold, settings=settings)
    return Group([found], [(design, name, arm, fold)])


def body(
    found: Mapping[str, Mapping[str, NDArray[np.float64]]], metrics: Mapping[str, str], ratio: float
) -> Iterator[str]:
    """Yield the lines of the page; `found` has the metric of each set and method as [arms, folds]."""
    lines, verdicts = [], {"adds": list[str](), "takes": list[str]()}
    for name, methods in found.items():
        for method, (plain, ordered) in methods.items():
            gain, won = corrected_interval(ordered - plain, ratio=ratio), int((ordered > plain).sum())
            shown = "adds" if gain.low > 0 else "takes" if gain.high < 0 else ""
            if shown:
                verdicts[shown].append(f"`{method}` on {name}")
            lines.append(
                f"| {name} | {method} | {metrics[name]} | {plain.mean():.3f} | {ordered.mean():.3f} | "
                f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] | {won} of {len(plain)} |"
            )
    for word, names in verdicts.items():
        yield f"The order {word} something, by the rule fixed before: {', '.join(names) or 'nowhere'}."
        yield ""
    yield "| set | method | metric | time as a feature | with the order | difference [95%] | folds won |"
    yield "|---|---|---|---:|---:|---:|---:|"
    yield from lines
    yield ""
    yield (
        "Means over the test parts of five folds, the same for both. Intervals are 95% corrected resampled t "
        "intervals of the paired differences. The sets are small for such a question: a difference inside its interval "
        "may be there and not be seen. Missing values were carried forward before, so that many changes are 0."
    )


@as_study("what the order of instances in a bag adds, on stays in intensive care and on visits", store=SECTION)
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    part, design = ("-quick", QUICK) if options.quick else ("", FULL)
    part, design = ("-smaller", SMALLER) if options.smaller else (part, design)
    with Store(options.cache, f"{SECTION}{part}") as store:
        cells = [(name, arm) for name in design.epochs for arm in ARMS]
        groups = {(name, arm): [_group(design, name, arm, at) for at in range(_FOLDS)] for name, arm in cells}
        # Both ways of a fold directly after each other, so that a stopped study has pairs.
        turns = [groups[name, arm][at] for name in design.epochs for at in range(_FOLDS) for arm in ARMS]
        complete(turns, _train, store=store, options=options, section=SECTION)
        rows = {cell: store.find([group.names[0] for group in groups[cell]]) for cell in cells}
        values = {cell: [row for row in own if row is not None] for cell, own in rows.items()}
        found = {
            name: {m: np.array([[row[m] for row in values[name, arm]] for arm in ARMS]) for m in METHODS}
            for name in design.epochs
        }
        metrics = {name: _METRICS["binary" if catalog.load(name).outcome is None else "survival"] for name in found}
        ratio = float(np.mean([row["ratio"] for own in values.values() for row in own]))
        write_page(
            options,
            SECTION,
            title="The order in a bag",
            shows=_SHOWS,
            seeds="0, of folds and weights",
            seconds=store.wall_time(),
            store=store,
            body=body(found, metrics, ratio),
        )
