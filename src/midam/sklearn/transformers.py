"""Transformers from bags to rows, for use with any classifier of scikit-learn."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from midam.data.bags import Bags
from midam.data.column_codes import Prepared, prepare
from midam.data.statistics import USUAL, bag_statistics
from midam.evaluate.predict import inputs_of, prepared
from midam.lazy_imports import pandas as pd
from midam.names import name_of
from midam.nn.scorer import Inputs
from midam.settings import Settings
from midam.sklearn.base import BagEstimator
from midam.sklearn.inputs import bags_of, is_frame, warn_of_known_groups


class PerInstance(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transforms the instances of bags by a transformer of scikit-learn, in a pipeline before an estimator of bags.

    It is fitted on all instances of the bags of `fit`, with equal weight and without labels. For a DataFrame with a
    MultiIndex (bag, instance), and for `Bags` with names, the transformer gets a DataFrame, so that a ColumnTransformer
    finds columns by name, also text columns; missing values are NaN. The result is a DataFrame for a DataFrame, else
    `Bags`.

    Parameters
    ----------
    transformer : transformer
        Such as StandardScaler(), SimpleImputer(), PCA() or a ColumnTransformer; it is cloned.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> PerInstance(StandardScaler()).fit_transform([[[0.0], [2.0]], [[4.0]]])[1].round(2).tolist()
    [[1.22]]
    """

    transformer_: Any

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002
        """Fit a clone of the transformer on all instances; y is ignored."""
        self.transformer_ = clone(self.transformer).fit(self._rows(X)[0])
        return self

    def transform(self, X: Any) -> "Bags | pd.DataFrame":
        """Return the same bags with transformed instances."""
        check_is_fitted(self)
        rows, bags = self._rows(X)
        made = self.transformer_.transform(rows)
        array = np.asarray(made.toarray() if issparse(made) else made)
        named = hasattr(self.transformer_, "get_feature_names_out")
        names = list(self.transformer_.get_feature_names_out()) if named else list(getattr(made, "columns", ()))
        if bags is None:
            return pd.DataFrame(array, index=X.index, columns=names or None)
        positions = bags.rows()
        parts = {name: getattr(bags, name) for name in ("coords", "instance_labels")}
        kept = {name: None if part is None else np.asarray(part[positions]) for name, part in parts.items()}
        known = names if names and bags.feature_names is not None else None
        return bags.replace(instances=array, starts=None, feature_names=known, columns=None, digests=None, **kept)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the transformed features."""
        check_is_fitted(self)
        return np.asarray(self.transformer_.get_feature_names_out(input_features), dtype=object)

    def _rows(self, X: Any) -> "tuple[NDArray[Any] | pd.DataFrame, Bags | None]":
        """Return the instances of X as rows, and its bags; None for a DataFrame, whose index holds the bags."""
        if is_frame(X):  # scikit-learn ignores names that are no text, and takes columns in another order
            names = [name if isinstance(name, str) else name_of(name) for name in X.columns]
            return X.set_axis(names, axis=1).reset_index(drop=True), None
        bags = bags_of(X, estimator=self, missing=True)
        rows = np.asarray(bags.instances[bags.rows()])
        if bags.feature_names is None:
            return rows, bags
        frame = pd.DataFrame(rows, columns=list(bags.feature_names))
        for column in bags.columns or ():
            if column.kind == "category":
                words = np.array([*column.words, None], dtype=object)
                frame[column.name] = words[frame[column.name].to_numpy(dtype=np.int64)]
        return frame, bags


class BagStatistics(TransformerMixin, BagEstimator):  # type: ignore[misc]
    """Statistics of each feature over the instances of a bag: from N bags to rows, K = 4 D columns by default.

    X is that of `midam.MIDAMClassifier`. The baselines `bag-statistics-logistic` and `bag-statistics-extratrees` of
    `midam compare` are trained on the same statistics.

    Parameters
    ----------
    statistics : sequence of str, default ("mean", "min", "max", "std")
        Subset of "mean", "min", "max", "std", "median" and "size", the number of instances (one column).
    impute : {"none", "mean", "median", "zero"}, default "none"
        Fills missing values of the features, as learned in `fit`; "none" refuses them. Categories and dates become
        features as in `midam fit`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> bags = [[[0.0, 1.0], [0.5, 1.0]], [[3.0, 0.0]], [[0.2, 0.3]], [[2.0, 0.1], [4.0, 0.2]]]
    >>> make_pipeline(BagStatistics(("mean", "max")), LogisticRegression()).fit(bags, ["no", "yes"] * 2).predict(bags)
    array(['no', 'yes', 'no', 'yes'], dtype='<U3')
    """

    inputs_: Inputs

    def __init__(self, statistics: tuple[str, ...] = USUAL, impute: str = "none") -> None:
        self.statistics = statistics
        self.impute = impute

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002
        """Learn the features, and the names of bags and groups, by which a leak is noticed; y is ignored."""
        with self._all_or_nothing():
            bags = self._learn_features(X)
            made = Prepared(bags)
            if bags.columns is not None or self.impute != "none":
                made = prepare(bags, Settings(impute=self.impute).data, train=np.arange(len(bags)))
            learned = {"imputed": made.imputed, "columns": made.columns, "feature_names": made.bags.feature_names}
            self.inputs_ = inputs_of({"instance_shape": made.bags.instance_shape, **learned})
        self._seen: tuple[Any, Any] = ([] if bags.groups is None else np.unique(bags.groups), bags.ids)
        return self

    def transform(self, X: Any) -> "NDArray[np.float64] | pd.DataFrame":
        """Return the rows of the bags, float64 [N, K]; a DataFrame with a MultiIndex gives a DataFrame of the bags."""
        check_is_fitted(self)
        bags = self._match_features(X)
        warn_of_known_groups(bags, *self._seen)
        rows = bag_statistics(prepared(self.inputs_, bags), np.arange(len(bags)), self.statistics)
        if not is_frame(X) or X.index.nlevels == 1:
            return rows
        names = X.index.get_level_values(0)
        return pd.DataFrame(rows, names[~names.map(name_of).duplicated()], self.get_feature_names_out())

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the columns, [K]; `input_features` name the features if X had no names."""
        check_is_fitted(self)
        features = _check_feature_names_in(self, input_features).tolist()
        features = features if self.inputs_.columns is None else list(self.inputs_.columns.features)
        named = [["size"] if s == "size" else [f"{s}_{feature}" for feature in features] for s in self.statistics]
        return np.array([name for names in named for name in names], dtype=object)
