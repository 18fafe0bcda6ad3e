"""Networks: encoders, poolings, scorers, the standardizer; tracked pooling and losses for any torch loop."""

from midam.nn import encoders, pooling
from midam.nn.encoders import *  # noqa: F403
from midam.nn.objectives import BCELoss, CoxLoss, CrossEntropyLoss, MinMaxAUCLoss, Objective, PairwiseAUCLoss
from midam.nn.partial_auc import AveragePrecisionLoss, PartialAUCLoss
from midam.nn.pooling import *  # noqa: F403
from midam.nn.scorer import (
    BagEnsemble,
    BagOutput,
    BagScorer,
    CovariateTerm,
    column_of,
    columns_of,
    scorers_of,
    without_standardizer,
)
from midam.nn.standardizer import Standardizer
from midam.nn.tracked import TrackedPooling, commit

__all__ = ["BagEnsemble", "BagOutput", "BagScorer", "CovariateTerm", "Standardizer"]
__all__ += ["column_of", "columns_of", "scorers_of", "without_standardizer"]
__all__ += ["MinMaxAUCLoss", "Objective", "PairwiseAUCLoss", "TrackedPooling", "commit"]
__all__ += ["AveragePrecisionLoss", "BCELoss", "CoxLoss", "CrossEntropyLoss", "PartialAUCLoss"]
__all__ += encoders.__all__
__all__ += pooling.__all__
