"""A network that is fitted once to made-up bags, and then scores the bags of a new task in one pass, without training.

Prior-fitted networks (Müller et al. 2022, arXiv 2112.10510; for bags Möllers et al. 2026, arXiv 2606.06458) see the
labeled bags of a task and its other bags together. `PriorFitted` has a cell for each feature of each instance, as
TabPFN 2 has for each feature of a row (Hollmann et al. 2025, doi 10.1038/s41586-024-08328-6).

``python -m studies.tabular.prior_fitted A.pt`` fits the network, on a GPU if there is one, and ``... B.pt --start A.pt
--seed 1 --seconds 372`` fits it further. Then `python -m studies candidates` evaluates it.
"""

import argparse
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, pad, scaled_dot_product_attention

_log = logging.getLogger(__name__)
_GROUPS = 32_768  # sequences that one attention call takes on a GPU
_CLIP = 6.0
# What a view of a task holds at most.
_MOST_KNOWN, _MOST_INSTANCES, _MOST_FEATURES, _MOST_COMPONENTS, _MOST_CELLS = 512, 12, 48, 24, 1_000_000


class PriorFitted(nn.Module):
    """Scores bags from labeled bags of the same task, by attention over instances, features and bags in turn.

    A bag is a table with a row for each of n instances and a row for the bag, and a column for each of f features and
    a column for the label.

    Parameters
    ----------
    width : int
        Size of the vector in a cell.
    depth, heads : int
        Number of blocks, and of the heads of each attention.
    """

    def __init__(self, width: int = 64, depth: int = 6, heads: int = 4) -> None:
        super().__init__()
        self.sizes = {"width": width, "depth": depth, "heads": heads}
        self.value = nn.Sequential(nn.Linear(3, width), nn.GELU(), nn.Linear(width, width))
        self.label = nn.Embedding(3, width)  # negative, positive, not known
        self.blank = nn.Parameter(torch.randn(2, width) * 0.1)  # a feature of the bag, and the label of an instance
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(depth))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return logits [T, q] of the last q of m + q bags of T tasks.

        Parameters
        ----------
        x : Tensor [T, m + q, n, f]
            Features, any real number.
        labels : Tensor [T, m]
            Labels 0 or 1 of the first m bags.
        """
        tasks, bags, instances, features = x.shape
        known = labels.shape[1]
        x = standardized(x, known)
        cells = self.value(torch.stack([x, x.sign() * x.abs().log1p(), x.abs()], dim=-1))
        label = self.label(pad(labels.long(), (0, bags - known), value=2))[:, :, None, None]
        top = torch.cat([self.blank[0].expand(tasks, bags, 1, features, -1), label], dim=3)
        below = torch.cat([cells, self.blank[1].expand(tasks, bags, instances, 1, -1)], dim=3)
        table = torch.cat([top.to(below.dtype), below], dim=2)  # [T, bags, 1 + n, f + 1, width]
        for block in self.blocks:
            table = block(table, known)
        return self.last(table[:, known:, 0, -1])[..., 0].float()


class _Block(nn.Module):
    """Attention over the rows of a bag, over its columns, and over bags; then a small network in each cell."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.rows, self.columns, self.bags = (_Attention(width, heads) for _ in range(3))
        self.of_instance, self.of_bag = _mlp(width, 2), _mlp(width, 4)

    def forward(self, table: Tensor, known: int) -> Tensor:
        table = table + self.rows(table.transpose(2, 3)).transpose(2, 3)
        table = table + self.columns(table)
        top, below = table[:, :, :1], table[:, :, 1:]
        across = top.permute(0, 2, 3, 1, 4)  # [T, 1, f + 1, bags, width]
        top = top + self.bags(across, known=known).permute(0, 3, 1, 2, 4)
        return torch.cat([top + self.of_bag(top), below + self.of_instance(below)], dim=2)


class _Attention(nn.Module):
    """Attention over the last axis but one; the keys are the first `known` of it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.query, self.pair = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor, known: int | None = None) -> Tensor:
        x = self.norm(x)
        length, width = x.shape[-2:]
        flat = x.reshape(-1, length, width)
        query = self._split(self.query(flat))
        key, value = (self._split(half) for half in self.pair(flat[:, :known]).chunk(2, dim=-1))
        parts = [slice(first, first + _GROUPS) for first in range(0, len(flat), _GROUPS)]
        found = torch.cat([scaled_dot_product_attention(query[part], key[part], value[part]) for part in parts])
        out: Tensor = self.out(found.transpose(1, 2).reshape(x.shape))
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


def _mlp(width: int, factor: int) -> nn.Sequential:
    out = nn.Linear(factor * width, width)
    nn.init.zeros_(out.weight)
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, factor * width), nn.GELU(), out)


def standardized(x: Tensor, known: int) -> Tensor:
    """Standardize features [T, bags, n, f] by the instances of the first `known` bags; clip at 6 deviations.

    Examples
    --------
    >>> standardized(torch.tensor([1.0, 3.0, 5.0]).reshape(1, 3, 1, 1), 2).flatten().tolist()
    [-1.0, 1.0, 3.0]
    """
    seen = x[:, :known].flatten(1, 2)
    mean, deviation = seen.mean(dim=1), seen.std(dim=1, correction=0)
    scaled = (x - mean[:, None, None]) / deviation.clamp(min=1e-6)[:, None, None]
    return scaled.clamp(-_CLIP, _CLIP)


@dataclass(frozen=True)
class Shape:
    """Number of tasks in a step, of bags, instances of a bag, features, and labeled bags."""

    tasks: int
    bags: int
    instances: int
    features: int
    known: int


def random_shape(random: torch.Generator, *, cells: int) -> Shape:
    """Draw the shape of a step with about so many cells."""
    bags = _choose((48, 64, 96, 128, 192, 256), random)
    instances, features = _choose((2, 4, 8, 12, 16, 24), random), _choose((4, 8, 16, 24, 32, 48, 64), random)
    if bags * instances * features > 100_000:
        bags //= 2
    known = int(bags * (0.5 + 0.4 * torch.rand((), generator=random).item()))
    rows, columns = instances + 1, features + 1
    tasks = min(cells // (bags * rows * columns), 120_000 // (bags * max(rows, columns)), 256)
    return Shape(max(1, tasks), bags, instances, features, known)


def _choose(values: Sequence[int], random: torch.Generator) -> int:
    return values[int(torch.randint(len(values), (), generator=random))]


class Prior:
    """Made-up tasks: bags of instances from a few clusters, and a rule for the label of a bag.

    A rule scores instances (a direction, a small network, the distance to an instance, thresholds on three features, or
    a cluster), pools the scores (maximum, log-mean-exp, mean, share above a threshold, deviation, attention by another
    rule, or the smaller of two maxima), and cuts the noisy result at a quantile. In a quarter of the tasks, positive
    bags instead get one to several instances that are moved in a few features. At last, each feature may be warped,
    cut off below a threshold, or rounded.
    """

    def __init__(self, random: torch.Generator) -> None:
        self._random, self._device = random, random.device

    def draw(self, shape: Shape) -> tuple[Tensor, Tensor]:
        """Return features [T, bags, n, f] and labels [T, bags]."""
        tasks, bags, n = shape.tasks, shape.bags, shape.instances
        x, cluster = self._instances(shape)
        sizes = self._integers(tasks, bags, low=1, high=n + 1)
        sizes = torch.where(self._uniform(tasks, 1) < 0.5, n, sizes)  # half of the tasks: bags of one size
        moved = self._uniform(tasks) < 0.25
        with_witnesses, of_moved = self._with_witnesses(x, sizes)
        x = torch.where(moved[:, None, None, None], with_witnesses, x)
        # A smaller bag repeats its instances, so that all bags have n rows.
        index = torch.arange(n, device=self._device) % sizes[..., None]
        x = x.gather(2, index[..., None].expand_as(x))
        cluster = cluster.gather(2, index)
        logit = self._bag_score(x, cluster)
        logit = logit + self._between(0.02, 1.0, tasks, 1) * self._normal(tasks, bags)
        share = 0.5 + (self._uniform(tasks, 1) - 0.5) * self._between(0.1, 0.8, tasks, 1)
        rank = logit.argsort(dim=1).argsort(dim=1).float() / bags
        labels = torch.where(moved[:, None], of_moved, rank > share)
        return self._warped(x), labels.float()

    def _instances(self, shape: Shape) -> tuple[Tensor, Tensor]:
        """Return instances [T, bags, n, f] from clusters in a latent space, and their clusters [T, bags, n]."""
        tasks, bags, n, features = shape.tasks, shape.bags, shape.instances, shape.features
        latent, count = 16, 8
        popular = self._normal(tasks, 1, count) * self._between(0.1, 3.0, tasks, 1, 1)
        shares = (popular + self._normal(tasks, bags, count) * self._between(0.1, 3.0, tasks, 1, 1)).softmax(dim=-1)
        cluster = torch.multinomial(shares.flatten(0, 1), n, replacement=True, generator=self._random)
        cluster = cluster.reshape(tasks, bags, n)
        centers = self._normal(tasks, count, latent) * self._between(0.05, 3.0, tasks, 1, 1)
        z = centers.gather(1, cluster.flatten(1)[..., None].expand(-1, -1, latent)).reshape(tasks, bags, n, latent)
        z = z + self._normal(tasks, bags, 1, latent) * self._between(0.02, 1.0, tasks, 1, 1, 1)
        z = z + self._normal(tasks, bags, n, latent)
        dense = self._uniform(tasks, latent, features) < self._between(0.05, 1.0, tasks, 1, 1)
        weights = self._normal(tasks, latent, features) * dense
        weights = weights / weights.norm(dim=1, keepdim=True).clamp(min=1e-3)
        own = self._uniform(tasks, 1, features) ** 0.5
        x = (z.flatten(1, 2) @ (weights * (1 - own**2).sqrt())).reshape(tasks, bags, n, features)
        return x + self._normal(tasks, bags, n, features) * own[:, None], cluster

    def _with_witnesses(self, x: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Return instances of which one to several of each positive bag are moved, and the labels [T, bags]."""
        tasks, bags, n, features = x.shape
        labels = self._uniform(tasks, bags) < 0.5 + 0.3 * (self._uniform(tasks, 1) - 0.5)
        most = (sizes * self._uniform(tasks, 1)).long().clamp(min=1)
        count = (self._uniform(tasks, bags) * most).long() + 1
        chosen = torch.arange(n, device=self._device) < count[..., None]
        active = self._active(tasks, features)
        by = self._normal(tasks, features) * active
        by = by / by.norm(dim=1, keepdim=True).clamp(min=1e-3) * self._between(1.0, 6.0, tasks, 1)
        where = (labels[..., None] & chosen)[..., None]
        return x + where * by[:, None, None], labels

    def _active(self, tasks: int, features: int) -> Tensor:
        """Choose the features that a rule reads [T, f]: few or many of them."""
        share = self._between(0.02, 1.0, tasks, 1).clamp(min=1.0 / features)
        noise = self._uniform(tasks, features)
        return (noise < share) | (noise == noise.min(dim=1, keepdim=True).values)

    def _instance_score(self, x: Tensor, cluster: Tensor) -> Tensor:
        """Return scores [T, bags, n] of instances by one of five rules, standardized in each task."""
        tasks, bags, n, features = x.shape
        active = self._active(tasks, features)
        flat = x.flatten(1, 2)
        weights = self._normal(tasks, features, 1) * active[..., None]
        line = (flat @ weights)[..., 0]
        spread = active[..., None] * 1.5 / active.sum(dim=1)[:, None, None] ** 0.5
        hidden = torch.tanh(flat @ (self._normal(tasks, features, 12) * spread) + self._normal(tasks, 1, 12))
        curve = (hidden @ self._normal(tasks, 12, 1))[..., 0]
        pick = self._integers(tasks, 1, 1, low=0, high=bags * n).expand(-1, 1, features)
        near = -((flat - flat.gather(1, pick)) ** 2 * active[:, None]).sum(dim=-1)
        three = self._integers(tasks, 3, low=0, high=features)
        cut = flat.gather(2, three[:, None].expand(-1, bags * n, -1)) * self._sign(tasks, 1, 3)
        box = (cut / cut.std(dim=1, keepdim=True).clamp(min=1e-3) - self._normal(tasks, 1, 3) * 0.7).sort(dim=-1).values
        box = torch.where(self._uniform(tasks, 1) < 0.5, box[..., 0], box[..., 1])
        inside = (cluster.flatten(1) == self._integers(tasks, 1, low=0, high=8)).float()
        rules = torch.stack([line, curve, near, box, inside + 0.05 * line / line.std(dim=1, keepdim=True)])
        chosen = rules[self._integers(tasks, low=0, high=5), torch.arange(tasks, device=self._device)]
        chosen = (chosen - chosen.mean(1, keepdim=True)) / chosen.std(1, keepdim=True).clamp(min=1e-3)
        return chosen.reshape(tasks, bags, n)

    def _bag_score(self, x: Tensor, cluster: Tensor) -> Tensor:
        """Return scores [T, bags], standardized in each task: one rule pooled, or the sum of two of them."""
        tasks = len(x)
        first, second = self._instance_score(x, cluster), self._instance_score(x, cluster)
        both = torch.where(self._uniform(tasks, 1) < 0.3, self._normal(tasks, 1), 0.0)
        return _unit(_unit(self._pooled(first, second)) + both * _unit(self._pooled(second, first)))

    def _pooled(self, scores: Tensor, other: Tensor) -> Tensor:
        tasks, n = len(scores), scores.shape[-1]
        sharp = self._between(0.5, 8.0, tasks, 1, 1)
        pooled = torch.stack(
            [
                scores.max(dim=-1).values,
                (torch.logsumexp(sharp * scores, dim=-1) - math.log(n)) / sharp[..., 0],
                scores.mean(dim=-1),
                torch.sigmoid(5 * (scores - self._normal(tasks, 1, 1))).mean(dim=-1),
                scores.std(dim=-1, correction=0),
                ((2 * other).softmax(dim=-1) * scores).sum(dim=-1),
                torch.minimum(scores.max(dim=-1).values, other.max(dim=-1).values),
            ]
        )
        return pooled[self._integers(tasks, low=0, high=len(pooled)), torch.arange(tasks, device=self._device)]

    def _warped(self, x: Tensor) -> Tensor:
        """Warp features [T, bags, n, f]: each as it is, by a power, exponentially, cut off below, rounded."""
        tasks, features = len(x), x.shape[-1]
        mean, deviation = x.mean(dim=(1, 2), keepdim=True), x.std(dim=(1, 2), keepdim=True).clamp(min=1e-6)
        x, size = (x - mean) / deviation, self._between(0.3, 1.5, tasks, 1, 1, features)
        above = x - self._normal(tasks, 1, 1, features) * 0.8
        kinds = [
            x,
            x.sign() * x.abs() ** (1 + size),
            (size * x).exp(),
            above.clamp(min=0.0) * (0.5 * x).exp(),
            (x / size).round(),
            (above > 0).float(),
        ]
        usual = self._uniform(tasks, 1) < self._uniform(tasks, 1)
        kind = torch.where(
            self._uniform(tasks, features) < self._uniform(tasks, 1),
            self._integers(tasks, 1, low=0, high=len(kinds)),
            torch.where(usual, 0, self._integers(tasks, features, low=0, high=len(kinds))),
        )[:, None, None]
        warped = torch.zeros_like(x)
        for number, values in enumerate(kinds):
            warped = torch.where(kind == number, values, warped)
        return warped

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, device=self._device, generator=self._random)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self._device, generator=self._random)

    def _between(self, low: float, high: float, *shape: int) -> Tensor:
        """Draw numbers between two, uniform in their logarithm."""
        return (math.log(low) + (math.log(high) - math.log(low)) * self._uniform(*shape)).exp()

    def _integers(self, *shape: int, low: int, high: int) -> Tensor:
        return torch.randint(low, high, shape, device=self._device, generator=self._random)

    def _sign(self, *shape: int) -> Tensor:
        return self._integers(*shape, low=0, high=2) * 2.0 - 1.0


def _unit(scores: Tensor) -> Tensor:
    return (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True).clamp(min=1e-3)


@torch.inference_mode()
def predict(
    network: PriorFitted,
    instances: Tensor,
    starts: Tensor,
    sizes: Tensor,
    *,
    labels: Tensor,
    test: Tensor,
    seed: int,
    views: int = 4,
) -> Tensor:
    """Return the scores in [0, 1] of test bags from labeled bags: the mean logit over several views of the task.

    A view takes up to 12 instances of each bag and up to 512 labeled bags at random, and either up to 48 features at
    random, or up to 24 principal components of the labeled bags.

    Parameters
    ----------
    instances : Tensor [N, f]
        Features of all instances.
    starts, sizes : Tensor [bags]
        First row and number of rows of each bag.
    labels : Tensor [m, 2]
        Numbers of the labeled bags, and their labels.
    test : Tensor [q]
        Numbers of the bags to score.
    """
    random = torch.Generator().manual_seed(seed)
    device, logits = next(network.parameters()).device, torch.zeros(len(test))
    for view in range(views):
        kept = labels[torch.randperm(len(labels), generator=random)[:_MOST_KNOWN]]
        every = torch.cat([kept[:, 0], test])
        rows = starts[every, None] + _sample(sizes[every], random)
        x = instances[rows].to(device)
        x = _components(x, len(kept)) if view % 2 else _some_features(x, len(kept), random)
        known, rest = x[: len(kept)], x[len(kept) :]
        most = max(1, _MOST_CELLS // (x.shape[1] * x.shape[2]) - len(known))
        y, parts = kept[None, :, 1].to(device).float(), []
        for part in (rest[first : first + most] for first in range(0, len(rest), most)):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                parts.append(network(torch.cat([known, part])[None], y)[0].cpu())
        logits += torch.cat(parts) / views
    return logits.double().sigmoid()


def _sample(sizes: Tensor, random: torch.Generator) -> Tensor:
    """Choose instances [bags, n] of each bag at random; a bag of fewer than n repeats them."""
    n, largest = min(_MOST_INSTANCES, int(sizes.max())), int(sizes.max())
    keys = torch.rand(len(sizes), largest, generator=random)
    order = keys.masked_fill(torch.arange(largest) >= sizes[:, None], 2.0).argsort(dim=1)
    return order.gather(1, torch.arange(n) % sizes.clamp(max=n)[:, None])


def _some_features(x: Tensor, known: int, random: torch.Generator) -> Tensor:
    seen = x[:known].flatten(0, 1)
    varied = (seen != seen[0]).any(dim=0).nonzero()[:, 0].cpu()
    return x[..., varied[torch.randperm(len(varied), generator=random)[:_MOST_FEATURES]].to(x.device)]


def _components(x: Tensor, known: int) -> Tensor:
    x = standardized(x[None].double(), known)[0]
    seen = x[:known].flatten(0, 1)
    values, vectors = torch.linalg.eigh(seen.T @ seen / len(seen))
    count = min(_MOST_COMPONENTS, int((values > 1e-6 * values.max()).sum()))
    return (x @ vectors[:, -count:]).float()


def fit(
    network: PriorFitted,
    *,
    seconds: float,
    device: torch.device,
    cells: int,
    seed: int = 0,
    lr: float = 1.5e-3,
    every: float = 15.0,
) -> None:
    """Fit a network to made-up tasks for so many seconds; writes its loss to the log every so many seconds."""
    network.to(device).train()
    groups = [p for p in network.parameters() if p.ndim > 1], [p for p in network.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": 0.01}, {"params": groups[1], "weight_decay": 0.0}],
        lr=lr,
        betas=(0.9, 0.98),
    )
    shapes, prior = torch.Generator().manual_seed(seed), Prior(torch.Generator(device).manual_seed(seed))
    started, shown, step, losses = time.perf_counter(), 0.0, 0, list[Tensor]()
    while (spent := time.perf_counter() - started) < seconds:
        rate = lr * min(1.0, (step + 1) / 200) * (0.01 + 0.99 * (1 + math.cos(math.pi * spent / seconds)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        shape = random_shape(shapes, cells=cells)
        x, labels = prior.draw(shape)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = network(x, labels[:, : shape.known])
        loss = binary_cross_entropy_with_logits(logits, labels[:, shape.known :])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        step += 1
        if spent - shown > every:
            _log.info("%.0f s, step %d: loss %.4f", spent, step, torch.stack(losses).mean())
            shown, losses = spent, []
    network.eval()


def save(network: PriorFitted, path: Path) -> None:
    """Save a network: its sizes and its weights in half precision."""
    weights = {name: value.half().cpu() for name, value in network.state_dict().items()}
    torch.save({"sizes": network.sizes, "weights": weights}, path)


def load(path: Path) -> PriorFitted:
    """Load a network."""
    saved = torch.load(path, weights_only=True)
    network = PriorFitted(**saved["sizes"])
    network.load_state_dict({name: value.float() for name, value in saved["weights"].items()})
    return network.eval()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fit the network to made-up bags.")
    parser.add_argument("weights", type=Path, help="file to write")
    parser.add_argument("--seconds", type=float, default=400.0, help="time of the fit")
    parser.add_argument("--width", type=int, default=64, help="size of the vector in a cell")
    parser.add_argument("--depth", type=int, default=6, help="number of blocks")
    parser.add_argument("--cells", type=int, default=400_000, help="cells in a step")
    parser.add_argument("--start", type=Path, help="network to fit further")
    parser.add_argument("--seed", type=int, default=0, help="seed of the made-up bags")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    made = load(given.start) if given.start else PriorFitted(given.width, given.depth)
    found = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fit(made, seconds=given.seconds, cells=given.cells, seed=given.seed, device=found)
    save(made, given.weights)
