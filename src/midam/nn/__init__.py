"""Networks: encoders, poolings, the scorer that is both, several of them as one, and the standardizer."""

from midam.nn import encoders, pooling
from midam.nn.encoders import *  # noqa: F403
from midam.nn.ensemble import BagEnsemble, column_of, columns_of, scorers_of, without_standardizer
from midam.nn.pooling import *  # noqa: F403
from midam.nn.scorer import BagOutput, BagScorer, CovariateTerm
from midam.nn.stack import Stack, StackedScorer
from midam.nn.standardizer import Standardizer

__all__ = ["BagEnsemble", "BagOutput", "BagScorer", "CovariateTerm", "Stack", "StackedScorer", "Standardizer"]
__all__ += ["column_of", "columns_of", "scorers_of", "without_standardizer"]
__all__ += encoders.__all__
__all__ += pooling.__all__
