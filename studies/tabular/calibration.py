"""`python -m studies calibration`: probabilities and thresholds from few bags, by scores of inner folds.

**Question.** With fewer than 20 positive validation bags, `midam fit` chooses threshold and calibration on the training
bags too, scored by the models of inner folds. Are the scores of different models better brought to one scale first?

**Rule of decision**, fixed before the first run. One scale stays if, over the trials in which `auto` ranks new bags
with an AUROC of at least 0.65, the Brier score of new bags is lower, with a 95% t interval of the paired difference
below 0; and if on noise the pooled AUROC is within 0.02 of the mean AUROC inside the folds. (The way itself was found
on other bags of these kinds, with 20 features.)

**Trials.** Three kinds of bags (signal in all instances, in few, or in sparse ones) at three strengths of the signal, 0
among them, in three sizes. Each is split as `midam fit` does, six parts to train on and two for validation. 1000 new
bags judge. Nothing is tuned.
"""

import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.evaluate.calibrate import BinaryDecision, calibration_line, one_scale
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.functional.poolings import bounded_logit
from midam.methods.auto.candidates import usual_candidates
from midam.methods.auto.search import Mixture, fit_mixture, prior_weights, search
from midam.methods.inner_folds import inner_trials
from midam.methods.store import Row
from midam.nn.scorer import BagEnsemble
from midam.targets import OutOfFold
from studies.engine import Store, complete, trial_name
from studies.options import StudyOptions
from studies.page import section, table, write_page
from studies.registry import as_study
from studies.synthetic import synthetic_sets

NAME = "calibration"
WAYS = ("as they are", "one scale")
KINDS = ("shift", "witness", "sparse")
_SIGNAL, _NOISE = 0.65, 0.0
_RULE = "sensitivity=0.9"
_NEW = 1000

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """Sizes (bags in all, and one of how many is positive), strengths of the signal, and seeds."""

    sizes: tuple[tuple[int, int], ...]
    strengths: tuple[float, ...]
    repeats: tuple[int, ...]


FULL = Design(((60, 3), (60, 5), (120, 5)), (0.0, 0.5, 1.0), tuple(range(6)))
QUICK = Design(((60, 3),), (0.0, 1.0), (0, 1))
SMALLER = Design(((40, 4),), (1.0,), (0,))
_SHOWS = (
    "What `midam fit` makes of few bags. Are its probabilities true and its thresholds good on 1000 new bags, if the "
    "scores of the models of inner folds are pooled as they are, or brought to one scale first?"
)

Task = tuple[str, int, int, float, int]


def _train(task: Task) -> list[Row]:
    """Return a row for each way: of `auto` and each of its methods, what it makes of new bags."""
    kind, count, every, strength, seed = task
    parts = [
        synthetic_sets(bags=bags, every=every, seed=3 * seed + at, strength=strength)[kind]
        for at, bags in enumerate((6 * count // 10, 2 * count // 10, _NEW))
    ]
    with warnings.catch_warnings(action="ignore"):
        return _judge(parts[0], parts[1], parts[2], seed)


def _judge(train: Bags, val: Bags, new: Bags, seed: int) -> list[Row]:
    candidates = usual_candidates(train.instance_shape, len(train))
    trials = inner_trials(train, np.arange(len(train)), seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "tried.jsonl"
        result = search(candidates, train, seed=seed, journal=journal)
        rows = {row["method"]: row for row in map(json.loads, journal.read_text().splitlines())}
    epochs = {tried.method: tried.epochs for tried in result.tried}
    places = {name: row["after"].index(epochs[name]) if epochs[name] else 0 for name, row in rows.items()}
    held = {name: _logits(np.concatenate(row["scores"], axis=1)[[places[name]]]) for name, row in rows.items()}
    index = np.concatenate([trial.score for trial in trials])
    labels, folds = train.require_labels()[index], np.repeat(np.arange(len(trials)), [len(t.score) for t in trials])
    assert result.out_of_fold is not None, "enough bags for folds"
    pooled = {"auto": {WAYS[0]: _own_lines(held, labels, folds), WAYS[1]: result.out_of_fold.scores}}
    pooled |= {name: dict.fromkeys(WAYS, scipy.special.expit(x).mean(axis=0)) for name, x in held.items()}
    scored: dict[str, list[list[Scores]]] = {}
    for candidate in candidates:
        scorers = candidate.fit(train, seed=seed, epochs=epochs[candidate.name])
        scored[candidate.name] = [[predict(BagEnsemble([one]), bags) for one in scorers] for bags in (val, new)]
    final = {name: [np.mean(part, axis=0) for part in found] for name, found in scored.items()}
    taken = [[_logits(np.array(scored[name][at])) for name in result.taken] for at in (0, 1)]
    final["auto"] = [result.mixture.scores(part) for part in taken]
    made: list[Row] = []
    for way in WAYS:
        row: Row = {"way": way}
        for name, (of_val, of_new) in final.items():
            more = OutOfFold(labels, pooled[name][way], folds)
            row[name] = _figures((val.require_labels(), of_val), more, (new.require_labels(), of_new), way)
        made.append(row)
    return made


def _logits(scores: Any) -> Scores:
    return np.asarray(bounded_logit(torch.from_numpy(np.asarray(scores, dtype=np.float64))))


def _own_lines(held: dict[str, Scores], labels: NDArray[np.int64], folds: NDArray[np.int64]) -> Scores:
    """Return scores by mixtures of which weights and lines, for each fold, are those of the other folds."""
    made, prior = np.empty(len(labels)), prior_weights(list(held))
    for fold in np.unique(folds):
        inside, others = folds == fold, [other for other in np.unique(folds) if other != fold]
        areas = [
            float(np.mean([auroc(labels[folds == at], x[:, folds == at].mean(axis=0)) for at in others]))
            for x in held.values()
        ]
        mixture: Mixture = fit_mixture([x[:, ~inside] for x in held.values()], areas, labels[~inside], None, prior)
        made[inside] = mixture.scores([x[:, inside] for x in held.values()])
    return made


Scored = tuple[NDArray[np.int64], Scores]  # labels and scores of bags


def _figures(validation: Scored, more: OutOfFold, judged: Scored, way: str) -> dict[str, float | None]:
    """Return what the decision on validation bags and on scores of folds makes of new bags."""
    (val, of_val), (new, of_new) = validation, judged
    values, scores = np.append(val, more.values), np.append(of_val, more.scores)
    if way == WAYS[1]:
        model = int(more.folds.max()) + 1
        scores = one_scale(scores, np.append(np.full(len(val), model), more.folds), like=model)
    decision, promised = (BinaryDecision.fit(scores, values, rule=rule) for rule in ("youden", _RULE))
    inside = [auroc(more.values[more.folds == at], more.scores[more.folds == at]) for at in np.unique(more.folds)]
    chance, called = decision.predict(of_new), decision.call(of_new)
    line = calibration_line(new, chance) if decision.calibrator.ranks else None
    cuts = [np.mean(of_new[new == 1] >= cut) - np.mean(of_new[new == 0] >= cut) for cut in np.unique(of_new)]
    return {
        "auroc": auroc(new, of_new),
        "inside": float(np.mean(inside)),
        "pooled": auroc(more.values, scores[len(val) :]),
        "ranks": float(decision.calibrator.ranks),
        "slope": None if line is None else line[0],
        "large": float(chance.mean() - new.mean()),
        "brier": float(np.mean((chance - new) ** 2)),
        "lost": float(max(cuts) - (called[new == 1].mean() - called[new == 0].mean())),
        "sensitivity": float(promised.call(of_new)[new == 1].mean()),
    }


def _group(task: Task) -> Group[Task]:
    kind, bags, every, strength, seed = task
    known = {"data": kind, "bags": bags, "every": every, "strength": strength, "repeat": seed}
    return Group([trial_name(NAME, **known, way=way) for way in WAYS], [task])


Pair = tuple[dict[str, Any], dict[str, Any]]  # figures of a method in a trial, one for each way


def body(found: Sequence[tuple[str, bool, Pair]]) -> Iterator[str]:
    """Yield the lines of the page; `found` holds method, whether the bags are noise, and figures of both ways."""
    methods = list(dict.fromkeys(name for name, _, _ in found))
    lines, losses = [], {}
    for name in methods:
        pairs = [pair for of, noise, pair in found if of == name and not noise and pair[0]["auroc"] >= _SIGNAL]
        for way, row in zip(WAYS, zip(*pairs)):
            slopes = [figures["slope"] for figures in row if figures["slope"] is not None]
            ends = "-" if not slopes else " to ".join(f"{end:.2f}" for end in np.quantile(slopes, [0.25, 0.75]))
            lines.append(
                [
                    *(name, way, str(len(row)), *(_mean(row, key, 3) for key in ("inside", "pooled"))),
                    *(f"{np.median(slopes):.2f} ({ends})" if slopes else "-", _mean(row, "brier", 4)),
                    *(_mean(row, "lost", 3), _mean(row, "sensitivity", 2)),
                    str(sum(figures["ranks"] == 0 for figures in row)),
                ]
            )
        losses[name] = np.array([pair[1]["brier"] - pair[0]["brier"] for pair in pairs])
    yield from section(
        "Where there is a signal",
        f"Trials in which the model ranks new bags with an AUROC of at least {_SIGNAL}. 'Inside', 'pooled': AUROC of "
        "the scores of inner folds, the mean over folds, and all together. Slope: of the line that calibrates the "
        "probabilities of new bags, 1 if they are true, above 1 if they are too cautious: median (quartiles). 'Lost': "
        "the best sensitivity plus specificity of any threshold, less that of the chosen one. Sensitivity: on new "
        "bags, by the threshold for 0.9. 'Chance': trials in which the scores passed for no better than chance.",
        table(
            ["method", "scores", "trials", "inside", "pooled", "slope", "Brier", "lost", "sensitivity", "chance"], lines
        ),
    )
    yield from section(
        "Differences of the Brier score",
        "One scale minus as they are, paired by trial, with 95% t intervals; below 0: one scale is better.",
        table(["method", "trials", "mean [95%]"], [[n, str(len(x)), _interval(x)] for n, x in losses.items()]),
    )
    noise = [(name, [pair for of, is_noise, pair in found if of == name and is_noise]) for name in methods]
    yield from section(
        "Noise",
        "Bags without any signal: the pooled AUROC must be that inside the folds.",
        table(
            ["method", "trials", "inside", *(f"pooled, {way}" for way in WAYS)],
            [
                [n, str(len(of)), _mean([p[0] for p in of], "inside", 3)]
                + [_mean([p[at] for p in of], "pooled", 3) for at in (0, 1)]
                for n, of in noise
                if of
            ],
        ),
    )


def _mean(rows: Sequence[dict[str, Any]], key: str, digits: int) -> str:
    return f"{np.mean([row[key] for row in rows]):.{digits}f}"


def _interval(values: Scores) -> str:
    if len(values) < 2:
        return "-"
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.4f} [{values.mean() - half:+.4f}, {values.mean() + half:+.4f}]"


@as_study("probabilities and thresholds of few bags, by scores of inner folds on one scale", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    part, design = ("-quick", QUICK) if options.quick else ("", FULL)
    part, design = ("-smaller", SMALLER) if options.smaller else (part, design)
    tasks: list[Task] = [
        (kind, bags, every, strength, seed)
        for seed in design.repeats
        for bags, every in design.sizes
        for kind in KINDS
        for strength in design.strengths
    ]
    with Store(options.cache, f"{NAME}{part}") as store:
        groups = [_group(task) for task in tasks]
        complete(groups, _train, store=store, options=options, section=NAME)
        found: list[tuple[str, bool, Pair]] = []
        for task, group in zip(tasks, groups):
            first, second = store.find(group.names)
            if first is None or second is None:
                continue
            names = [name for name, value in first.items() if isinstance(value, dict)]
            found += [(name, task[3] == _NOISE, (first[name], second[name])) for name in sorted(names)]
        write_page(
            options,
            NAME,
            title="Probabilities from few bags",
            shows=_SHOWS,
            seeds=f"{design.repeats[0]} to {design.repeats[-1]}, of bags, folds and weights",
            seconds=store.wall_time(),
            store=store,
            body=body(found),
        )
