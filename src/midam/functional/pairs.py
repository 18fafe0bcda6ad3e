"""Pairs of bags that a label orders, and the squared hinge over them.

| pairs      | labels                            | bag i belongs above bag j where                                |
|------------|-----------------------------------|----------------------------------------------------------------|
| "binary"   | [K], 0 or 1                       | i is positive and j negative                                   |
| "classes"  | [K, C], 1 for its class, else 0   | i is of the column's class and j is not                        |
| "labels"   | [K, C], 0, 1 or NaN (unknown)     | i has the column's label and j does not                        |
| "order"    | [K, 1], any number                | y_i > y_j                                                      |
| "survival" | [K, 2], time and event (0 or 1)   | i had its event before the time of j: the higher risk is above |

If one bag has its event at the time at which another is censored, the event counts as earlier: the censored bag had no
event until then. Two events at the same time are not comparable, nor are two equal numbers, nor NaN with any number.
"""

from typing import Literal

import torch
from torch import Tensor

Pairs = Literal["binary", "classes", "labels", "order", "survival"]


def comparable(labels: Tensor, *, pairs: Pairs) -> Tensor:
    """Return whether bag i belongs above bag j: bool [K, K, C], with C = 1 except for "classes" and "labels".

    Examples
    --------
    >>> comparable(torch.tensor([[2.0], [1.0], [2.0]]), pairs="order").squeeze(-1).int().tolist()
    [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    >>> time_and_event = torch.tensor([[5.0, 1.0], [5.0, 0.0], [9.0, 1.0]])
    >>> comparable(time_and_event, pairs="survival").squeeze(-1).int().tolist()
    [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    """
    if pairs == "survival":
        time, event = labels[:, :1], labels[:, 1:] > 0
        earlier = time.unsqueeze(1) < time.unsqueeze(0)
        tied = time.unsqueeze(1) == time.unsqueeze(0)
        return event.unsqueeze(1) & (earlier | (tied & ~event.unsqueeze(0)))
    if labels.ndim == 1:
        labels = labels.unsqueeze(1)
    if pairs == "order":
        return labels.unsqueeze(1) > labels.unsqueeze(0)
    return (labels > 0).unsqueeze(1) & (labels == 0).unsqueeze(0)


def squared_hinge(h: Tensor, above: Tensor, *, margin: float = 1.0) -> Tensor:
    """Return the mean squared hinge over the comparable pairs of each column, summed over the columns.

    The squared hinge is ``max(0, c - (h_i - h_j))^2``, with the margin c > 0. `h` [K, C] are scores, `above` [K, K, C]
    is the result of `comparable`. A column without comparable pairs contributes 0.

    Examples
    --------
    >>> h = torch.tensor([[1.0], [0.5]])
    >>> squared_hinge(h, comparable(torch.tensor([[3.0], [2.0]]), pairs="order")).item()
    0.25
    """
    violation = torch.relu(margin - (h.unsqueeze(1) - h.unsqueeze(0)))
    total = (above * violation * violation).sum(dim=(0, 1))
    return (total / above.sum(dim=(0, 1)).clamp(min=1)).sum()
