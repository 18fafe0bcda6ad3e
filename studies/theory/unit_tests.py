"""`python -m studies unit-tests`: which methods keep the MIL assumption, by three tests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.methods.names import method_names, method_settings
from midam.methods.store import Row
from midam.report.figures import new_figure
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.drawing import save_figure
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.page import figure_path, table, write_page
from studies.protocol import number, part_aurocs
from studies.registry import as_study
from studies.theory.unit_test_bags import TESTS, unit_test_bags

NAME = "unit-tests"
PASS = 0.9
PARTS = ("train", "val", "test")
ESTIMATORS = ("exact", "minibatch", "vrsp", "exact-point")
_SETTINGS = {
    "lr": 0.003,
    "optimizer": "adam",
    "hidden": [64, 64],
    "num_instances": 8,
    "members": 1,
    "scaling": "linear",
    "clip": 10.0,
    "accelerator": "cpu",
}
_ATTENTION = ("attention", "gated-attention", "embedding-attention")
_SHOWS = (
    "Three tests of the MIL assumption (Raff and Holt, NeurIPS 2023): a bag is positive because of what it holds. A "
    "model that takes the absence of something for a sign trains well, and is wrong as soon as that something appears "
    "in the test bags. A method passes a test when the AUROC of training and of test bags, each the mean over seeds, "
    f"is at least {PASS}. All poolings with all estimators that they admit, trained for the AUC; attention also with "
    "cross-entropy."
)
_NEAR = 0.01
_BAGS = [
    "A bag holds 1 to 10 instances of background noise, and, in the three tests:",
    "",
    "1. A positive bag also holds 1 to 3 instances of one of two concepts. The *poison*, an instance far from all "
    "others, lies in each negative training bag and in each positive test bag: a model that calls bags with poison "
    "negative has learned the wrong thing.",
    "2. A positive bag holds pairs of two concepts, a negative one a single instance of one of them. Poison lies in "
    "each negative and in 10% of the positive training bags, and in each positive test bag.",
    "3. As in the second without poison; a negative test bag holds 35 to 39 instances of its one concept, where "
    "training bags had one: counting is not understanding.",
]


@dataclass(frozen=True)
class MilPlan:
    """Methods, seeds and sizes of the tests."""

    methods: tuple[str, ...]  # Names of methods
    seeds: tuple[int, ...]  # Each with other bags, weights and samples
    bags: int  # Bags of each class, in training and in each other part
    epochs: int  # Epochs

    def config(self, method: str) -> Settings:
        """Return the settings, the same for all methods.

        They were chosen with max and smoothed-max in test 1, with other seeds, by the AUROC of training bags and of new
        bags from the same distribution.
        """
        return Settings.from_flat({**_SETTINGS, **method_settings(method), "epochs": self.epochs})


@dataclass(frozen=True)
class Outcome:
    """Result of a method in a test."""

    # AUROC, mean over seeds; NaN where a training diverged
    train: float
    val: float
    test: float
    worst: float  # Lowest test AUROC of a seed

    @property
    def passed(self) -> bool:
        """Return whether training and test AUROC reach the bound."""
        return self.train >= PASS and self.test >= PASS


@dataclass(frozen=True)
class _Training:
    test: int
    method: str
    plan: MilPlan

    def group(self) -> Group["_Training"]:
        settings = f"{settings_hash(self.plan.config(self.method))}-{self.plan.bags}"
        named = trial_name("unit-tests", method=self.method, test_number=self.test, settings=settings)
        return Group([{**named, "seed": seed} for seed in self.plan.seeds], [self])


Outcomes = dict[tuple[str, int], Outcome]


def plan(options: StudyOptions) -> MilPlan:
    """Return the plan."""
    if options.smaller:
        return MilPlan(("dam-smx", "dam-max", "midam-att"), (0, 1), bags=20, epochs=3)
    if options.quick:
        return MilPlan(_methods(), (0, 1), bags=500, epochs=30)
    return MilPlan(_methods(), (0, 1, 2, 3, 4), bags=500, epochs=30)


@as_study("three tests of the MIL assumption for every pooling and estimator", store="unit-tests")
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    wanted = plan(options)
    trainings = [_Training(test, method, wanted) for test in TESTS for method in wanted.methods]
    with Store(options.cache, NAME) as store:
        complete([own.group() for own in trainings], _train, store=store, options=options, section=NAME)
        outcomes = {(own.method, own.test): _outcome(own, store) for own in trainings}
        path = figure_path(options, NAME)
        _draw(path, wanted, outcomes)
        write_page(
            options,
            NAME,
            title="Tests of the MIL assumption",
            shows=_SHOWS,
            seeds=f"{wanted.seeds[0]} to {wanted.seeds[-1]}, each a draw of bags, weights and samples",
            seconds=store.wall_time(),
            store=store,
            body=_body(wanted, outcomes, path),
        )


def _train(training: _Training) -> list[Row]:
    """Train a method on a test for all seeds; returns a row for each seed."""
    plan = training.plan
    bags = unit_test_bags(training.test, seeds=plan.seeds, bags=plan.bags)
    labels = bags.require_labels()
    parts = [_parts(bags, seed) for seed in plan.seeds]
    trials = [Trial(own[0], np.concatenate(own), seed) for seed, own in zip(plan.seeds, parts)]
    rows = []
    for own, result in zip(parts, train_trials(plan.config(training.method), bags, trials)):
        areas = zip(PARTS, part_aurocs(labels, own, result.scores))
        rows.append({"seconds": result.seconds, **{part: number(float(values[-1])) for part, values in areas}})
    return rows


def _methods() -> tuple[str, ...]:
    names = method_names()
    of_auc = [name for name in names if method_settings(name)["objective"] == "minmax-auc"]
    of_ce = [name for name in names if name not in of_auc and method_settings(name)["pooling"] in _ATTENTION]
    return (*of_auc, *of_ce)


def _parts(bags: Bags, seed: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    return [np.flatnonzero((bags.groups == str(seed)) & (bags.splits == part)) for part in PARTS]


def _outcome(training: _Training, store: Store) -> Outcome:
    rows = [row for row in store.find(training.group().names) if row is not None]
    values = np.array([[row[part] for part in PARTS] for row in rows], dtype=np.float64)
    train, val, test = values.mean(axis=0).tolist()
    return Outcome(train, val, test, worst=float(values[:, 2].min()))


def _body(wanted: MilPlan, outcomes: Outcomes, path: Path) -> list[str]:
    config = wanted.config(wanted.methods[0])
    head = ["pooling", "estimator", "objective", *(f"{n} {text}: train, test (worst)" for n, text in TESTS.items())]
    rows = [
        [
            *(method_settings(method)[part] for part in ("pooling", "estimator", "objective")),
            *(_cell(outcomes[method, test]) for test in TESTS),
        ]
        for method in sorted(wanted.methods, key=_order)
    ]
    return [
        f"![Test AUROC of every pooling and estimator]({path.name})",
        "",
        "Trained for the AUC; `max` cannot be tracked, so it has no vrsp and no exact-point.",
        "",
        *_findings(wanted, outcomes),
        "",
        *_BAGS,
        "",
        f"{wanted.bags} bags of each class to train on, as many of each to test on. Settings, the same for all: "
        f"{config.training.epochs} epochs, Adam at {config.training.lr:g}, hidden layers of "
        f"{' and '.join(map(str, config.model.hidden or ()))}, B = {config.training.num_instances}, margin "
        f"{config.method.margin:g}. They were chosen with max and smoothed-max in test 1, on other seeds, by the "
        "AUROC of training bags and of new bags drawn like them; test bags chose "
        "nothing. The last epoch is reported.",
        "",
        *_near(wanted, outcomes),
        *table(head, rows),
        "",
        *_price(wanted, outcomes),
    ]


def _findings(wanted: MilPlan, outcomes: Outcomes) -> list[str]:
    lines = []
    for test, text in TESTS.items():
        passed: dict[str, list[str]] = defaultdict(list)
        failed: dict[str, list[str]] = defaultdict(list)
        for method in wanted.methods:
            named = method_settings(method)
            where = passed if outcomes[method, test].passed else failed
            loss = ", bce" if named["objective"] == "bce" else ""
            where[named["pooling"]].append(named["estimator"] + loss)
        both = [
            f"{_list(found, other)} {verb}"
            for found, other, verb in ((passed, failed, "pass"), (failed, passed, "fail"))
            if found
        ]
        lines.append(f"- Test {test}, {text}: {'; '.join(both)}.")
    return lines


def _near(wanted: MilPlan, outcomes: Outcomes) -> list[str]:
    """Return a sentence on verdicts that other seeds could change."""
    near = [
        f"{method_settings(method)['pooling']} ({method_settings(method)['estimator']}) in test {test}"
        for method in wanted.methods
        for test in TESTS
        if abs(min(outcomes[method, test].train, outcomes[method, test].test) - PASS) < _NEAR
    ]
    if not near:
        return []
    return [
        f"Within {_NEAR:g} of the bound, so that other seeds could turn the verdict: {', '.join(near)}.",
        "",
    ]


def _list(found: dict[str, list[str]], other: dict[str, list[str]]) -> str:
    """Return the poolings, with their combinations if only some of them count."""
    return ", ".join(
        pooling + (f" ({'; '.join(how)})" if pooling in other else "") for pooling, how in sorted(found.items())
    )


def _options(wanted: MilPlan, outcomes: Outcomes, test: int) -> str:
    """Return the poolings that pass a test with every estimator and objective that was run."""
    failed = {method_settings(m)["pooling"] for m in wanted.methods if not outcomes[m, test].passed}
    kept = sorted({method_settings(m)["pooling"] for m in wanted.methods} - failed)
    return ", ".join(f"`--pooling {name}`" for name in kept) or "none"


def _price(wanted: MilPlan, outcomes: Outcomes) -> list[str]:
    rows = []
    for method in sorted(wanted.methods, key=_order):
        named = method_settings(method)
        if named["estimator"] == "exact" and named["objective"] == "minmax-auc":
            cells = [f"{outcomes[method, test].val:.3f}, {outcomes[method, test].test:.3f}" for test in TESTS]
            rows.append([named["pooling"], *cells])
    attention = [m for m in wanted.methods if method_settings(m)["pooling"] in _ATTENTION]
    passed = sum(outcomes[method, 1].passed for method in attention)
    return [
        "## Attention, the way out, and its price",
        "",
        "Attention weighs instances against each other: the poison of the negative training bags can take the weight, "
        "and where it lies in a positive bag that bag is called negative. "
        f"{passed} of {len(attention)} combinations of an attention pooling, an estimator and an objective pass test "
        "1. Where instances that speak against a bag can occur, take a pooling that keeps the assumption. With every "
        f"estimator that they admit, those that pass are, in test 1: {_options(wanted, outcomes, 1)}; in test 2: "
        f"{_options(wanted, outcomes, 2)}. The price is what the weights were worth where nothing shifts. Below, for "
        "training on whole bags: the AUROC of new bags drawn as the training bags, and that of the test bags. The "
        "price on real bags stands in [Table 2](table2.md), for those of them that the paper has.",
        "",
        *table(["pooling", *(f"{n} {text}: as in training, test" for n, text in TESTS.items())], rows),
    ]


def _order(method: str) -> tuple[int, str, int]:
    named = method_settings(method)
    return int(named["objective"] == "bce"), named["pooling"], ESTIMATORS.index(named["estimator"])


def _cell(outcome: Outcome) -> str:
    if not np.isfinite(outcome.train + outcome.test):
        return "diverged: fail"
    verdict = "pass" if outcome.passed else "fail"
    return f"{outcome.train:.3f}, {outcome.test:.3f} ({outcome.worst:.3f}): {verdict}"


def _draw(path: Path, wanted: MilPlan, outcomes: Outcomes) -> None:
    methods = [m for m in wanted.methods if method_settings(m)["objective"] == "minmax-auc"]
    poolings: Sequence[str] = sorted({method_settings(m)["pooling"] for m in methods})
    figure = new_figure((3.4 * len(TESTS) + 1.6, 0.36 * len(poolings) + 1.7))
    grid = figure.subplots(1, len(TESTS), sharey=True, squeeze=False)[0]
    for (test, text), axes in zip(TESTS.items(), grid):
        values = np.full((len(poolings), len(ESTIMATORS)), np.nan)
        for method in methods:
            named, outcome = method_settings(method), outcomes[method, test]
            place = poolings.index(named["pooling"]), ESTIMATORS.index(named["estimator"])
            values[place] = outcome.test
            weight = "bold" if outcome.passed else "normal"
            mark = f"{outcome.test:.2f}" + (" ✓" if outcome.passed else "")
            ink = "white" if outcome.test < 0.15 or outcome.test > 0.85 else "black"
            axes.text(place[1], place[0], mark, ha="center", va="center", fontsize=8, weight=weight, color=ink)
        image = axes.imshow(values, vmin=0, vmax=1, cmap="PuOr", aspect="auto")
        axes.set_xticks(range(len(ESTIMATORS)), list(ESTIMATORS), rotation=25, ha="right")
        axes.set_yticks(range(len(poolings)), list(poolings))
        axes.set_title(f"Test {test}: {text}", loc="left", fontweight="bold", fontsize=10)
    figure.colorbar(image, ax=list(grid), label="Test AUROC (✓: passed)", shrink=0.9)
    save_figure(figure, path, grid=False)
