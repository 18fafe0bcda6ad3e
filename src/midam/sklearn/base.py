"""Base of the estimators: bags from X, features checked as in scikit-learn, settings as constructor parameters."""

import math
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from midam.data.bags import Bags
from midam.errors import BagDataError, nearest, require
from midam.settings import Settings
from midam.sklearn.inputs import ROWS, bags_of

_FITTED = ("impute", "indicators", "time_features")  # data settings that are fitted on training bags
_OF_FILES = (
    *(name for name in Settings.names("data", "cut") if name not in _FITTED),
    *("test_fraction", "allow_leakage", "logger", "logger_args", "reads", "baseline"),
)
_COMMON = {"folds": 0, "show_progress": False, "random_state": None, "verbose": 0}


class BagEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators that take bags.

    Attributes
    ----------
    instance_shape_ : tuple of int
        Shape of one instance.
    n_features_in_ : int
        Numbers in one instance.
    feature_names_in_ : array of str
        Names of the features, if X had names: later input is matched by name, in any order.
    """

    instance_shape_: tuple[int, ...]
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    impute: str
    _single: bool

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave the estimator as it was before the block, fitted or not, if the block fails or is interrupted."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _learn_features(self, X: Any) -> Bags:
        """Make bags of X, and remember their features."""
        bags = bags_of(X, estimator=self, missing=self.impute != "none")
        self._single = int(bags.sizes.max()) == 1
        self.instance_shape_, self.n_features_in_ = bags.instance_shape, math.prod(bags.instance_shape)
        self.__dict__.pop("feature_names_in_", None)
        if bags.feature_names is not None:
            self.feature_names_in_ = np.array(bags.feature_names, dtype=object)
        return bags

    def _match_features(self, X: Any) -> Bags:
        """Make bags of X, with the features of `fit`."""
        known, name = getattr(self, "feature_names_in_", None), type(self).__name__
        inputs = getattr(getattr(self, "model_", None), "inputs", getattr(self, "inputs_", None))
        missing = inputs is not None and inputs.filling is not None
        kinds = {} if inputs is None or inputs.columns is None else inputs.columns.kinds
        names = None if known is None else known.tolist()
        bags = bags_of(X, estimator=self, names=names, kinds=kinds, missing=missing)
        if bags.source == ROWS and not self._single:
            text = "Expected bags of several instances as in fit, got rows [N, D], which are N bags of one instance"
            raise BagDataError(f"{text}; give a single bag as a list of one array, [X].")
        if known is not None and bags.feature_names is None:
            text = f"X does not have valid feature names, but {name} was fitted with feature names"
            warnings.warn(text, stacklevel=3)
            bags = bags.replace(feature_names=known) if bags.instance_shape == self.instance_shape_ else bags
        elif known is None and bags.feature_names is not None:
            warnings.warn(f"X has feature names, but {name} was fitted without feature names", stacklevel=3)
            bags = bags.replace(feature_names=None)
        if bags.instance_shape != self.instance_shape_:
            width, known = math.prod(bags.instance_shape), self.n_features_in_
            raise BagDataError(
                f"Expected instances of shape {list(self.instance_shape_)} as in fit, got {list(bags.instance_shape)} "
                f"(in {bags.source}): X has {width} features, but {name} is expecting {known} features as input; use "
                "the same features."
            )
        return bags

    def __sklearn_tags__(self) -> Any:
        """Accept rows, stacks and other forms."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.impute != "none"
        return tags


def setting_defaults() -> dict[str, Any]:
    """Return the settings that are parameters of a classifier, with their defaults; None for an empty dictionary."""
    groups = dict(Settings()).values()
    values = {name: value for group in groups for name, value in group if name not in _OF_FILES}
    # All classifiers would share a mutable default.
    return {name: None if isinstance(value, dict) else value for name, value in values.items()}


def chosen_settings(parameters: Mapping[str, Any]) -> Settings:
    """Make settings from the parameters of an estimator; raise a `ConfigError` for invalid values."""
    defaults, values = Settings().flat(), {name: parameters[name] for name in setting_defaults()}
    if parameters["random_state"] is not None:
        require(parameters["random_state"], int, "random_state", "give a whole number")
        values["seed"] = int(parameters["random_state"])
    return Settings(**{name: {} if value is None and defaults[name] == {} else value for name, value in values.items()})


def checked_parameters(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse parameters of a constructor that are none, and say what is meant."""
    for key in (key for key in given if key not in known):
        if key in _OF_FILES:
            text = "it is about files or runs; pass bags, y and groups to fit"
            raise TypeError(f"Expected no parameter {key!r}: {text}.")
        raise TypeError(f"Expected a known parameter, got {key!r}; {nearest(key, known, count=2)}")


class SettingsEstimator(BagEstimator):
    """Base of the estimators whose keyword parameters are the settings, and those that a subclass names.

    The constructor of a subclass names its own parameters, and passes them on with ``**settings``.

    Examples
    --------
    >>> class Sized(SettingsEstimator):
    ...     def __init__(self, *, most=10, **settings):
    ...         super().__init__(most=most, **settings)
    >>> Sized(epochs=3).get_params()["most"], Sized(epochs=3).epochs, Sized().epochs
    (10, 3, 100)
    """

    _defaults: ClassVar[dict[str, Any]] = {}  # that differ from the settings

    def __init__(self, **parameters: Any) -> None:
        known = {name: one.default for name, one in signature(type(self)).parameters.items()}
        checked_parameters(parameters, known)
        self.__dict__.update({**known, **parameters})

    def __init_subclass__(cls) -> None:
        """Give the constructor its whole signature, which scikit-learn reads."""
        super().__init_subclass__()
        if (init := vars(cls).get("__init__")) is not None:
            instance, *named = signature(init).parameters.values()
            extra = {one.name: one.default for one in named if one.kind is Parameter.KEYWORD_ONLY}
            defaults = {**setting_defaults(), **extra, **_COMMON, **cls._defaults}
            keywords = [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in defaults.items()]
            init.__signature__ = Signature([instance, *keywords])
