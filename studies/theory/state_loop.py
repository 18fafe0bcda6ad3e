"""A training loop in plain torch, of many trainings at once that differ in gamma0, learning rate, correction and seed.

It draws the bags and instances that the library's trainer draws, begins at its weights, and takes its steps: SGD with
momentum on the min-max objective. So its plain state is that of `vrsp`, to rounding. Beside that it can correct the
state by what the weights have changed, which the library cannot:

    s <- (1 - gamma0) s + gamma0 g(w; draw) + kappa [g(w; draw) - g(w'; draw)]

with older weights w'. The difference has a sign, which a log-mean cannot hold: it is added relative to the largest
logit at hand, and the sum is a log-mean again. Where it falls below gamma0 g(w; draw), which a state without correction
cannot, the correction is left out of that step: so no instance weighs more than 1 / gamma0.

More serves to tell why a state helps: the whole bag's own value in its place, or in that of its old part, and states
that are kept along a training which another one steers.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from midam.compare.engine import Row
from midam.data.draws import uniform_slots
from midam.data.sampling import BagSampler
from midam.evaluate.ranking import auroc
from midam.settings import Settings
from midam.train.build import build_method
from midam.train.memory import denormals_flushed
from studies.regime.bags import PIXELS, Counts, nine_bags

POSITIVE = NEGATIVE = 8  # Bags of a step
CORRECTIONS = ("storm", "msvr", "visit")
WHOLE, RENEWED = "whole", "renewed"
_CHECKS, _DRAWS = 6, 100
_MOMENTUM = 0.1
_FALLS = (0.5, 0.75)


@dataclass(frozen=True)
class Arm:
    """A way to train: gamma0 (1 is `minibatch`), the learning rate in units of the usual one, and the correction.

    The older weights and kappa of a correction: "storm", those of the step before, and 1 - gamma0; "msvr", the same,
    and (N - S) / (S (1 - gamma0)) + 1 - gamma0 with S of N bags a step; "visit", those of the bag's last visit, and
    1 - gamma0. Two are no corrections, and encode bags whole in each step: "whole", the state is the value of the whole
    bag; "renewed", the old part of the state is, with which the draw is averaged.
    """

    gamma0: float
    speed: float = 1.0
    correction: str = ""

    def kappa(self, gamma0: float, *, visits: float) -> float:
        """Weight of the correction, where a step has `visits` of the bags."""
        extrapolated = (1 / visits - 1) / (1 - gamma0) if self.correction == "msvr" else 0.0
        return extrapolated + 1 - gamma0 if self.correction in CORRECTIONS else 0.0


@dataclass(frozen=True)
class Job:
    """What is trained at once: arms, each with each seed; the corrected ones all have older weights of one age."""

    pooling: str
    temperature: float
    instances: int  # B
    epochs: int
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    size: int
    witnesses: int
    counts: Counts
    steered: bool = False  # By the first arm: all others keep states along its training

    @property
    def corrections(self) -> set[str]:
        """Corrections of its arms."""
        return {arm.correction for arm in self.arms} - {""}

    def config(self, gamma0: float, lr: float) -> Settings:
        """Settings of the library's trainer that are those of the loop."""
        return Settings(
            pooling=self.pooling,
            **({} if self.pooling == "attention" else {"temperature": self.temperature}),
            estimator="minibatch" if gamma0 == 1 else "vrsp",
            state_rate=gamma0,
            state_floor=0.0,
            num_positive=POSITIVE,
            num_negative=NEGATIVE,
            num_instances=self.instances,
            epochs=self.epochs,
            optimizer="sgd",
            lr=lr,
            momentum=_MOMENTUM,
            decay_at=list(_FALLS),
            members=1,
            center_start=0.5,
            hidden=[],
            standardize=False,
            accelerator="cpu",
            threads=1,
        )

    def falls(self, epoch: int) -> int:
        """Return how often the rates have fallen when an epoch (from 0) starts."""
        return sum(epoch >= max(1, round(at * self.epochs)) for at in _FALLS)


@dataclass(eq=False)
class _Weights:
    """Parameters of M scorers by name, each [M, ...]."""

    of: dict[str, Tensor]
    temperature: float
    attention: bool

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values [M, I] of instances x [M, I, D]; without attention the values are zeros."""
        e = torch.tanh(self._linear("encoder.layers.0", x))
        value = self._linear("pooling.scorer", e).squeeze(-1)
        if not self.attention:
            z = torch.sigmoid(value) / self.temperature
            return z, torch.zeros_like(z)
        hidden = torch.tanh(self._linear("pooling.hidden", e))
        return self._linear("pooling.attention", hidden).squeeze(-1), value

    def score(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: E741
        """Bag scores at statistics of one shape."""
        return torch.sigmoid(r) if self.attention else self.temperature * l

    def part(self, of: slice) -> "_Weights":
        """Some of the scorers, without graph."""
        return _Weights({k: p.detach()[of] for k, p in self.of.items()}, self.temperature, self.attention)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self.of[f"{name}.bias"].unsqueeze(1), x, self.of[f"{name}.weight"].mT)


class Loop:
    """The trainings of a job; training m has arm m // seeds and seed m % seeds."""

    def __init__(self, job: Job, lr: float) -> None:
        self.job, self.arms, seeds = job, len(job.arms), len(job.seeds)
        counts = job.counts
        bags = nine_bags(job.size, sets=[(job.witnesses, seed) for seed in job.seeds], counts=counts)
        x = torch.from_numpy(bags.instances).float().view(seeds, counts.total, job.size, PIXELS)
        self.labels = bags.require_labels()[: counts.total]
        self.train, self.test = (torch.from_numpy(counts.positions(split)) for split in ("train", "test"))
        self.x, self.x_test = x[:, self.train], x[:, self.test]
        y, sizes = self.labels[self.train], np.full(counts.train, job.size)
        self.samplers = [
            BagSampler(y, sizes, num_positive=POSITIVE, num_negative=NEGATIVE, num_instances=job.instances, seed=s)
            for s in job.seeds
        ]
        config = job.config(0.9, lr)
        fresh = [
            build_method(config.replace(seed=s), instance_shape=(PIXELS,), num_bags=counts.train).model.state_dict()
            for s in job.seeds
        ]
        first = {k: torch.stack([own[k] for own in fresh]) for k in fresh[0] if k.endswith(("weight", "bias"))}
        self.weights = _Weights(
            {k: p.repeat(self.arms, *[1] * (p.ndim - 1)).requires_grad_() for k, p in first.items()},
            job.temperature,
            job.pooling == "attention",
        )
        count = self.arms * seeds
        self.centers = torch.full((2, count, 1), 0.5, requires_grad=True)
        self.dual = torch.zeros(count)
        self.lr = lr * torch.tensor([arm.speed for arm in job.arms]).repeat_interleave(seeds)
        self.l, self.r = torch.full((count, counts.train), -torch.inf), torch.zeros(count, counts.train)
        self.velocity: list[Tensor] = []
        self.steps = self.visits = 0
        self.refused = torch.zeros(count)
        # Weights of the last steps, in a ring, and the step of each bag's last visit
        depth = 2 * self.samplers[0].steps_per_epoch if "visit" in job.corrections else 1
        older = job.corrections & set(CORRECTIONS)
        self.past = {k: torch.zeros(depth, *p.shape) for k, p in self.weights.of.items()} if older else {}
        self.visited = torch.zeros(seeds, counts.train, dtype=torch.int64)
        self.set_rates(0)

    def set_rates(self, falls: int) -> None:
        """Set what falls with the learning rate; gamma0 = 1 stays."""
        rates = [arm.gamma0 * (0.5**falls if arm.gamma0 < 1 else 1) for arm in self.job.arms]
        share = (POSITIVE + NEGATIVE) / self.job.counts.train
        kappas = [arm.kappa(rate, visits=share) for arm, rate in zip(self.job.arms, rates)]
        seeds = len(self.job.seeds)
        self.gamma0, self.kappa = (torch.tensor(own).repeat_interleave(seeds).unsqueeze(1) for own in (rates, kappas))
        self.rate, self.dual_rate = self.lr * 0.1**falls, 0.5**falls

    def epoch(self) -> None:
        """Take the steps of an epoch."""
        plans = [sampler.epoch() for sampler in self.samplers]
        for bags, slots in zip(*(torch.stack([getattr(p, k) for p in plans], 1) for k in ("bags", "slots"))):
            self._step(bags, slots)

    def _step(self, bags: Tensor, slots: Tensor) -> None:
        """One step of bags [S, K] and their slots [S, K, B]."""
        x = self.x[torch.arange(len(bags)).view(-1, 1, 1), bags.unsqueeze(2), slots].repeat(self.arms, 1, 1, 1)
        shape = x.shape[:3]
        z, v = (out.view(shape) for out in self.weights.encode(x.flatten(1, 2)))
        index = bags.repeat(self.arms, 1)
        with torch.no_grad():
            old = self.l.gather(1, index), self.r.gather(1, index)
            if self.job.corrections & {WHOLE, RENEWED}:
                old = self._whole(bags)
            if WHOLE in self.job.corrections:
                (l, r), w = old, torch.exp(z - old[0].unsqueeze(2)) / z.shape[2]  # noqa: E741
            else:
                l, r, w = self._advance(z, v, old, self._older(x, bags) if self.past else None)  # noqa: E741
        # The gradient of the sample at the point; the values are the point's.
        weighted = w * z
        if self.weights.attention:
            hat = ((v.detach() - r.unsqueeze(2)) * weighted + w * v).sum(2)
        else:
            hat = weighted.sum(2)
        h = self.weights.score(l - hat.detach() + hat, r - hat.detach() + hat)
        self._descend(h[:, :POSITIVE], h[:, POSITIVE:])
        self.l.scatter_(1, index, l)
        self.r.scatter_(1, index, r)
        self.visited.scatter_(1, bags, self.steps)
        self.steps += 1
        self.visits += index.shape[1]

    def _older(self, x: Tensor, bags: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values [M, K, B] of the draw by older weights; those of first visits are not used."""
        depth, count = len(next(iter(self.past.values()))), len(x)
        if depth == 1:
            found, x_flat = {k: p[0] for k, p in self.past.items()}, x.flatten(1, 2)
        else:
            place = (self.visited.gather(1, bags) % depth).repeat(self.arms, 1).flatten()
            member = torch.arange(count).repeat_interleave(x.shape[1])
            found, x_flat = {k: p[place, member] for k, p in self.past.items()}, x.flatten(0, 1)
        z, v = _Weights(found, self.weights.temperature, self.weights.attention).encode(x_flat)
        return z.view(x.shape[:3]), v.view(x.shape[:3])

    def _whole(self, bags: Tensor) -> tuple[Tensor, Tensor]:
        """The bags' own values [M, K]."""
        x = self.x[torch.arange(len(bags)).unsqueeze(1), bags].repeat(self.arms, 1, 1, 1)
        z, v = (own.view(x.shape[:3]) for own in self.weights.encode(x.flatten(1, 2)))
        return pool(z, v)

    def _advance(
        self, z: Tensor, v: Tensor, old_state: tuple[Tensor, Tensor], older: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next state (l, r) [M, K], and the weights [M, K, B] of the sample at it."""
        l_old, r_old = old_state
        first = l_old == -torch.inf
        gamma0 = torch.where(first, 1.0, self.gamma0)
        logits = [l_old, z.amax(2)] + ([older[0].amax(2)] if older else [])
        top = torch.stack(logits).amax(0)
        each = torch.exp(z - top.unsqueeze(2)) / z.shape[2]
        old, new = (1 - gamma0) * torch.exp(l_old - top), gamma0 * each.sum(2)
        p, q = old + new, old * r_old + gamma0 * (each * v).sum(2)
        if older:
            before = torch.exp(older[0] - top.unsqueeze(2)) / z.shape[2]
            kappa = torch.where(first, 0.0, self.kappa)
            moved = p + kappa * (each - before).sum(2)
            taken = moved >= new
            self.refused += (~taken).sum(1)
            q = torch.where(taken, q + kappa * (each * v - before * older[1]).sum(2), q)
            p = torch.where(taken, moved, p)
        return top + p.log(), q / p, each / p.unsqueeze(2)

    def _descend(self, positive: Tensor, negative: Tensor) -> None:
        """One step of the weights and one of the dual variable."""
        a, b = self.centers
        gap = 1 + negative.mean(1) - positive.mean(1)
        spread = (positive - a).square().mean(1) + (negative - b).square().mean(1)
        loss = spread + self.dual * (gap - self.dual / 2)
        parameters = [*self.weights.of.values(), self.centers]
        gradients = list(torch.autograd.grad(loss.sum(), parameters))
        if self.job.steered:
            count = len(self.job.seeds)
            gradients = [g[:count].repeat(self.arms, *[1] * (g.ndim - 1)) for g in gradients[:-1]] + [
                gradients[-1][:, :count].repeat(1, self.arms, 1)
            ]
            gap = gap[:count].repeat(self.arms)
        for k, own in self.past.items():
            own[self.steps % len(own)] = self.weights.of[k].detach()
        if not self.velocity:
            self.velocity = [g.clone() for g in gradients]
        else:
            for speed, g in zip(self.velocity, gradients):
                speed.mul_(_MOMENTUM).add_(g, alpha=1 - _MOMENTUM)
        with torch.no_grad():
            for p, speed in zip(parameters[:-1], self.velocity):
                p.sub_(self.rate.view(-1, *[1] * (p.ndim - 1)) * speed)
            self.centers.sub_(self.rate.view(1, -1, 1) * self.velocity[-1])
            self.dual = (self.dual + self.dual_rate * (gap.detach() - self.dual)).clamp_(min=0)

    @torch.no_grad()
    def statistics(self, arm: int, x: Tensor) -> tuple[Tensor, ...]:
        """Log-mean, value and score of whole bags [S, N, n, D] by the scorers of an arm [S, N], and z and v."""
        own = slice(arm * len(x), (arm + 1) * len(x))
        weights = self.weights.part(own)
        parts = [weights.encode(part.flatten(1, 2)) for part in torch.split(x, 16, dim=1)]
        z, v = (torch.cat(outs, 1).view(x.shape[:3]) for outs in zip(*parts))
        l, r = pool(z, v)  # noqa: E741
        return l, r, weights.score(l, r), z, v

    def errors(self) -> Tensor:
        """Errors of the tracked state [2, M]: of s, relative to mean squared s, and the squared error of the score."""
        found = []
        for arm in range(self.arms):
            l, r, h, *_ = self.statistics(arm, self.x)  # noqa: E741
            own = slice(arm * len(l), (arm + 1) * len(l))
            got = self.l[own], self.r[own]
            want, have = (torch.stack([a.double().exp() * b.double(), a.double().exp()]) for a, b in ((l, r), got))
            in_s = (want - have).square().sum((0, 2)) / want.square().sum((0, 2))
            found.append(torch.stack([in_s, (self.weights.score(*got) - h).square().mean(1).double()]))
        return torch.cat(found, 1)

    def biases(self, arm: int) -> list[Row]:
        """Of a draw pooled as if it were the bag, in positive bags: bias and deviation of l and of the score."""
        positive = torch.from_numpy(np.flatnonzero(self.labels[self.train] == 1))
        rng = np.random.Generator(np.random.Philox(0))
        slots = uniform_slots(np.full((len(positive), _DRAWS), self.job.size), self.job.instances, rng)[0]
        bag, of = positive.view(-1, 1, 1), torch.from_numpy(slots)
        l, _, h, z, v = self.statistics(arm, self.x)  # noqa: E741
        rows: list[Row] = []
        for seed in range(len(l)):
            drawn = pool(z[seed, bag, of], v[seed, bag, of])
            row: Row = {}
            for name, got, want in (("l", drawn[0], l[seed]), ("h", self.weights.score(*drawn), h[seed])):
                miss = got - want[positive].unsqueeze(1)
                row |= {f"{name} bias": float(miss.mean()), f"{name} deviation": float(miss.std(1).mean())}
            rows.append(row)
        return rows


def pool(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Log-mean weight and weighted mean value over the last axis."""
    return torch.logsumexp(z, -1) - float(np.log(z.shape[-1])), (z.softmax(-1) * v).sum(-1)


def run_job(job: Job, lr: float) -> list[Row]:
    """Train a job; returns a row for each arm and seed: test AUROC, errors of the state, biases at start and end."""
    torch.set_num_threads(1)
    loop = Loop(job, lr)
    start = loop.biases(0)
    checks = set(np.linspace(job.epochs // _CHECKS, job.epochs - 1, _CHECKS).astype(int).tolist())
    measured = []
    for epoch in range(job.epochs):
        loop.set_rates(job.falls(epoch))
        with denormals_flushed():
            loop.epoch()
        if epoch in checks:
            measured.append(loop.errors())
    in_s, in_h = torch.stack(measured).mean(0).tolist()
    ends = [row for arm in range(loop.arms) for row in loop.biases(arm)]
    scores = torch.cat([loop.statistics(arm, loop.x_test)[2] for arm in range(loop.arms)]).double().numpy()
    y = loop.labels[loop.test]
    return [
        {
            "test": auroc(y, own) if np.isfinite(own).all() else None,
            # A sum of exp(l) may overflow.
            "state": in_s[m] if np.isfinite(in_s[m]) else None,
            "score": in_h[m] if np.isfinite(in_h[m]) else None,
            "refused": float(loop.refused[m] / loop.visits),
            **{f"start, {name}": value for name, value in start[m % len(start)].items()},
            **{f"end, {name}": value for name, value in ends[m].items()},
        }
        for m, own in enumerate(scores)
    ]
