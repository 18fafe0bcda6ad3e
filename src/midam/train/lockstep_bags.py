"""What trials in lockstep read: instances as each standardises them, and whole bags laid out side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.functional.logmean import reduce_segments
from midam.nn.scorer import BagOutput, first_maximum
from midam.nn.stacked import StackedScorer

_ROWS_AT_A_TIME = 4096
_PADDED_UP_TO = 24


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the instances of K whole bags a trial stand, for M trials: R rows, trial after trial.

    Attributes
    ----------
    positions : int64 Tensor [R]
        Flat positions of the instances.
    segment : int64 Tensor [R]
        Bag of each, in [0, M * K); M * K for rows that pad a trial.
    rows : tuple of M int, or None
        Rows of each trial; None where all have equally many.
    """

    positions: Tensor
    segment: Tensor
    rows: tuple[int, ...] | None


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
        # Padding costs arithmetic, rows of their own a call a trial: of large bags the arithmetic is dearer.
        self._pads = float(bags.sizes.mean()) <= _PADDED_UP_TO

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

    def lay_out(self, index: Tensor) -> Layout:
        """Lay out the whole bags `index` [M, K] of each trial."""
        return (padded if self._pads else side_by_side)(self.starts[index], self.sizes[index])

    def whole(self, layout: Layout) -> Tensor:
        """Instances [R, ...] of whole bags."""
        if layout.rows is None:
            return self.rows(layout.positions.view(len(self._offset), -1))
        if len(self._offset) == 1:
            return self._read(layout.positions)
        return self._read(layout.positions + self._offset.flatten().repeat_interleave(torch.tensor(layout.rows)))

    def rows(self, positions: Tensor) -> Tensor:
        """Instances [M * R, ...] at the flat positions [M, R] of each trial."""
        return self._read((positions + self._offset).flatten())

    @torch.no_grad()
    def _read(self, positions: Tensor) -> Tensor:
        x = self._table.index_select(0, positions.to(self._table.device))
        return x if self._shared is None else self._shared(x)


class ScoredBags:
    """The bags that each trial scores, laid out once: chunks of whole bags, equally many a trial."""

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
            self.chunks.append((reader.lay_out(part), reader.sizes[part].flatten()))
            low = high

    @torch.no_grad()
    def scores(self, model: StackedScorer) -> list[NDArray[np.float64]]:
        """Scores of each trial's bags."""
        model.eval()
        parts = []
        for layout, sizes in self.chunks:
            x = self.reader.whole(layout)
            output = whole_bags(model, x, sizes.to(x.device), layout)
            parts.append(output.score.view(len(self.counts), -1))
        found = torch.cat(parts, dim=1).double().cpu().numpy()
        return [row[:count] for row, count in zip(found, self.counts)]


def whole_bags(model: StackedScorer, x: Tensor, sizes: Tensor, layout: Layout) -> BagOutput:
    """Whole bags of `sizes` [M * K] under plain autograd; of max pooling the maxima alone, where they can be repeated.

    The rows that pad a trial belong to a bag of their own, which is dropped.
    """
    num_bags, segment = len(sizes), layout.segment.to(x.device)
    looking = not model.pooling.smooth and model.repeatable
    with torch.set_grad_enabled(torch.is_grad_enabled() and not looking):
        z, v = model.instances(x, layout.rows)
    n = sizes.to(z.dtype)
    if model.pooling.smooth:
        stat = reduce_segments(z, v, segment, num_bags=num_bags + 1)
        return BagOutput(stat.l[:-1], stat.r[:-1], n, model.pooling)
    top = first_maximum(z, segment, num_bags=num_bags + 1)[:-1]
    if looking and torch.is_grad_enabled():
        return BagOutput(*model.instances(x[top]), n, model.pooling)
    return BagOutput(z[top], v[top], n, model.pooling)


def padded(starts: Tensor, sizes: Tensor) -> Layout:
    """Bags [M, K] with equal rows a trial: those that a trial lacks are of a bag M * K."""
    trials, count = sizes.shape
    ends = sizes.cumsum(dim=1)
    ordinal = torch.arange(int(ends[:, -1].max())).expand(trials, -1).contiguous()
    bag = torch.searchsorted(ends, ordinal, right=True)
    real = bag < count
    bag = bag.clamp(max=count - 1)
    first = (ends - sizes).gather(1, bag)
    positions = torch.where(real, starts.gather(1, bag) + ordinal - first, starts[:, :1])
    segment = bag + torch.arange(trials).unsqueeze(1) * count
    return Layout(positions.flatten(), torch.where(real, segment, trials * count).flatten(), None)


def side_by_side(starts: Tensor, sizes: Tensor) -> Layout:
    """Bags [M, K] with as many rows a trial as they have instances."""
    flat = sizes.flatten()
    segment = torch.arange(len(flat)).repeat_interleave(flat)
    first = flat.cumsum(dim=0) - flat
    positions = starts.flatten()[segment] + torch.arange(len(segment)) - first[segment]
    return Layout(positions, segment, tuple(sizes.sum(dim=1).tolist()))


def _cuts(sizes: Tensor, rows: int) -> list[int]:
    """Ends of runs of bags of at most `rows` instances in each trial; a larger bag stands alone."""
    ends, used = [], torch.zeros(len(sizes), dtype=sizes.dtype)
    for k in range(sizes.shape[1]):
        used = used + sizes[:, k]
        if k and int(used.max()) > rows:
            ends.append(k)
            used = sizes[:, k].clone()
    return [*ends, sizes.shape[1]]
