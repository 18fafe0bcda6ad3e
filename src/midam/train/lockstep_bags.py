"""What trials in lockstep read: instances as each standardises them, and whole bags padded to equal rows a trial."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch
from midam.functional.logmean import reduce_segments
from midam.nn.scorer import BagOutput, first_maximum
from midam.nn.stacked import StackedScorer

_ROWS_AT_A_TIME = 4096


class TrialReader:
    """The instances of all bags as each trial reads them.

    Parameters
    ----------
    bags : Bags
        Those of all trials, in memory.
    scalers : sequence of nn.Module or None
        One that is the same for all trials is applied at each read; of several, one a trial, each is applied to all
        instances, once.
    device : torch.device
        Where the instances go.
    """

    def __init__(self, bags: Bags, scalers: Sequence[nn.Module | None], *, device: torch.device) -> None:
        self._shared = scalers[0] if len(scalers) == 1 else None
        wanted = [None] if self._shared is not None else scalers
        own = [InstanceReader(bags, device=device, transform=scaler) for scaler in wanted]
        tables = [reader.all for reader in own if reader.all is not None]
        self._table = torch.cat(tables) if len(tables) > 1 else tables[0]
        self._offset = torch.arange(len(own)).unsqueeze(1) * len(bags.instances)
        self.starts, self.sizes = own[0].starts, own[0].sizes

    def drop_zero_features(self) -> Tensor | None:
        """Drop the features that are 0 in every instance and trial; returns the others [D'], None where all stay.

        A feature that does not vary is 0 once it is standardised: of sparse ones, such as fingerprints of molecules,
        many do not.
        """
        if self._shared is not None or self._table.ndim != 2:
            return None
        used = (self._table != 0).any(dim=0)
        if used.all() or not used.any():
            return None
        columns = used.nonzero().squeeze(1)
        self._table = self._table.index_select(1, columns)
        return columns.cpu()

    @torch.no_grad()
    def rows(self, positions: Tensor) -> Tensor:
        """Instances [M * R, ...] at the flat positions [M, R] of each trial."""
        x = self._table.index_select(0, (positions + self._offset).flatten().to(self._table.device))
        return x if self._shared is None else self._shared(x)


class ScoredBags:
    """The bags that each trial scores, laid out once: chunks of whole bags, padded to equal rows a trial."""

    def __init__(self, reader: TrialReader, bags: Sequence[NDArray[np.int64]]) -> None:
        self.reader = reader
        self.counts = [len(own) for own in bags]
        # A trial with fewer bags scores its first one again; nobody reads that.
        width = max(self.counts)
        index = torch.stack([torch.from_numpy(np.resize(own, width)) for own in bags])
        self.chunks = []
        low = 0
        for high in _cuts(self.reader.sizes[index], _ROWS_AT_A_TIME):
            part = index[:, low:high]
            sizes = reader.sizes[part]
            self.chunks.append((*padded(reader.starts[part], sizes), sizes))
            low = high

    @torch.no_grad()
    def scores(self, model: StackedScorer) -> list[NDArray[np.float64]]:
        """Scores of each trial's bags."""
        model.eval()
        parts = []
        for positions, segment, sizes in self.chunks:
            x = self.reader.rows(positions)
            sizes_flat = sizes.flatten().to(x.device)
            batch = SampledBatch(x, sizes_flat, sizes_flat, sizes_flat)
            output = whole_bags(model, batch, segment.flatten().to(x.device))
            parts.append(output.score.view(len(self.counts), -1))
        found = torch.cat(parts, dim=1).double().cpu().numpy()
        return [row[:count] for row, count in zip(found, self.counts)]


def whole_bags(model: StackedScorer, batch: SampledBatch, segment: Tensor) -> BagOutput:
    """Whole bags under plain autograd; the rows that pad a trial belong to a bag of their own, which is dropped."""
    z, v = model.instances(batch.x)
    num_bags = len(batch.index)
    n = batch.sizes.to(z.dtype)
    if not model.pooling.smooth:
        top = first_maximum(z, segment, num_bags=num_bags + 1)[:-1]
        return BagOutput(z[top], v[top], n, model.pooling)
    stat = reduce_segments(z, v, segment, num_bags=num_bags + 1)
    return BagOutput(stat.l[:-1], stat.r[:-1], n, model.pooling)


def padded(starts: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Flat positions [M, R] of the instances of K bags a trial, and the bag [M, R] of each, M * K for padding."""
    trials, count = sizes.shape
    ends = sizes.cumsum(dim=1)
    ordinal = torch.arange(int(ends[:, -1].max())).expand(trials, -1).contiguous()
    bag = torch.searchsorted(ends, ordinal, right=True)
    real = bag < count
    bag = bag.clamp(max=count - 1)
    first = (ends - sizes).gather(1, bag)
    positions = torch.where(real, starts.gather(1, bag) + ordinal - first, starts[:, :1])
    segment = bag + torch.arange(trials).unsqueeze(1) * count
    return positions, torch.where(real, segment, trials * count)


def _cuts(sizes: Tensor, rows: int) -> list[int]:
    """Ends of runs of bags of at most `rows` instances in each trial; a larger bag stands alone."""
    ends, used = [], torch.zeros(len(sizes), dtype=sizes.dtype)
    for k in range(sizes.shape[1]):
        used = used + sizes[:, k]
        if k and int(used.max()) > rows:
            ends.append(k)
            used = sizes[:, k].clone()
    return [*ends, sizes.shape[1]]
