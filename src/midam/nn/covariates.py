"""A linear term of the logit from covariates of a bag, such as age and sex, next to its instances."""

from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class Coder(Protocol):
    """Encodes the covariates of bags as numbers [N, P], as `midam.data.covariate_codes.CovariateCoder` does."""

    @property
    def width(self) -> int:
        """P."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the covariates."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the P columns."""

    def encode(self, bags: Any) -> NDArray[np.float64]:
        """Columns [N, P] of bags."""

    def to_json(self) -> str:
        """Text that `from_json` reads."""

    def from_json(self, text: str) -> Self:
        """The coder of a text; a `ValueError` for one that is none."""


class CovariateTerm(nn.Module):
    """Adds ``w . x`` to the logit of a bag, of its encoded covariates x; w starts at 0.

    The term is exact whatever part of the bag is seen, so that no estimator has to track it. The coder is saved and
    loaded with the weights.

    Parameters
    ----------
    coder : Coder
        Fitted on training bags alone.
    columns : int
        Score columns C; each has weights of its own.

    Attributes
    ----------
    weight : Parameter [P], or [C, P] of several columns
        w: by how much the logit rises with each column of the coder, a deviation of a number, or a category.
    """

    def __init__(self, coder: Coder, *, columns: int = 1) -> None:
        super().__init__()
        self.coder = coder
        self.weight = nn.Parameter(torch.zeros((coder.width,) if columns == 1 else (columns, coder.width)))

    def forward(self, x: Tensor) -> Tensor:
        """Term of the logits, [K] or [K, C], from covariates x [K, P]."""
        x = x.to(self.weight.dtype)
        # No matrix product, which autocast would run in half precision.
        return ((x if self.weight.ndim == 1 else x.unsqueeze(1)) * self.weight).sum(dim=-1)

    def get_extra_state(self) -> Tensor:
        """The coder, as the bytes of a text."""
        return torch.from_numpy(np.frombuffer(self.coder.to_json().encode(), np.uint8).copy())

    def set_extra_state(self, state: Tensor) -> None:
        """Take the coder of a state; a `RuntimeError`, as torch's own, for one that does not fit the weights."""
        self.coder = coder_of(state, self.coder)
        if self.coder.width != self.weight.shape[-1]:
            raise RuntimeError(f"{self.coder.width} covariate columns for {self.weight.shape[-1]} weights")


def coder_of(state: Tensor, kind: Any) -> Any:
    """The coder of an extra state of a `CovariateTerm`, as `kind`, a `Coder` or its class, reads it."""
    return kind.from_json(state.cpu().numpy().tobytes().decode())
