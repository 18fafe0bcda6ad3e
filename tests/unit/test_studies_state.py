"""The study of the tracked state: its loop against the library's trainer, corrections, biases, and the study, small."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from midam.train.trainer import Trainer
from studies.options import StudyOptions
from studies.regime.bags import Counts, nine_bags
from studies.theory.state_loop import Arm, Job, Loop
from studies.theory.state_trials import SMALLER, Found, wanted_groups
from studies.theory.tracked_state import run

pytestmark = pytest.mark.drawn

COUNTS = Counts(train=32, val=2, test=8)
LR = 0.2


def make_job(pooling="smoothed-max", *arms, b=3, epochs=4, seeds=(0, 5)):
    return Job(pooling, 0.1, b, epochs, arms or (Arm(0.3),), seeds, 12, 3, COUNTS)


def trained(job):
    loop = Loop(job, LR)
    for epoch in range(job.epochs):
        loop.set_rates(job.falls(epoch))
        loop.epoch()
    return loop


@pytest.mark.parametrize("pooling", ["smoothed-max", "attention"])
@pytest.mark.parametrize("gamma0", [0.3, 1.0])
def test_the_plain_state_is_the_library_s(pooling, gamma0):
    job = make_job(pooling, Arm(0.9), Arm(gamma0))
    loop = trained(job)
    for place, seed in enumerate(job.seeds):
        bags = nine_bags(job.size, sets=[(job.witnesses, seed)], counts=COUNTS).subset(COUNTS.positions("train"))
        trainer = Trainer(job.config(gamma0, LR).replace(seed=seed), bags)
        while not trainer.finished:
            trainer.train_epoch()
        (member,) = trainer.members
        own = len(job.seeds) + place
        # Other kernels round otherwise, in float32, step after step.
        for name, wanted in member.model.named_parameters():
            torch.testing.assert_close(loop.weights.of[name][own], wanted, rtol=1e-3, atol=1e-5)
        if gamma0 < 1:
            state = member.estimator.get_buffer("bag_state")
            torch.testing.assert_close(loop.l[own], state[:, 1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("pooling", ["smoothed-max", "attention"])
def test_of_whole_bags_the_state_corrected_since_the_last_visit_is_exact(pooling):
    corrected = trained(make_job(pooling, Arm(0.3, 1.0, "visit"), b=12))
    exact, plain = trained(make_job(pooling, Arm(1.0), b=12)), trained(make_job(pooling, Arm(0.3), b=12))
    assert not corrected.refused.any()
    torch.testing.assert_close(corrected.l, exact.l, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(corrected.r, exact.r, rtol=1e-3, atol=1e-4)
    assert (plain.l - exact.l).abs().max() > 0.01


@pytest.mark.parametrize("pooling", ["smoothed-max", "attention"])
def test_of_whole_bags_the_bags_own_value_is_that_of_the_mini_batch(pooling):
    arms = Arm(1.0, 1.0, "whole"), Arm(0.3, 1.0, "renewed"), Arm(1.0)
    whole, renewed, exact = (trained(make_job(pooling, arm, b=12)) for arm in arms)
    for own in (whole, renewed):
        torch.testing.assert_close(own.l, exact.l, rtol=1e-3, atol=1e-4)
    # Of a part of the bag it is the whole bag's value all the same.
    part = Loop(make_job(pooling, Arm(1.0, 1.0, "whole"), b=2, seeds=(0,)), LR)
    before = part.statistics(0, part.x)[0]
    bags = torch.arange(16).unsqueeze(0)
    part._step(bags, torch.zeros(1, 16, 2, dtype=torch.int64))
    torch.testing.assert_close(part.l[0, :16], before[0, :16], rtol=1e-4, atol=1e-5)


def test_the_first_arm_steers_the_others():
    arms = Arm(0.3), Arm(0.9), Arm(0.3, 1.0, "storm")
    steered, alone = trained(replace(make_job("attention", *arms), steered=True)), trained(make_job("attention", *arms))
    for name, own in steered.weights.of.items():
        for arm in range(3):
            torch.testing.assert_close(own[2 * arm : 2 * arm + 2], alone.weights.of[name][:2], rtol=1e-4, atol=1e-6)
    assert (steered.l[2:4] - steered.l[:2]).abs().max() > 1e-3
    assert (steered.l[4:] - steered.l[:2]).abs().max() > 1e-3


def test_the_factors_are_those_of_the_papers():
    kappas = [Arm(0.3, 1.0, kind).kappa(0.15, visits=1 / 6) for kind in ("", "whole", "visit", "storm")]
    assert kappas == [0, 0, 0.85, 0.85]
    assert Arm(0.3, 1.0, "msvr").kappa(0.3, visits=16 / 96) == pytest.approx((96 - 16) / (16 * 0.7) + 0.7)


def test_a_correction_that_would_take_the_state_too_low_is_left_out():
    loop = Loop(make_job("smoothed-max", Arm(0.5, 1.0, "storm"), seeds=(0,)), LR)
    old, z, none = (torch.zeros(1, 2), torch.zeros(1, 2)), torch.zeros(1, 2, 1), torch.zeros(1, 2, 1)
    older = torch.tensor([[[0.5], [5.0]]]).log(), none
    level, _, w = loop._advance(z, none, old, older)
    # s = 0.5 + 0.5 + 0.5 (1 - 0.5); the other would be 1 + 0.5 (1 - 5) < 0.5 g.
    assert level.exp().tolist() == [pytest.approx([1.25, 1.0])]
    assert loop.refused.tolist() == [1]
    assert w.flatten().tolist() == pytest.approx([0.8, 1.0])


def test_a_draw_of_the_whole_bag_has_no_bias_and_smaller_draws_have_a_negative_one():
    (whole,), (small,) = (Loop(make_job(b=b, seeds=(0,)), LR).biases(0) for b in (12, 2))
    assert np.abs(list(whole.values())).max() < 1e-5
    assert small["l bias"] < -0.01
    assert small["l deviation"] > 0.01


def test_corrected_states_have_as_many_encodings_as_plain_ones():
    for cell in SMALLER.cells:
        plain, corrected = (SMALLER.job(cell, [Arm(0.3, 1.0, kind)]).epochs for kind in ("", "msvr"))
        assert corrected == max(2, round(0.75 * plain))


def test_the_study_goes_on_where_it_was_stopped(tmp_path):
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    run(options)
    page = (options.out / "tracked-state.md").read_text()
    assert (options.out / "tracked-state.png").read_bytes().startswith(b"\x89PNG")
    store = options.cache / "tracked-state-smaller.jsonl"
    lines = store.read_text().splitlines(keepends=True)
    # What steers is the same training in two groups.
    assert len(lines) - 1 == len({str(name) for group in wanted_groups(SMALLER) for name in group.names})
    store.write_text("".join(lines[:-5]))
    run(options)
    again = (options.out / "tracked-state.md").read_text()
    assert [line for line in again.splitlines() if line.startswith("|")] == [
        line for line in page.splitlines() if line.startswith("|")
    ]


def test_the_gain_is_paired_and_a_diverged_training_counts_as_chance():
    class Rows:
        def find(self, names):
            return [
                {"test": {1.0: 0.6, 0.9: None}.get(name["gamma0"], 0.8) if name["repeat"] else 0.7} for name in names
            ]

    found = Found(replace(SMALLER, seeds=(0, 1)), Rows())
    assert found.gain(SMALLER.cells[0]).tolist() == pytest.approx([0.0, (3 * 0.8 + 0.5) / 4 - 0.6])
