"""How the CPU computes a training step: with how many threads, and without denormal numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Run with so many CPU threads; None leaves them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Take numbers closer to 0 than 1.2e-38 for 0 on this thread.

    Late in a training, softmax weights and their gradients fall below that, and make products slow on some processors.
    For training steps alone: bags with scores that small keep their order.
    """
    before = bool(torch.full((1,), 2.0**-126).mul_(0.5) == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
