"""Parts of scorers that are fitted elsewhere: a forest of decision trees and a linear model, as plain arrays."""

import torch
from torch import Tensor, nn

_ROWS_AT_A_TIME = 512


class Widened(nn.Module):
    """An encoder that changes no number: instances in float64, their axes from `start` on as one.

    Parameters
    ----------
    start : int
        1 for feature vectors [M, D]; 2 keeps the channels of images apart, [M, C, P].
    """

    def __init__(self, start: int = 1) -> None:
        super().__init__()
        self.start = start

    def forward(self, x: Tensor) -> Tensor:
        """Instances x [M, ...] in float64."""
        return x.double().flatten(self.start)


class Forest(nn.Module):
    """The mean of the leaves that rows reach in decision trees; as scikit-learn does, rows are rounded to float32.

    The nodes of all trees stand in one array, a child behind its parent; a leaf is its own child.

    Parameters
    ----------
    width : int
        Columns of a row, W.
    trees, nodes : int
        Number of trees, and of the nodes of all of them.

    Attributes
    ----------
    roots : Tensor [T], int64
        First node of each tree.
    branches : Tensor [N, 2], int64
        Next node where the feature is at most the threshold, and where it is above.
    feature : Tensor [N], int64
        Column that is looked at, in [0, W).
    threshold, value : Tensor [N], float64
        Of each node; the value, in [0, 1], counts in leaves alone.
    offset : Tensor [W], float64, optional
        Subtracted from a row before it is rounded.
    """

    offset: Tensor | None

    roots: Tensor
    branches: Tensor
    feature: Tensor

    def __init__(self, width: int, *, trees: int, nodes: int, shifted: bool = False) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("roots", torch.zeros(trees, dtype=torch.int64))
        self.register_buffer("branches", torch.zeros(nodes, 2, dtype=torch.int64))
        self.register_buffer("feature", torch.zeros(nodes, dtype=torch.int64))
        self.register_buffer("offset", torch.zeros(width, dtype=torch.float64) if shifted else None)
        self.threshold = _frozen(nodes)
        self.value = _frozen(nodes)

    def check(self) -> None:
        """Raise a `ValueError` for arrays that are no trees: no row would come to a leaf."""
        own = torch.arange(len(self.feature)).unsqueeze(1)
        leaf = (self.branches == own).all(dim=1)
        sound = bool(((self.branches > own).all(dim=1) | leaf).all()) and bool((self.branches < len(own)).all())
        sound = sound and bool(((self.roots >= 0) & (self.roots < len(own))).all())
        if not (sound and len(self.roots) and bool(((self.feature >= 0) & (self.feature < self.width)).all())):
            raise ValueError("nodes that make no decision trees")
        if not bool(((self.value >= 0) & (self.value <= 1)).all()):
            raise ValueError("leaves outside [0, 1]")

    def forward(self, x: Tensor) -> Tensor:
        """Mean leaf [K] in [0, 1] of rows x [K, W]."""
        return torch.cat([self._reached(part) for part in torch.split(x, _ROWS_AT_A_TIME)])

    def _reached(self, x: Tensor) -> Tensor:
        """Mean leaf [K] of some rows; a path that has come to its leaf is not looked at again."""
        x = x if self.offset is None else x - self.offset
        trees, numbers = len(self.roots), x.float().double().flatten()
        inner, following = self.branches[:, 0] != torch.arange(len(self.branches)), self.branches.flatten()
        leaf = self.roots.repeat(len(x))
        path = inner.index_select(0, leaf).nonzero().squeeze(1)
        node, row = leaf[path], path // trees * self.width
        while len(path):
            seen = numbers.index_select(0, row + self.feature.index_select(0, node))
            node = following.index_select(0, 2 * node + (seen > self.threshold.index_select(0, node)))
            on = inner.index_select(0, node)
            leaf[path[~on]] = node[~on]
            path, node, row = path[on], node[on], row[on]
        return self.value.index_select(0, leaf).view(-1, trees).mean(dim=1)


class Linear(nn.Module):
    """The logistic function of a linear one, in float64.

    Parameters
    ----------
    width : int
        Columns of a row, W.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = _frozen(width), _frozen(1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [K] in [0, 1] of rows x [K, W]."""
        return torch.sigmoid(x @ self.weight + self.bias)


def _frozen(size: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(size, dtype=torch.float64), requires_grad=False)
