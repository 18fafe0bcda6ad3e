"""Base of the classifier and the transformers: bags from X, and features checked as scikit-learn checks them."""

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.sklearn.inputs import ROWS, bags_of


class BagEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators that take bags.

    Attributes
    ----------
    instance_shape_ : tuple of int
        Shape of one instance.
    n_features_in_ : int
        Numbers in one instance.
    feature_names_in_ : array of str
        Names of the features, where X had some: later input is matched by them, whatever its order.
    """

    instance_shape_: tuple[int, ...]
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    _single: bool

    def _learn_features(self, X: Any) -> Bags:
        """Bags of X, whose features are remembered."""
        bags = bags_of(X, estimator=self)
        self._single = int(bags.sizes.max()) == 1
        self.instance_shape_, self.n_features_in_ = bags.instance_shape, math.prod(bags.instance_shape)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if bags.feature_names is not None:
            self.feature_names_in_ = np.array(bags.feature_names, dtype=object)
        return bags

    def _match_features(self, X: Any) -> Bags:
        """Bags of X with the features that were learned."""
        known, name = getattr(self, "feature_names_in_", None), type(self).__name__
        model = getattr(self, "model_", None)
        fills = model is not None and model.inputs is not None and model.inputs.filling is not None
        bags = bags_of(X, estimator=self, names=None if known is None else known.tolist(), missing=fills)
        if bags.source == ROWS and not self._single:
            raise BagDataError(
                "Expected bags, got rows [N, D], which would be N bags of one instance, and fit had larger ones; give "
                "a single bag as a list of one array, [X]."
            )
        if known is not None and bags.feature_names is None:
            warnings.warn(
                f"X does not have valid feature names, but {name} was fitted with feature names", stacklevel=3
            )
            bags = bags.replace(feature_names=known) if bags.instance_shape == self.instance_shape_ else bags
        elif known is None and bags.feature_names is not None:
            warnings.warn(f"X has feature names, but {name} was fitted without feature names", stacklevel=3)
            bags = bags.replace(feature_names=None)
        if bags.instance_shape != self.instance_shape_:
            found, known = math.prod(bags.instance_shape), self.n_features_in_
            raise BagDataError(
                f"Expected instances of shape {list(self.instance_shape_)} as in fit, got {list(bags.instance_shape)} "
                f"(in {bags.source}): X has {found} features, but {name} is expecting {known} features as input; use "
                "the same features."
            )
        return bags

    def __sklearn_tags__(self) -> Any:
        """Rows, stacks and more are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
