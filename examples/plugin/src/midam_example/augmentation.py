"""An augmentation: a random change of each instance of a training step."""

from torch import Tensor

from midam.train.augment import Augmentation


class Noise(Augmentation):
    """Add to each instance up to a tenth of its own standard deviation, the same for all pixels."""

    draws = 1

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """Return changed instances."""
        shift = 0.2 * u[:, 0] - 0.1
        return x + (shift * x.flatten(1).std(dim=1)).view(-1, *[1] * (x.ndim - 1))
