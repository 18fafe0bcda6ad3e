"""A baseline for comparisons: only the bag size. A model that is better has learned more than the bag size."""

import numpy as np
from numpy.typing import NDArray

from midam.compare import Baseline
from midam.data import Bags
from midam.evaluate import auroc
from midam.train.side import Trial


class BagSize(Baseline):
    """Give larger bags higher scores, or lower scores if those rank the training bags better."""

    def score(self, bags: Bags, trial: Trial) -> NDArray[np.float64]:
        """Train on the bags `trial.train`, and score the bags `trial.score`."""
        sizes = bags.sizes.astype(np.float64)
        sign = 1 if auroc(bags.require_labels()[trial.train], sizes[trial.train]) >= 0.5 else -1
        return sign * sizes[trial.score]
