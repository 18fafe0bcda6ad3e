"""An encoder: any torch.nn.Module from instances to encodings."""

from torch import Tensor, nn


class TwoLayers(nn.Module):
    """Two layers with SiLU for feature vectors of `in_features` numbers."""

    def __init__(self, in_features: int, *, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, D] as [M, width]."""
        encoded: Tensor = self.layers(x)
        return encoded
