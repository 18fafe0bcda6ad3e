"""`python -m studies witness-search`: one witness among hundreds, the cost of its search, and real sets.

**Question.** The bags are those of `needle`: one nine among 500 or 1000 distorted digits makes a bag positive, 200
training bags. There the ways that sample instances are at chance. What does the method `witness-search` rank?

**Rules of decision**, fixed before the first trial.

1. The goal is reached if the mean test AUROC over ten repeats is at least 0.90 with one witness in 500, and 0.80 with
   one in 1000.
2. The goal of cost is reached if a fit to 10^6 instances on disk, of 200 bags, takes at most 10 minutes of one core and
   2 GB of memory.
3. It is a good start for MIDAM if training from its weights raises the test AUROC over that of the start: the 95%
   interval of the paired difference lies above 0.
4. `auto` tries the search last, where bags have 100 instances on average and no other candidate has an inner AUROC of
   0.9. This stays if, in bags with few witnesses, the 95% interval of the gain in test AUROC is above 0.05 over all
   repeats, if no other set loses more than 0.01 in the mean, and if labels that mean nothing are ranked at chance, as
   their interval says. Three repeats of each set.
5. Bags with more witnesses, wrong labels (five repeats each) and real sets (five folds) decide nothing here.

**Tuning.** The kernel, C, the folds and the rounds were chosen on repeats 100 to 102, whose test images no repeat here
is judged on.
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from midam.compare.plan import single_threaded
from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.functional.poolings import bounded_logit
from midam.methods.auto.candidates import SEARCH, usual_candidates
from midam.methods.auto.search import SearchResult, mix
from midam.methods.store import Row
from midam.methods.witness_search import WitnessSearch
from midam.nn.encoders.mlp import GaussianKernel
from midam.nn.scorer import BagScorer, scorers_of
from midam.registry import ENCODERS
from midam.settings import Settings
from midam.train.side import Trial
from midam.train.trainer import Trainer
from studies.engine import PACKED, Store, complete, take_published, trial_name
from studies.options import OUT, StudyOptions
from studies.page import section, table
from studies.regime.run import run_design
from studies.regime.tracked_sets import Digits, Split
from studies.registry import as_study
from studies.sets import catalog
from studies.split_statistics import mean_interval, paired_interval
from studies.tabular.defaults_trials import KERNEL, LINEAR, TREES, Fit, nested_scores, outer_folds, trials_of

NAME, _KERNEL = "witness-search", "gaussian-kernel"
_GOALS = {500: 0.90, 1000: 0.80}
_MOST_SECONDS, _MOST_BYTES = 600, 2e9
_GAIN, _LOSS = 0.05, 0.01
_FEATURES, _NOTHING = 64, "tissues: labels that mean nothing"
_STEPS, _RATES = 1000, (0.0001, 0.001)
_REAL_FOLDS = 5
REAL = ("musk1", "musk2", "elephant", "fox", "tiger", "mutagenesis1", "newsgroups1", "colon_nuclei")


@dataclass(frozen=True)
class Tissues:
    """Slides whose patches come from seven tissues, in shares that differ, and with a shift of the slide.

    A positive slide holds a share `rare` of an eighth tissue, or more of the first one, by its `weight` in a Dirichlet
    distribution in which the others have 1. Without both, the labels mean nothing.
    """

    rare: float = 0.0
    weight: float = 1.0
    size: int = 1000
    train: int = 96  # slides, half of them positive
    score: int = 200

    def load(self, repeat: int, folder: Path) -> Split:  # noqa: ARG002
        """Draw the slides of a repeat."""
        rng, total, count = np.random.default_rng([repeat, self.size]), self.train + self.score, 7
        centers, parts = rng.normal(size=(count + 1, _FEATURES)), []
        for number in range(total):
            positive = number % 2
            shares = rng.dirichlet([self.weight if positive else 1.0] + [1.0] * (count - 1))
            rare = self.rare * positive
            tissue = rng.choice(count + 1, self.size, p=[*shares * (1 - rare), rare])
            noise = 1.5 * rng.normal(size=(self.size, _FEATURES)) + 0.5 * rng.normal(size=_FEATURES)
            parts.append((centers[tissue] + noise).astype(np.float32))
        bags = Bags.from_list(parts, np.arange(total) % 2, source="tissues")
        return Split(bags, np.arange(self.train), np.arange(self.train, total))

    @property
    def described(self) -> str:
        """What makes a slide positive."""
        if self.rare:
            return f"tissues: {self.rare:.1%} of one more"
        return "tissues: more of one" if self.weight != 1 else _NOTHING


@dataclass(frozen=True)
class Design:
    """What is run."""

    needles: tuple[tuple[Digits, float], ...]  # bags, and the share of training bags with the wrong label
    started: Digits  # on which MIDAM starts from the search
    large: Digits | None  # whose cost is measured
    real: tuple[str, ...] = ()
    candidate: tuple[Digits | Tissues, ...] = ()  # on which `auto` tries the search, or not
    repeats: tuple[int, ...] = tuple(range(10))
    steps: int = _STEPS

    def repeats_of(self, bags: Digits, wrong: float) -> tuple[int, ...]:
        """Return the repeats: all where a goal decides, else the first five."""
        return self.repeats if _goal(bags, wrong) is not None else self.repeats[:5]


def _goal(bags: Digits, wrong: float) -> float | None:
    """Return the mean AUROC that is asked for, if one is."""
    return _GOALS.get(bags.size) if round(bags.share * bags.size) == 1 and not wrong else None


def _digits(size: int, witnesses: int) -> Digits:
    return Digits(size, witnesses / size, train=200, distortion=0.25)


FULL = Design(
    (
        *((_digits(size, 1), 0.0) for size in (500, 1000)),
        (_digits(500, 1), 0.1),
        *((_digits(500, witnesses), 0.0) for witnesses in (5, 25)),
    ),
    _digits(500, 1),
    replace(_digits(5000, 1), score=2),
    REAL,
    (*(_digits(500, count) for count in (1, 5)), Tissues(0.005), Tissues(0.02), Tissues(weight=3.0), Tissues()),
)
QUICK = replace(FULL, needles=FULL.needles[:1], large=None, real=(), candidate=(), repeats=(0, 1))
_SMALL = Digits(20, 0.05, train=32, score=16, distortion=0.25)
SMALLER = Design(
    ((_SMALL, 0.0), (_SMALL, 0.1)),
    _SMALL,
    replace(_SMALL, score=2),
    candidate=(replace(_SMALL, size=100), *(Tissues(rare, size=100, train=24, score=16) for rare in (0.05, 0.0))),
    repeats=(0, 1),
    steps=4,
)


@dataclass(frozen=True)
class _Work:
    """One trial."""

    what: str  # needle, start, cost, auto or a real set
    bags: Digits | Tissues | None = None
    wrong: float = 0.0
    repeat: int = 0
    lr: float = 0.0
    steps: int = 0

    @property
    def name(self) -> Row:
        """What the trial is known by."""
        fields: dict[str, Any] = {"what": self.what, "repeat": self.repeat}
        if self.bags is not None:
            distortion = {"distortion": self.bags.distortion} if isinstance(self.bags, Digits) else {}
            fields |= {"data": str(self.bags), **distortion, "wrong": self.wrong}
        return trial_name(NAME, **fields, **({"lr": self.lr, "steps": self.steps} if self.steps else {}))


@as_study("the search for one witness among hundreds of instances: AUROC, cost, real sets", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:  # noqa: ARG001
        works = [
            *(_Work("needle", *needle, repeat) for needle in design.needles for repeat in design.repeats_of(*needle)),
            *(_Work("cost", bags) for bags in (design.large,) if bags is not None),
            *(_Work(name, None, 0.0, fold) for name in design.real for fold in range(_REAL_FOLDS)),
            *(_Work("auto", bags, 0.0, repeat) for repeat in design.repeats[:3] for bags in design.candidate),
            *(_Work("start", design.started, 0.0, r, lr, design.steps) for r in design.repeats[:3] for lr in _RATES),
        ]
        complete([Group([work.name], [work]) for work in works], compute, store=store, options=options, section=NAME)
        rows = {work: row for work, row in zip(works, store.find([work.name for work in works])) if row is not None}
        return [
            *_needle_lines(design, rows),
            *_cost_lines(rows),
            *_start_lines(rows),
            *_auto_lines(design, rows),
            *_real_lines(design, rows, options),
        ]

    shows = (
        "One nine among 500 or 1000 distorted digits makes a bag positive, and nothing says which: what does the "
        "method `witness-search` rank, at what cost, and how does it do elsewhere?"
    )
    run_design(options, NAME, (FULL, QUICK, SMALLER), study, title="The witness search", shows=shows)


def compute(work: _Work) -> list[Row]:
    """Compute one trial."""
    with single_threaded():
        if work.what == "cost":
            return [_cost(work)]
        if work.bags is None:
            bags = catalog.load(work.what)
            fold = outer_folds(bags, 0)[work.repeat]
            started = time.process_time()
            scores = WitnessSearch().score(bags, Trial(fold.train, fold.score, 0))
            area = auroc(bags.require_labels()[fold.score], scores)
            return [{"auroc": area, "seconds": time.process_time() - started}]
        split = work.bags.load(work.repeat, Path())
        if work.what == "auto":
            return [_auto(split, work.repeat)]
        train, test = _mislabeled(split, work), split.bags.subset(split.score)
        started = time.process_time()
        model = WitnessSearch().scorer(train, seed=work.repeat)
        row = {"auroc": _area(model, test), "hits": _hits(model, split), "seconds": time.process_time() - started}
        return [row if work.what == "needle" else row | {"after": _area(_trained(model, train, work), test)}]


def _mislabeled(split: Split, work: _Work) -> Bags:
    """Return the training bags, of which a share of each class has the label of the other."""
    bags = split.bags.subset(split.train)
    labels, random = bags.require_labels().copy(), np.random.default_rng(work.repeat)
    classes = [np.flatnonzero(labels == label) for label in (0, 1)]
    for rows in classes:
        wrong = random.permutation(rows)[: round(work.wrong * len(rows))]
        labels[wrong] = 1 - labels[wrong]
    return bags.replace(labels=labels)


def _area(model: Any, bags: Bags) -> float:
    return auroc(bags.require_labels(), predict(model, bags))


def _hits(model: BagScorer, split: Split) -> float:
    """Return the share of positive test bags whose highest instance is a witness."""
    assert split.witness is not None, "bags of digits"
    bags, hits = split.bags, list[bool]()
    for number in split.score[bags.require_labels()[split.score] == 1]:
        with torch.no_grad():
            z, _ = model.instances(torch.from_numpy(np.asarray(bags[int(number)], dtype=np.float32)))
        hits.append(bool(split.witness[bags.starts[number] + int(z.argmax())]))
    return float(np.mean(hits))


def _kernel_encoder(in_features: int, count: int) -> GaussianKernel:
    return GaussianKernel(in_features, count).float()


def _trained(start: BagScorer, bags: Bags, work: _Work) -> Any:
    """Return MIDAM, trained from the weights of the search; its centers stay."""
    if _KERNEL not in ENCODERS.names():
        ENCODERS.add(_KERNEL, _kernel_encoder)
    values = {
        "encoder": _KERNEL,
        "encoder_args": {"in_features": 64, "count": cast(GaussianKernel, start.encoder).out_features},
        "pooling": "smoothed-max",
        "scaling": "linear",
        "clip": 3.0,
        "members": 1,
        "optimizer": "adam",
        "lr": work.lr,
        "num_instances": 16,
        "center_start": 0.5,
        "epochs": max(1, work.steps // (len(bags) // 16)),
        "accelerator": "cpu",
        "threads": 1,
        "seed": work.repeat,
    }
    trainer = Trainer(Settings.from_flat(values), bags)
    (scorer,) = scorers_of(trainer.model)
    state = {name.replace("encoder.", "encoder.module."): x.float() for name, x in start.state_dict().items()}
    state.pop("pooling.log_tau", None)
    scorer.load_state_dict(state)
    return trainer.fit().model


_CHILD = """
import json, resource, sys, time
import numpy as np
from midam.compare.plan import single_threaded
from midam.data.bags import Bags
from midam.methods.witness_search import WitnessSearch
path, bags, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
x = np.load(path, mmap_mode="r")
at = np.arange(bags)
data = Bags(x, starts=at * size, sizes=np.full(bags, size), labels=at % 2, source="large")
started = time.perf_counter(), time.process_time()
with single_threaded():
    WitnessSearch().scorer(data, seed=0)
print(json.dumps({"seconds": time.process_time() - started[1], "clock": time.perf_counter() - started[0],
                  "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "instances": len(x)}))
"""


def _cost(work: _Work) -> Row:
    """Return time and memory of a fit in a process of its own, to instances on disk."""
    assert work.bags is not None, "bags of digits"
    split = work.bags.load(work.repeat, Path())
    with tempfile.TemporaryDirectory() as folder:
        path, count = Path(folder) / "x.npy", work.bags.train * work.bags.size
        np.save(path, np.asarray(split.bags.instances[:count]))
        del split
        words = [sys.executable, "-c", _CHILD, str(path), str(work.bags.train), str(work.bags.size)]
        lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    row: Row = json.loads(lines.splitlines()[-1])
    return row


def _auto(split: Split, seed: int) -> Row:
    """Return the test AUROC of `auto` with the search and without it, and the CPU seconds of both."""
    bags, fold = split.bags, Trial(split.train, split.score, seed)
    parts, train = trials_of(bags, fold), bags.subset(split.train)
    rows, test, seconds, found = list[Row](), dict[str, Any](), [0.0], dict[str, float]()
    for candidate in usual_candidates(bags.instance_shape, len(train), train.num_instances):
        started = time.process_time()
        if candidate.name == SEARCH:
            result = mix(bags, parts[:-1], rows)
            areas = [row.auroc or 0.0 for row in result.tried]
            found = {"inner": max(areas), "without": _mixed(result, test, bags, fold)}
            seconds.append(0.0)
            if max(areas) >= candidate.enough:
                break
        with warnings.catch_warnings(action="ignore"):
            (scores,) = nested_scores(candidate, bags, [parts])
        rows.append({"method": candidate.name, "scores": scores[:-1], "seconds": 0.0, "note": None})
        test[candidate.name] = np.asarray(scores[-1])
        seconds[-1] += time.process_time() - started
    result = mix(bags, parts[:-1], rows)
    weight = dict(zip(result.taken, result.mixture.weights.tolist())).get(SEARCH, 0.0)
    return {**found, "auroc": _mixed(result, test, bags, fold), "weight": weight, "seconds": seconds}


def _mixed(result: SearchResult, test: Mapping[str, Any], bags: Bags, fold: Trial) -> float:
    logits = [bounded_logit(torch.from_numpy(test[method])).numpy() for method in result.taken]
    return auroc(bags.require_labels()[fold.score], result.mixture.scores(logits))


Rows = Mapping[_Work, Row]


def _column(rows: Rows, key: str, **fields: Any) -> list[float]:
    return [row[key] for work, row in rows.items() if all(getattr(work, name) == x for name, x in fields.items())]


def _needle_lines(design: Design, rows: Rows) -> list[str]:
    lines, verdicts = [], []
    for bags, wrong in design.needles:
        areas, hits, seconds = (
            _column(rows, key, what="needle", bags=bags, wrong=wrong) for key in ("auroc", "hits", "seconds")
        )
        witnesses = round(bags.share * bags.size)
        lines.append(
            [
                f"{witnesses} of {bags.size}{f', {wrong:.0%} of the labels wrong' if wrong else ''}",
                str(mean_interval(areas)),
                f"{min(areas):.3f}",
                f"{np.mean(hits):.0%}",
                f"{np.mean(seconds):.0f} s",
            ]
        )
        goal = _goal(bags, wrong)
        if goal is not None:
            word = "reached" if np.mean(areas) >= goal else "not reached"
            verdicts.append(f"1 of {bags.size}: mean {np.mean(areas):.3f}, goal {goal:.2f} {word}")
    head = ["witnesses", "test AUROC [95%]", "worst", "top instance is a witness", "processor time"]
    return section("One witness among hundreds", f"**Rule 1.** {'; '.join(verdicts)}.", table(head, lines))


def _cost_lines(rows: Rows) -> list[str]:
    parts = []
    for row in (row for work, row in rows.items() if work.what == "cost"):
        word = "reached" if row["seconds"] <= _MOST_SECONDS and row["bytes"] <= _MOST_BYTES else "not reached"
        parts.append(
            f"**Rule 2.** {row['instances']} instances of 64 features on disk: {row['seconds']:.0f} s of one core "
            f"({row['clock']:.0f} s by the clock, next to other work), {row['bytes'] / 1e9:.2f} GB at most: "
            f"the goal is {word}."
        )
    return section("Cost", *parts) if parts else []


def _start_lines(rows: Rows) -> list[str]:
    lines, words = [], []
    for lr in _RATES:
        before, after = (np.array(_column(rows, key, what="start", lr=lr)) for key in ("auroc", "after"))
        gain = paired_interval(after, before)
        lines.append([f"{lr:g}", f"{before.mean():.3f}", f"{after.mean():.3f}", f"{gain:+}"])
        words.append(f"at rate {lr:g} training {'raises' if gain.low > 0 else 'does not raise'} it")
    return section(
        "As a start for MIDAM",
        f"**Rule 3.** {'; '.join(words)}.",
        "MIDAM with smoothed-max pools the similarities to the centers that the search has found; its weights begin as "
        "those of the search, and the centers stay. One witness in 500, three repeats.",
        table(["rate", "AUROC of the start", "after training", "difference"], lines),
    )


def _auto_lines(design: Design, rows: Rows) -> list[str]:
    if not design.candidate:
        return []
    lines, gains, others, chance = [], list[float](), list[float](), True
    for bags in design.candidate:
        found = {key: _column(rows, key, what="auto", bags=bags) for key in ("auroc", "without", "weight", "seconds")}
        before, after = (np.array(found[key]) for key in ("without", "auroc"))
        usual, search = np.mean(found["seconds"], axis=0)
        few = isinstance(bags, Digits) or bags.rare > 0
        if few:
            gains += list(after - before)
        else:
            others.append(float((after - before).mean()))
        name = f"digits: {round(bags.share * bags.size)} of {bags.size}" if isinstance(bags, Digits) else bags.described
        if name == _NOTHING:
            interval = mean_interval(after.tolist())
            chance = interval.low <= 0.5 <= interval.high
        lines.append(
            [
                name,
                f"{before.mean():.3f}",
                str(mean_interval(after.tolist())),
                f"{paired_interval(after, before):+}",
                f"{np.mean(found['weight']):.2f}",
                f"{usual:.0f} s",
                f"{search:.0f} s",
            ]
        )
    gain, worst = mean_interval(gains), min(others)
    stays = gain.low > _GAIN and worst >= -_LOSS and chance
    return section(
        "In `auto`",
        f"**Rule 4.** Few witnesses: {gain:+}; the worst mean of another set is {worst:+.3f}; labels that mean nothing "
        f"are {'' if chance else 'not '}ranked at chance: the search {'stays' if stays else 'does not stay'}.",
        "Test AUROC of the mixture of `auto`, whose inner folds choose, without the search and with it; the mean "
        "weight of the search; and the processor time of the other candidates, and of the search. Slides have 1000 "
        "patches of 64 features; 96 are trained on.",
        table(["bags", "without", "with [95%]", "difference", "weight", "others", "search"], lines),
    )


def _real_lines(design: Design, rows: Rows, options: StudyOptions) -> list[str]:
    if not design.real:
        return []
    take_published(OUT / "trials" / f"defaults{PACKED}", options.cache)
    lines = []
    with Store(options.cache, "defaults") as store:
        for name in design.real:
            areas, seconds = (_column(rows, key, what=name) for key in ("auroc", "seconds"))
            others = [f"{np.mean(_beside(store, name, other)):.3f}" for other in _BESIDE]
            lines.append([name, f"{np.mean(areas):.3f}", *others, f"{np.mean(seconds):.1f} s"])
    head = ["set", "`witness-search`", *(f"`{name}`" for name in _BESIDE), "processor time a fold"]
    text = "Test AUROC alone, over the first five folds of [the defaults](defaults.md), next to methods of `auto`."
    return section("Real sets", text, table(head, lines))


_BESIDE = (TREES, LINEAR, KERNEL)


def _beside(store: Store, name: str, method: str) -> list[float]:
    """Return the AUROC of a published method for the first folds of a set."""
    bags = catalog.load(name)
    (row,) = store.find(Fit(name, bags, method, None, 0, nested=True).group().names)
    assert row is not None, "published trials of the defaults"
    labels, folds = bags.require_labels(), outer_folds(bags, 0)[:_REAL_FOLDS]
    return [auroc(labels[fold.score], np.mean(own[-1], axis=0)) for fold, own in zip(folds, row["scores"])]
