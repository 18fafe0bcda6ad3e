"""`python -m studies cross-validation`: whether the cross-validated answer of `midam fit` is honest.

**Questions.** With at most 500 bags, `midam fit` trains on all bags and reports the AUROC of scores out of fold. (1) On
noise, is that AUROC 0.5, and does its 95% interval hold 0.5 in 95 of 100 sets, also if patients have several bags? (2)
Are the probabilities and thresholds of the model true on new bags, and is the AUROC that it reports theirs? (3) One
pass of folds chooses epochs and weights, and scores with them. How much better does it look than an outer
cross-validation around the whole search?

**Rule of decision**, fixed before the first run. Folds stay the default if on noise the mean AUROC is within 0.02 of
0.5 and its interval holds 0.5 in at least 92 of 100 sets; if the median slope of calibration on new bags is within 0.8
and 1.25 where `auto` ranks new bags with an AUROC of at least 0.65; and if the mean difference to the outer
cross-validation over the real sets is at most 0.005.

**Trials.** Noise: 60 bags of 30 patients, all instances of a patient moved by the same random vector, 10 patients
positive. Signal: 60 and 120 bags of three kinds at two strengths; 1000 new bags judge. Real sets: those of the catalog
with at most 500 bags; the outer folds are those of the single pass. Nothing is tuned. Four seeds of each signal gave a
median slope of 1.254 in 22 trials of 60 bags, which cannot be told from the bound; so there are twelve.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.evaluate.calibrate import calibration_line
from midam.evaluate.intervals import auroc_interval
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods.method import Fitted, Folds
from midam.methods.names import make_method
from midam.methods.store import Row
from midam.runs.folds import choose_folds, fold_trials
from midam.settings import Settings
from midam.targets import OutOfFold, target_of
from studies.engine import Store, complete, trial_name
from studies.options import StudyOptions
from studies.page import section, table, write_page
from studies.registry import as_study
from studies.sets import catalog
from studies.synthetic import synthetic_sets

NAME = "cross-validation"
NOISE, SIGNAL, REAL = "noise", "signal", "real"
KINDS = ("shift", "witness", "sparse")
SETS = ("musk1", "musk2", "fox", "tiger", "elephant", "mutagenesis1", "newsgroups1", "colon_nuclei")
_NEW, _RANKS = 1000, 0.65

Scores = NDArray[np.float64]
Task = tuple[str, str, int, float, int]  # question, kind or set, bags, strength, seed


@dataclass(frozen=True)
class Design:
    """Numbers of noise sets, sizes and strengths of sets with a signal, their seeds, and the real sets."""

    noise: int
    sizes: tuple[int, ...]
    strengths: tuple[float, ...]
    repeats: int
    sets: tuple[str, ...]

    def tasks(self) -> list[Task]:
        """Return all trials."""
        made: list[Task] = [(NOISE, KINDS[seed % 3], 60, 0.0, seed) for seed in range(self.noise)]
        made += [
            (SIGNAL, kind, bags, strength, seed)
            for seed in range(self.repeats)
            for bags in self.sizes
            for kind in KINDS
            for strength in self.strengths
        ]
        return made + [(REAL, name, 0, 0.0, 0) for name in self.sets]


FULL = Design(200, (60, 120), (0.6, 1.0), 12, SETS)
QUICK = Design(12, (60,), (1.0,), 2, SETS[:1])
SMALLER = Design(1, (40,), (1.0,), 1, ())


def noise_of(kind: str, seed: int, *, bags: int = 60) -> Bags:
    """Return bags without a signal, two a patient, whose instances are all moved by a vector of the patient."""
    made = synthetic_sets(bags=bags, seed=seed, strength=0.0)[kind]
    rng = np.random.default_rng([seed, 1])
    patients = np.arange(bags) // 2
    positive = rng.permutation(bags // 2) < bags // 6
    moves = rng.normal(size=(bags // 2, made.instances.shape[1]))
    parts = [np.asarray(made[i]) + moves[patients[i]] for i in range(bags)]
    labels = positive[patients].astype(int)
    return Bags.from_list(parts, labels, groups=patients.astype(str), source=f"noise {kind}")


def cross_validated(bags: Bags, seed: int) -> tuple[Fitted, OutOfFold]:
    """Return the model of all bags, and the scores out of fold on one scale, as `midam fit` makes them."""
    settings = Settings(seed=seed)
    folds = choose_folds(bags, settings, at_once=True)
    assert folds is not None, "enough bags for folds"
    trials = Folds(fold_trials(folds, seed=seed))
    fitted = make_method("auto").fit(bags, None, settings.resolve(bags.instance_shape), folds=trials)
    assert fitted.out_of_fold is not None, "enough bags for folds"
    return fitted, fitted.out_of_fold


def _train(task: Task) -> list[Row]:
    question, kind, bags, strength, seed = task
    with warnings.catch_warnings(action="ignore"):
        if question == NOISE:
            return [_reported(noise_of(kind, seed, bags=bags), seed)[0]]
        if question == SIGNAL:
            return [_on_new(kind, bags, strength, seed)]
        return [_nested(catalog.load(kind), seed)]


def _reported(bags: Bags, seed: int) -> tuple[Row, Fitted, OutOfFold]:
    fitted, scored = cross_validated(bags, seed)
    low, high, _ = auroc_interval(scored.values, scored.scores, groups=bags.groups, folds=scored.folds)
    area = auroc(scored.values, scored.scores, folds=scored.folds)
    return {"auroc": area, "low": low, "high": high}, fitted, scored


def _on_new(kind: str, count: int, strength: float, seed: int) -> Row:
    bags, new = (
        synthetic_sets(bags=n, every=3, seed=2 * seed + at, strength=strength)[kind]
        for at, n in enumerate((count, _NEW))
    )
    row, fitted, scored = _reported(bags, seed)
    _, decision, own = target_of(bags).cross_decide(scored)
    assert decision is not None and own is not None, "bags of both classes in each fold"  # noqa: PT018
    labels, scores = new.require_labels(), predict(fitted.model, new)
    chance = decision.predict(scores)
    slopes = [calibration_line(y, p) for y, p in ((labels, chance), (scored.values, own.predicted))]
    called = scores >= decision.threshold  # type: ignore[attr-defined]
    cuts = [np.mean(scores[labels == 1] >= cut) - np.mean(scores[labels == 0] >= cut) for cut in np.unique(scores)]
    return {
        **row,
        "new": auroc(labels, scores),
        "slope": None if slopes[0] is None else slopes[0][0],
        "own_slope": None if slopes[1] is None else slopes[1][0],
        "brier": float(np.mean((chance - labels) ** 2)),
        "lost": float(max(cuts) - (called[labels == 1].mean() - called[labels == 0].mean())),
    }


def _nested(bags: Bags, seed: int) -> Row:
    """Return the AUROC of a single pass of folds, and of the whole search inside the training bags of each fold."""
    row, _, scored = _reported(bags, seed)
    outer = np.empty(len(bags))
    for fold in np.unique(scored.folds):
        inside = np.flatnonzero(scored.folds == fold)
        fitted, _ = cross_validated(bags.subset(np.flatnonzero(scored.folds != fold)), seed)
        outer[inside] = predict(fitted.model, bags.subset(inside))
    return {**row, "nested": auroc(scored.values, outer, folds=scored.folds)}


def _group(task: Task) -> Group[Task]:
    question, kind, bags, strength, seed = task
    return Group([trial_name(NAME, question=question, data=kind, bags=bags, strength=strength, repeat=seed)], [task])


def body(found: Sequence[tuple[Task, Row]]) -> Iterator[str]:
    """Yield the lines of the page."""
    noise = [row for task, row in found if task[0] == NOISE]
    if noise:
        areas = np.array([row["auroc"] for row in noise])
        held = np.array([row["low"] <= 0.5 <= row["high"] for row in noise])
        error = areas.std(ddof=1) / np.sqrt(len(areas)) if len(areas) > 1 else float("nan")
        yield from section(
            "Noise",
            "60 bags of 30 patients, without any signal. 'Holds 0.5': the share of sets whose 95% interval does.",
            table(
                ["sets", "mean AUROC (standard error)", "deviation over sets", "holds 0.5"],
                [[str(len(areas)), f"{areas.mean():.3f} ({error:.3f})", f"{areas.std():.3f}", f"{held.mean():.1%}"]],
            ),
        )
    yield from _signal([(task, row) for task, row in found if task[0] == SIGNAL])
    real = [(task[1], row) for task, row in found if task[0] == REAL]
    if real:
        gaps = np.array([row["auroc"] - row["nested"] for _, row in real])
        lines = [
            [name, f"{row['auroc']:.3f} [{row['low']:.3f}, {row['high']:.3f}]", f"{row['nested']:.3f}", f"{gap:+.3f}"]
            for (name, row), gap in zip(real, gaps)
        ]
        lines.append(["mean", "", "", _interval(gaps)])
        yield from section(
            "A single pass of folds against an outer cross-validation",
            "'Nested': the whole search of `auto` is repeated inside the training bags of each fold. Intervals: 95%, "
            "that of the mean by t over the sets.",
            table(["set", "reported", "nested", "difference"], lines),
        )


def _signal(found: Sequence[tuple[Task, Row]]) -> Iterator[str]:
    lines = []
    for size in sorted({task[2] for task, _ in found}):
        rows = [row for task, row in found if task[2] == size and row["new"] >= _RANKS]
        if not rows:
            continue
        gaps = np.array([row["auroc"] - row["new"] for row in rows])
        held = np.mean([row["low"] <= row["new"] <= row["high"] for row in rows])
        lines.append(
            [
                *(str(size), str(len(rows)), f"{np.mean([row['new'] for row in rows]):.3f}"),
                *(_interval(gaps), f"{held:.0%}", *(_quartiles(rows, key) for key in ("slope", "own_slope"))),
                *(f"{np.mean([row[key] for row in rows]):.3f}" for key in ("brier", "lost")),
            ]
        )
    if lines:
        heads = ["bags", "trials", "AUROC of new bags", "reported minus it", "interval holds it"]
        heads += ["slope, new bags", "slope, own bags", "Brier", "lost"]
        yield from section(
            "Signal",
            f"Trials in which the model ranks 1000 new bags with an AUROC of at least {_RANKS}. Slope: of the line "
            "that calibrates the probabilities, 1 if they are true, above 1 if they are too cautious: median "
            "(quartiles), of new bags, and as the report has it, of its own bags by the other folds. 'Lost': the best "
            "sensitivity plus specificity of any threshold on new bags, less that of the chosen one.",
            table(heads, lines),
        )


def _quartiles(rows: Sequence[Row], key: str) -> str:
    values = [row[key] for row in rows if row[key] is not None]
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _interval(values: Scores) -> str:
    if len(values) < 2:
        return f"{values.mean():+.3f}"
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.3f} [{values.mean() - half:+.3f}, {values.mean() + half:+.3f}]"


@as_study("whether the cross-validated answer of `midam fit` is honest", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    part, design = ("-quick", QUICK) if options.quick else ("", FULL)
    part, design = ("-smaller", SMALLER) if options.smaller else (part, design)
    tasks = design.tasks()
    with Store(options.cache, f"{NAME}{part}") as store:
        groups = [_group(task) for task in tasks]
        complete(groups, _train, store=store, options=options, section=NAME)
        found: list[tuple[Task, dict[str, Any]]] = []
        for task, group in zip(tasks, groups):
            (row,) = store.find(group.names)
            found += [] if row is None else [(task, row)]
        write_page(
            options,
            NAME,
            title="Is the cross-validated answer honest?",
            shows="With at most 500 bags, `midam fit` trains on all, and reports scores of models that have not seen a "
            "bag. What are these worth, on noise, on new bags, and beside an outer cross-validation?",
            seeds="0 upwards, of bags, folds and weights",
            seconds=store.wall_time(),
            store=store,
            body=body(found),
        )
