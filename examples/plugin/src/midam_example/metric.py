"""A metric: a function of labels and scores."""

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score


def partial_auroc(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float:
    """Return the AUROC up to a false positive rate of 0.2, standardized so that chance is 0.5 (McClish 1989)."""
    return float(roc_auc_score(labels, scores, max_fpr=0.2))
