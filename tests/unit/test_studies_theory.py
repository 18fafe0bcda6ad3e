"""The studies of the theorem: the stationarity measure, the power laws, the verdicts, and tiny versions of both."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.nn.objectives import MinMaxAUCLoss
from midam.nn.scorer import BagOutput
from midam.train.build import build_method
from studies.engine import Store
from studies.options import StudyOptions
from studies.registry import find_study
from studies.theory import complexity, tracking
from studies.theory.complexity_report import Outcome, Sweep, cost_verdict
from studies.theory.exponents import Exponent, fit_exponent, slopes, verdict
from studies.theory.stationary import Cell, _Path, make_bags, make_model, run_cell, squared_gradient_norm, theorem_rates
from studies.theory.step_cost import Timing
from studies.theory.tracking_report import mean_errors

BASE = Cell("smoothed-max", 0.04, copies=2, batch=4, instances=4, seed=0)


def tensors(bags):
    return [torch.from_numpy(part) for part in (bags.instances, bags.sizes, bags.require_labels())]


def naive_bag_score(model, x):
    """The paper's pooling of one bag, without the log space of the library."""
    encoding = model.encoder(x)
    head = model.pooling
    if head.name == "smoothed-max":
        phi = torch.sigmoid(head.scorer(encoding)).squeeze(1)
        return 0.1 * torch.log(torch.exp(phi / 0.1).mean())
    g = head.attention(torch.tanh(head.hidden(encoding))).squeeze(1)
    delta = head.scorer(encoding).squeeze(1)
    return torch.sigmoid((torch.exp(g) * delta).sum() / torch.exp(g).sum())


def naive_objective(model, objective, bags, alpha):
    """F(w, a, b, alpha), bag by bag; with alpha None its maximum over alpha >= 0 (Phi)."""
    a, b = objective.positive_center, objective.negative_center
    h = [naive_bag_score(model, torch.from_numpy(bags[i])) for i in range(len(bags))]
    positive = [score for score, label in zip(h, bags.labels) if label]
    negative = [score for score, label in zip(h, bags.labels) if not label]
    f1 = sum((score - a) ** 2 for score in positive) / len(positive)
    f2 = sum((score - b) ** 2 for score in negative) / len(negative)
    gap = objective.margin + sum(negative) / len(negative) - sum(positive) / len(positive)
    if alpha is None:
        return f1 + f2 + 0.5 * torch.clamp(gap, min=0) ** 2, float(gap.detach())
    return f1 + f2 + alpha * gap - alpha**2 / 2, float(gap.detach())


@pytest.mark.parametrize("pooling", ["smoothed-max", "attention"])
@pytest.mark.parametrize("positive_gap", [True, False])
def test_the_gradient_of_phi_is_that_of_the_naive_objective(pooling, positive_gap):
    bags, model = make_bags(3), make_model(pooling, seed=3)
    objective = MinMaxAUCLoss(center_start=0.0, margin=1.0 if positive_gap else 1e-6).double()
    with torch.no_grad():
        objective.positive_center.fill_(0.7)
        objective.negative_center.fill_(0.2)
        if not positive_gap and naive_objective(model, objective, bags, None)[1] > 0:
            model.pooling.scorer.weight.neg_()
            model.pooling.scorer.bias.neg_()
    phi, gap = naive_objective(model, objective, bags, None)
    assert (gap > 0) == positive_gap
    # Phi is the maximum: no alpha of a grid does better, and the best one comes close.
    values = [float(naive_objective(model, objective, bags, alpha)[0].detach()) for alpha in np.linspace(0, 2, 41)]
    assert max(values) <= float(phi.detach()) + 1e-12
    assert max(values) == pytest.approx(float(phi.detach()), abs=0.5 * 0.025**2)
    gradients = torch.autograd.grad(phi, [*model.parameters(), *objective.parameters()])
    wanted = float(sum((g**2).sum() for g in gradients))
    assert squared_gradient_norm(model, objective, *tensors(bags)) == pytest.approx(wanted, rel=1e-9)


def test_copies_of_the_bags_leave_phi_as_it_is():
    model, objective = make_model("attention", seed=0), MinMaxAUCLoss(center_start=0.0).double()
    once, thrice = (squared_gradient_norm(model, objective, *tensors(make_bags(0, copies=c))) for c in (1, 3))
    assert once == pytest.approx(thrice, rel=1e-12)


def test_the_step_sizes_follow_the_proof():
    base = theorem_rates(BASE)
    assert theorem_rates(replace(BASE, copies=8)).eta == pytest.approx(base.eta / 4)
    assert theorem_rates(replace(BASE, batch=2)).eta == pytest.approx(base.eta / 2)
    half = theorem_rates(replace(BASE, eps2=0.02))
    assert [half.eta, half.gamma0, half.beta1, half.eta_dual] == pytest.approx(
        [base.eta / 2, base.gamma0 / 2, base.beta1 / 2, base.eta_dual / 2]
    )
    eight = theorem_rates(replace(BASE, instances=8))
    assert eight.gamma0 / base.gamma0 == pytest.approx(2 * (64 - 4) / (64 - 8))
    assert theorem_rates(replace(BASE, instances=8, rate_with_instances=False)) == base
    assert theorem_rates(replace(BASE, instances=64)).gamma0 == 1
    assert theorem_rates(replace(BASE, copies=1, batch=8, instances=64)).decided == "beta1"


def test_the_state_decides_eta_in_every_cell_of_the_study():
    for options in (StudyOptions(), StudyOptions(quick=True)):
        plan = complexity.make_plan(options)
        rates = [theorem_rates(cell) for sweep in plan.sweeps for cell in sweep.cells]
        assert {rate.decided for rate in rates} == {"gamma0 S / D"}
        assert max(rate.gamma0 for rate in rates) < 1
        assert plan.seeds >= 5


def test_the_running_mean_is_the_trapezoid_sum():
    path, values = _Path(0.3, 1.0), [1.0]
    while path.steps is None:
        if path.due():
            values.append(1 / (1 + path.step))
            path.add(values[-1])
    # Up to step 30 each step is measured, so the mean is that of the plain trapezoid rule.
    means = [np.trapezoid(values[: t + 1]) / t for t in range(1, len(values))]
    assert path.steps == 1 + next(t for t, mean in enumerate(means) if mean <= 0.3)
    assert path.first == 3
    assert path.steps < 30


def test_a_run_gets_there_and_repeats():
    cell = Cell("attention", 0.3, copies=1, batch=4, instances=4, seed=1)
    row = run_cell(cell)
    assert row["steps"] is not None
    assert row["first"] <= row["steps"]
    assert row["clips"] == 0
    assert run_cell(cell) == row


def test_the_exponent_of_a_power_law_is_found():
    x = np.array([1.0, 3.0, 10.0, 40.0])
    assert slopes(x, [5 * x**1.7, 0.1 * x**-2]) == pytest.approx([1.7, -2.0])
    fit = fit_exponent(x, np.outer([1.0, 2.0, 9.0], x**-0.5))
    assert [fit.value, fit.low, fit.high] == pytest.approx([-0.5] * 3)
    with pytest.raises(ConfigError, match="at least 2 seeds"):
        fit_exponent(x, x[None])


def test_the_interval_of_the_exponent_covers_it():
    rng = np.random.Generator(np.random.Philox(0))
    x, repeats = np.array([1.0, 2.0, 4.0, 8.0]), 300
    fits = [fit_exponent(x, x**1.5 * np.exp(0.2 * rng.normal(size=(5, 4)))) for _ in range(repeats)]
    covered = np.mean([fit.low <= 1.5 <= fit.high for fit in fits])
    # The plain percentile interval of five seeds covers about 0.83.
    assert 0.9 < covered < 0.99


def test_the_verdict_has_a_tolerance_of_a_tenth():
    assert verdict(Exponent(1.05, 1.0, 1.09), 1.0) == "no worse than the bound"
    assert verdict(Exponent(1.15, 1.11, 1.2), 1.0) == "worse than the bound"
    assert verdict(Exponent(1.05, 0.9, 1.2), 1.0).startswith("open")
    assert verdict(Exponent(4.3, 4.2, 4.39), 4.0) == "no worse than the bound"
    assert verdict(-Exponent(0.5, 0.4, 0.6), -1.0) == "worse than the bound"
    assert verdict(-Exponent(2.0, 1.8, 2.2), -1.0) == "no worse than the bound"


@pytest.mark.parametrize(
    ("axis", "bound", "power", "expected"),
    [
        ("D / S", 1.0, 1.0, "no worse than the bound"),
        ("D / S", 1.0, 2.0, "worse than the bound"),
        ("B", -1.0, -1.0, "no worse than the bound"),
        ("B", -1.0, 0.0, "worse than the bound"),
        ("eps", -4.0, -4.0, "no worse than the bound"),
        ("eps", -4.0, -5.0, "worse than the bound"),
    ],
)
def test_the_verdict_of_a_sweep(axis, bound, power, expected):
    name, values = {"D / S": ("copies", (1, 2, 4)), "B": ("instances", (1, 2, 4)), "eps": ("eps2", (0.1, 0.05))}[axis]
    sweep = Sweep("title", axis, bound, tuple(replace(BASE, **{name: value}) for value in values))
    rows = [[{"steps": 1000 * factor * x**power, "first": None} for factor in (1, 3)] for x in sweep.x]
    outcome = Outcome("attention", sweep, rows)
    assert outcome.exponent("steps").value == pytest.approx(power)
    assert outcome.exponent("first") is None
    assert outcome.verdict == expected
    rows[0][0]["steps"] = None
    assert Outcome("attention", sweep, rows).verdict == f"open: 1 of {2 * len(values)} runs did not get there"


def test_a_step_is_flat_or_it_is_not():
    rng = np.random.Generator(np.random.Philox(0))
    noise = [1 + 0.05 * rng.random(100) for _ in range(3)]
    sizes = (10, 1000, 100_000)
    flat = [Timing("vrsp", size, ms) for size, ms in zip(sizes, noise)]
    growing = [Timing("vrsp", size, ms * size**0.1) for size, ms in zip(sizes, noise)]
    assert cost_verdict(flat) == "flat"
    assert cost_verdict(growing) == "not flat"
    wild = [Timing("vrsp", size, np.exp(2 * rng.normal(size=100))) for size in sizes]
    assert cost_verdict(wild).startswith("open")


@pytest.mark.parametrize("arm", tracking.ARMS)
def test_the_error_of_the_state_is_that_of_the_papers_s(arm):
    bags = Bags.from_list([np.random.default_rng(i).normal(size=(6, 3)).astype(np.float32) for i in range(4)])
    cell = tracking.Cell("digits", arm, 1.0, seed=0, steps=4)
    method = build_method(tracking.make_config(cell), instance_shape=(3,), num_bags=4)
    with torch.no_grad():
        exact = method.model(torch.from_numpy(bags.instances), torch.from_numpy(bags.sizes))
    raw = [(math.exp(lw), *(math.exp(lw) * value for value in r)) for lw, r in zip(exact.l.tolist(), exact.r.tolist())]
    size = np.mean([sum(value**2 for value in row) for row in raw])
    level = torch.arange(1, 1 + raw_width(exact)) / 2
    still = torch.zeros_like(level)
    state = BagOutput(exact.l - level[0], exact.r - level[1:], exact.n, exact.pooling)
    error, found, _ = tracking.errors(replace_state(method, state, visited=[0, 1, 2, 3]), exact, level)
    assert (error, found) == pytest.approx((0, size), abs=1e-9 * size)
    # A bag that was not visited has s = 0, and no score.
    error, found, score = tracking.errors(replace_state(method, exact, visited=[1, 2, 3]), exact, still)
    assert error == pytest.approx(sum(value**2 for value in raw[0]) / 4)
    assert score == pytest.approx(0, abs=1e-12)
    # s of bag 0 doubled (l + log 2): the error is the size of bag 0.
    doubled = BagOutput(exact.l + math.log(2) * torch.tensor([1, 0, 0, 0]), exact.r, exact.n, exact.pooling)
    error, _, _ = tracking.errors(replace_state(method, doubled, visited=[0, 1, 2, 3]), exact, still)
    assert error == pytest.approx(sum(value**2 for value in raw[0]) / 4, rel=1e-5)


def raw_width(output):
    return 1 + output.r.shape[1]


def replace_state(method, output, *, visited):
    state = torch.zeros_like(method.estimator.bag_state)
    state[visited, 0] = 1
    state[visited, 1] = output.l[visited]
    state[visited, 2:] = output.r[visited]
    method.estimator.bag_state.copy_(state)
    return method


@pytest.mark.parametrize("arm", tracking.ARMS)
def test_a_state_of_whole_bags_and_still_weights_has_no_error(arm):
    bags = Bags.from_list([np.random.default_rng(i).normal(size=(3, 2)) for i in range(16)], np.arange(16) % 2)
    # All 16 bags are visited, and drawn whole, in the first step; the weights hardly move.
    row = tracking.run_cell(tracking.Cell("digits", arm, 1e-9, seed=0, steps=3), bags)
    assert row["step"] == [1, 2, 3]
    assert max(row["error"]) < 1e-9 * min(row["size"])


def test_each_part_of_a_run_is_measured_once():
    cell = tracking.Cell("musk2", "attention, printed", 0.125, seed=2, steps=4096)
    steps = tracking.measured_steps(cell)
    assert sorted((step - 1) // 64 for step in steps) == list(range(64))
    assert tracking.measured_steps(replace(cell, seed=3)) != steps
    assert tracking.measured_steps(replace(cell, steps=5)) == {1, 2, 3, 4, 5}


def test_the_relative_error_is_a_ratio_of_means():
    row = {"error": [1.0, 9.0], "size": [1.0, 3.0], "score": [0.0, 0.5]}
    assert mean_errors([[row, row]], "relative").tolist() == [[2.5], [2.5]]
    assert mean_errors([[row]], "score").tolist() == [[0.25]]


@pytest.mark.parametrize("study", [complexity, tracking])
@pytest.mark.long
def test_a_tiny_study_writes_its_page_and_keeps_its_runs(study, tmp_path):
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    study.run(options)
    page = (options.out / f"{study.NAME}.md").read_text(encoding="utf-8")
    assert "the bound" in page
    assert f"python -m studies {study.NAME}" in page
    assert (options.out / "trials" / f"{find_study(study.NAME).store}.jsonl.gz").is_file()
    assert (options.out / f"{study.NAME}.png").exists()
    with Store(options.cache, study.NAME) as store:
        before = store.select({"study": study.NAME})
    study.run(options)
    with Store(options.cache, study.NAME) as store:
        assert store.select({"study": study.NAME}) == before
    assert before


def results_table(name, columns):
    """Rows of the tables of a results page that have so many columns, as lists of cells."""
    text = (Path(__file__).parents[2] / "records" / f"{name}.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return text, [row for row in rows if len(row) == columns and not set(row[1]) <= set("-:")][1:]


def test_the_verdicts_on_the_claims_of_the_paper_are_those_of_the_records():
    page = (Path(__file__).parents[2] / "docs" / "results" / "speed.md").read_text()
    claims = [line for line in page.splitlines() if line.startswith("- **") and "`python -m studies" in line]
    cost, steps, state, score = claims
    text, rows = results_table("complexity", 7)
    assert "**Cost of a step: flat.**" in text
    assert "**Flat**" in cost
    found = {(title, verdict) for title, _, _, _, _, verdict, _ in rows if not title.startswith("estimator")}
    without = {verdict for title, verdict in found if title == "B, gamma0 without B"}
    others = {verdict for title, verdict in found if title != "B, gamma0 without B"}
    assert (without, others) == ({"worse than the bound"}, {"no worse than the bound"})
    assert "**No worse than the bound** in D / S, in eps, and in B where gamma0 grows with B" in steps
    assert "**worse than the bound** in B with the gamma0 of the theorem's words" in steps
    _, rows = results_table("tracking", 5)
    verdicts = {(arm, measure): verdict for arm, measure, _, _, verdict in rows}
    printed = [arm for arm in dict.fromkeys(arm for arm, _ in verdicts) if not arm.endswith("relative")]
    assert len(printed) == 2
    for arm in printed:
        assert verdicts[arm, "error of s, relative to mean squared s"] == "no worse than the bound"
        assert verdicts[arm, "squared error of s"] == "worse than the bound"
    assert "**no worse than the bound**, with both poolings; without that division **worse than the bound**" in state
    words = [verdicts[arm, "squared error of the bag's score"].split(":")[0] for arm in printed]
    assert f"smoothed-max **{words[0]}**, attention **{words[1]}**" in score
