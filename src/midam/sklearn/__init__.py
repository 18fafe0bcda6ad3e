"""The scikit-learn interface: a classifier and rankers of bags, and transformers from bags to rows."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.sklearn.classifier import BagClassifier as BagClassifier
    from midam.sklearn.classifier import MIDAMClassifier as MIDAMClassifier
    from midam.sklearn.rankers import MIDAMRanker as MIDAMRanker
    from midam.sklearn.rankers import MIDAMSurvival as MIDAMSurvival
    from midam.sklearn.transformers import BagStatistics as BagStatistics
    from midam.sklearn.transformers import PerInstance as PerInstance

__all__, __getattr__, __dir__ = exports(__name__)
