"""A plug-in with a network for `midam embed`."""

import torch

from midam.registry import ENCODERS


class Cells(torch.nn.Conv2d):
    """Two numbers for each 16 x 16 pixels."""

    def __init__(self) -> None:
        super().__init__(3, 2, 16, 16)
        torch.nn.init.constant_(self.weight, 1 / 768)
        torch.nn.init.zeros_(self.bias)


ENCODERS.add("cells", Cells)
