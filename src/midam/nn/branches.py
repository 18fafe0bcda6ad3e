"""Several score columns from one pass: where each weighs the instances in its own way, a bag has a row for each.

Of G such branches, instances come with logits z [M, G] and values v [M, G, V]. The statistics know of rows alone: row
``k * G + g`` is branch g of bag k, and row ``j * G + g`` branch g of instance j. With one branch, z [M] and v [M, V],
everything here leaves its arguments as they are.
"""

import torch
from torch import Tensor


def rows_of(index: Tensor, branches: int) -> Tensor:
    """Rows [K * G] of the bags or instances `index` [K].

    Examples
    --------
    >>> rows_of(torch.tensor([2, 0]), 3).tolist()
    [6, 7, 8, 0, 1, 2]
    """
    if branches == 1:
        return index
    return (index.unsqueeze(1) * branches + torch.arange(branches, device=index.device)).flatten()


def each(x: Tensor, branches: int) -> Tensor:
    """Repeat rows of K bags or instances, [K, ...], for each of their G branches: [K * G, ...]."""
    return x if branches == 1 else x.repeat_interleave(branches, dim=0)


def fold(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [M * G] and values [M * G, V] of the rows of instances with z [M, G] and v [M, G, V]."""
    return (z, v) if z.ndim == 1 else (z.flatten(), v.flatten(0, 1))


def fold_chunk(positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positions and bags of instances, int64 [M], beside `fold`: those of their rows, [M * G]."""
    branches = 1 if z.ndim == 1 else z.shape[1]
    return each(positions, branches), rows_of(segment, branches), *fold(z, v)


def fold_slots(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Rows z [K * G, B] and v [K * G, B, V] of samples z [K, B, G] and v [K, B, G, V]."""
    return (z, v) if z.ndim == 2 else (z.transpose(1, 2).flatten(0, 1), v.transpose(1, 2).flatten(0, 1))


def unfold(x: Tensor, branches: int) -> Tensor:
    """By bag and branch, [K, G, ...], what is known of rows, [K * G, ...]."""
    return x if branches == 1 else x.view(len(x) // branches, branches, *x.shape[1:])


def own_branch(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [R] and values [R, V] of R rows in their own branch, of instances z [R, G], v [R, G, V], one for each."""
    if z.ndim == 1:
        return z, v
    row = torch.arange(len(z), device=z.device)
    own = row % z.shape[1]
    return z[row, own], v[row, own]
