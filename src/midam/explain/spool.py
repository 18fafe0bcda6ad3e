"""The instances of one bag of any size: streamed through the scorers once, and kept in a temporary file."""

import copy
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import WholeBatch
from midam.evaluate.pooled import Member, RemovableBags
from midam.evaluate.predict import InstancePass, evaluation, of_bag, reader_of
from midam.nn.scorer import BagEnsemble, BagScorer, column_of
from midam.settings import usual_chunk

_ROWS_AT_A_TIME = 16384
_NUMBERS_AT_A_TIME = 2**20  # limit of wide values


class SpooledBag(InstancePass, RemovableBags):
    """A pass through a bag's instances that keeps their logits and values in a file; then they can be removed.

    Memory grows with a few numbers for each instance, not with its values. Close it, or use it in a `with` block.

    Parameters
    ----------
    model : BagScorer or BagEnsemble
        Put into evaluation mode for the pass.
    bag : Bags
        The only bag, `midam.evaluate.predict.prepared`.
    column : int, optional
        Score column, from 0; required if the model has several.
    chunk_size : int, optional
        Instances encoded at a time; default: `midam.settings.usual_chunk`.

    Attributes
    ----------
    seen : list of (Tensor, Tensor)
        Scores and logits [m, M] that the pass has yielded.
    """

    def __init__(
        self, model: BagScorer | BagEnsemble, bag: Bags, *, column: int | None = None, chunk_size: int | None = None
    ) -> None:
        chunk_size = usual_chunk(bag.instance_shape) if chunk_size is None else chunk_size
        model = column_of(of_bag(model, bag, 0), column)
        batch = WholeBatch.unlabeled(reader_of(model, bag), torch.tensor([0]))
        super().__init__(model, batch, chunk_size=chunk_size)
        self.members = [*map(Member.of, self.scorers)]
        self.sizes = torch.from_numpy(bag.sizes)
        self.segment = torch.zeros(int(bag.sizes[0]), dtype=torch.int64)
        self.seen: list[tuple[Tensor, Tensor]] = []
        self._kept: Tensor | None = None  # bool [n]
        self._dtype: np.dtype[np.floating[Any]] = np.dtype(np.float32)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def run(self) -> Self:
        """Run the first pass."""
        with evaluation(self._model):
            deque(super().chunks(), maxlen=0)
        return self

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield scores and logits [m, M] of the instances in order, on the CPU, after the first pass."""
        yield from self.seen

    def take(self, positions: Tensor, segment: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return scores and logits of a chunk, and keep them and its pairs."""
        columns = [x for z, v in pairs for x in (z.unsqueeze(-1), v)]
        # Trees may score float64 and its rounding differently; for other scorers, float32 holds all digits.
        self._dtype = np.dtype(np.float64 if any(x.dtype == torch.float64 for x in columns) else np.float32)
        self._file.write(torch.cat([x.cpu() for x in columns], dim=1).numpy().astype(self._dtype).tobytes())
        self.seen.append(super().take(positions, segment, pairs))
        return self.seen[-1]

    def blocks(self, member: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield, in order, the positions of some instances and their pairs by a scorer, in float64."""
        self._file.seek(0)
        ends = np.cumsum([1 + one.pooling.value_size for one in self.members]).tolist()
        width, first, low = ends[-1], 0, 0
        begin, end = ([0, *ends][member], ends[member])
        wide = self._dtype == np.float64
        count = max(1, min(_ROWS_AT_A_TIME, _NUMBERS_AT_A_TIME // width)) if wide else _ROWS_AT_A_TIME
        while data := self._file.read(self._dtype.itemsize * width * count):
            every = np.frombuffer(data, dtype=self._dtype).reshape(-1, width)
            rows = torch.from_numpy(every[:, begin:end].astype(np.float64))
            if self._kept is not None:
                first, rows = first + len(every), rows[self._kept[first : first + len(every)]]
            yield slice(low, low + len(rows)), rows[:, 0], rows[:, 1:]
            low += len(rows)

    def keep(self, kept: NDArray[np.bool_]) -> Self:
        """Return the bag with the instances that the mask `kept` [m] selects; both read one file."""
        other, mask = copy.copy(self), torch.from_numpy(kept)
        other._kept = mask.clone() if self._kept is None else self._kept.clone()
        if self._kept is not None:
            other._kept[self._kept] = mask
        other.segment, other.sizes = self.segment[mask], mask.sum().reshape(1)
        return other
