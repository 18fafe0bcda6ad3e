r"""Steps to a stationary point, on so few bags that the measure of stationarity is exact.

The paper's measure is the norm of the gradient of Phi(w, a, b) = max_{alpha >= 0} F(w, a, b, alpha), taken over all
bags and all their instances. The maximum over alpha is reached at alpha = max(0, gap), gap = c + mean- h - mean+ h, and
the gradient of Phi is the gradient of F there, with constant alpha. Everything runs in float64.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, sampled_batches
from midam.data.sampling import BagSampler
from midam.functional.objectives import class_weights, minmax_auc
from midam.nn.encoders import MLP
from midam.nn.objectives import MinMaxAUCLoss
from midam.nn.pooling import make_pooling
from midam.nn.scorer import BagScorer
from midam.train.build import make_optimizer, parameter_groups
from midam.train.estimators import AsPrinted
from midam.train.loop import train_step

NUM_BAGS = 8  # number of different bags of each class
NUM_INSTANCES = 64
NUM_FEATURES = 4
WIDTH = 4
_SHIFT = 1.5
# Set in single runs of seed 0, so that steps are stable at the largest eps and the state's term decides eta everywhere.
_C_BETA, _C_DUAL, _C_STATE, _C_REST, _C_LAG = 10.0, 10.0, 0.25, 0.5, 2.0
_CAP = 20.0
STEP_SIZES = (
    "Step sizes are those of the proof of Theorem 1 in its letters (there beta1 weighs the new gradient, in Algorithm "
    f"1 the old one): beta1 = {_C_BETA:g} eps^2, eta' = {_C_DUAL:g} eps^2, gamma0 = {_C_STATE:g} eps^2 B (N - 1) / "
    f"(N - B) with N instances a bag, and eta = min({_C_LAG:g} gamma0 S / D, {_C_REST:g} beta1, {_C_REST:g} eta'). "
    "The constants of the proof are worst cases that no run could wait for; these were set in single runs of one seed."
)
_MEASURES_PER_E_FOLD = 30


@dataclass(frozen=True)
class Rates:
    """Step sizes: weight of the new gradient, eta, eta', gamma0, and which term of the minimum gave eta."""

    beta1: float
    eta: float
    eta_dual: float
    gamma0: float
    decided: str


@dataclass(frozen=True)
class Cell:
    """One run to a stationary point."""

    pooling: str  # "smoothed-max" or "attention"
    eps2: float  # eps^2, the bound on the mean squared gradient norm
    copies: int  # Copies of each bag: D+ = D- = 8 copies. Phi does not depend on it
    batch: int  # S+ = S-
    instances: int  # B, of 64 instances a bag
    seed: int  # Seed of the bags, the weights and the draws
    lag: bool = True  # Linearize at s^{t-1}, as Algorithm 1 prints it
    # gamma0 in proportion to B (N - 1) / (N - B), as in the proof; False: as for B = 4 at any B, since the
    # theorem's own words give gamma0 no B
    rate_with_instances: bool = True

    @property
    def bags_per_batch(self) -> float:
        """Return D / S, which is equal for both classes."""
        return NUM_BAGS * self.copies / self.batch


def theorem_rates(cell: Cell) -> Rates:
    """Return the step sizes in the proof of Theorem 1 for a cell, by `STEP_SIZES`; each at most 1.

    Examples
    --------
    >>> rates = theorem_rates(Cell("attention", 0.04, copies=2, batch=4, instances=4, seed=0))
    >>> round(rates.gamma0, 3), round(rates.eta, 3), rates.decided
    (0.042, 0.021, 'gamma0 S / D')
    """
    n, drawn = NUM_INSTANCES, cell.instances if cell.rate_with_instances else 4
    noise = drawn * (n - 1) / (n - drawn) if drawn < n else np.inf
    beta1, eta_dual = min(1.0, _C_BETA * cell.eps2), min(1.0, _C_DUAL * cell.eps2)
    gamma0 = float(min(1.0, _C_STATE * cell.eps2 * noise))
    terms = {
        "gamma0 S / D": _C_LAG * gamma0 / cell.bags_per_batch,
        "beta1": _C_REST * beta1,
        "eta'": _C_REST * eta_dual,
    }
    decided = min(terms, key=lambda name: terms[name])
    return Rates(beta1, terms[decided], eta_dual, gamma0, decided)


def make_bags(seed: int, *, copies: int = 1) -> Bags:
    """Draw the bags: 8 of each class and their copies, 64 instances of 4 features each, float64.

    Instances are normal around the center of their bag, which is normal around +1.5 (positive) or -1.5 (negative) in
    the first feature: bags of the two classes overlap.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    arrays, labels = [], []
    for label in (1, 0):
        for _ in range(NUM_BAGS):
            center = rng.normal(size=NUM_FEATURES)
            center[0] += _SHIFT if label else -_SHIFT
            arrays.append(center + rng.normal(size=(NUM_INSTANCES, NUM_FEATURES)))
            labels.append(label)
    return Bags.from_list(arrays * copies, labels * copies)


def make_model(pooling: str, *, seed: int) -> BagScorer:
    """Build a scorer with one hidden tanh layer of width 4, in float64; the global random state does not change."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        encoder = MLP(NUM_FEATURES, hidden=[WIDTH])
        return BagScorer(encoder, make_pooling(pooling, WIDTH)).double()


def squared_gradient_norm(
    model: BagScorer, objective: MinMaxAUCLoss, x: Tensor, sizes: Tensor, labels: Tensor
) -> float:
    """Return the squared norm of the gradient of Phi in (w, a, b), over whole bags, with alpha in closed form.

    Examples
    --------
    >>> bags = make_bags(0)
    >>> x, sizes, labels = (torch.from_numpy(part) for part in (bags.instances, bags.sizes, bags.labels))
    >>> objective = MinMaxAUCLoss(center_start=0.0).double()
    >>> squared_gradient_norm(make_model("attention", seed=0), objective, x, sizes, labels) > 0
    True
    """
    h = model(x, sizes).score
    weights = class_weights(labels, dtype=h.dtype)
    a, b, margin = objective.positive_center, objective.negative_center, objective.margin
    gap = minmax_auc(h, weights, a=a, b=b, alpha=h.new_zeros(()), margin=margin).gap
    phi = minmax_auc(h, weights, a=a, b=b, alpha=gap.clamp(min=0), margin=margin).loss
    gradients = torch.autograd.grad(phi, [*model.parameters(), *objective.parameters()])
    return float(sum((g * g).sum() for g in gradients))


def run_cell(cell: Cell) -> dict[str, Any]:
    """Train until the mean squared gradient norm over all steps until then is at most eps^2.

    The gradient norm is measured about 30 times for each e-fold of the step number, and its mean over the steps is the
    trapezoid sum of the measurements. A run ends without success after 20 / (eta eps^2) steps.

    Returns
    -------
    dict
        The cell; its rates; `steps`: T of the theorem, None where not reached; `first`: first measured step with a
        squared norm of at most eps^2, None where there is none; `clips`: exponents cut off in the gradient's weights.
    """
    torch.set_num_threads(1)
    rates = theorem_rates(cell)
    bags, base = make_bags(cell.seed, copies=cell.copies), make_bags(cell.seed)
    whole = [torch.from_numpy(part) for part in (base.instances, base.sizes, base.require_labels())]
    model = make_model(cell.pooling, seed=cell.seed)
    objective = MinMaxAUCLoss(dual_lr=rates.eta_dual, center_start=0.0).double()
    estimator = AsPrinted(len(bags), model.pooling.value_size, state_rate=rates.gamma0, lag=cell.lag).double()
    groups = parameter_groups(model, objective, weight_decay=0.0)
    optimizer = make_optimizer("sgd", groups, lr=rates.eta, momentum=1 - rates.beta1)
    labels = torch.from_numpy(bags.require_labels()).double()
    sampler = BagSampler(
        bags.require_labels(),
        bags.sizes,
        num_positive=cell.batch,
        num_negative=cell.batch,
        num_instances=cell.instances,
        seed=cell.seed,
    )
    reader = InstanceReader(bags)
    path = _Path(cell.eps2, squared_gradient_norm(model, objective, *whole))
    cap = _CAP / (rates.eta * cell.eps2)
    while path.steps is None and path.step < cap:
        for batch in sampled_batches(reader, sampler, labels):
            train_step(model, estimator, objective, optimizer, batch)
            if path.due():
                path.add(squared_gradient_norm(model, objective, *whole))
            if path.steps is not None:
                break
    found = {"steps": path.steps, "first": path.first, "clips": int(estimator.clips)}
    return asdict(cell) | asdict(rates) | found


class _Path:
    """The squared gradient norm along a run, measured at some steps, and its running mean."""

    def __init__(self, eps2: float, start: float) -> None:
        self.step = 0
        self.steps: int | None = None
        self.first: int | None = None
        self._eps2 = eps2
        self._last_step, self._last, self._sum = 0, start, 0.0
        self._next = 1

    def due(self) -> bool:
        self.step += 1
        return self.step >= self._next

    def add(self, value: float) -> None:
        self._sum += 0.5 * (self._last + value) * (self.step - self._last_step)
        self._last_step, self._last = self.step, value
        self._next = self.step + max(1, self.step // _MEASURES_PER_E_FOLD)
        if self.first is None and value <= self._eps2:
            self.first = self.step
        if self._sum / self.step <= self._eps2:
            self.steps = self.step
