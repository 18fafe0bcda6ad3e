"""`MIDAMClassifier` and `BagClassifier`: bags in, ranks, probabilities and classes out; settings are parameters."""

from midam.sklearn.bag_classifier import BaseClassifier
from midam.sklearn.base import constructor


class MIDAMClassifier(BaseClassifier):
    """Bag classifier that maximizes AUC, for scikit-learn's pipelines, searches and cross-validation.

    y [N] holds two or more classes; with more than two, each is ranked against the rest. y [N, L] of 0 and 1 holds L
    labels, of which a bag may have several; NaN is an unknown label.

    A share of the bags (`val_fraction`, stratified, disjoint by group) is held out of the training: it calibrates the
    probabilities, chooses the operating point at which `predict` separates two classes, and, with ``select="best"``,
    the epoch.

    X, in `fit` and in all other methods, is one of these:

    - `midam.Bags`, as from `midam.read_bags`; their labels and groups are used if y and groups are not given;
    - a DataFrame with a MultiIndex (bag, instance): a row is an instance. Bags are in the order of their first rows; y
      and groups may be Series that have the bags as index;
    - a list of N arrays [n_i, ...], or of N DataFrames;
    - an array [N, n, ...]: N bags of n instances;
    - an array or DataFrame [N, D]: N bags of one instance each.

    Columns with names are matched by name: later input may have them in another order, and further columns.

    Every setting of `midam.settings` (method, training, model and run) that is not about files is a parameter, with the
    same default: `pooling`, `estimator`, `objective`, `epochs`, `lr`, `num_instances`, `members`, `seed`, ... None
    stands for an empty dictionary.

    Parameters
    ----------
    method : str, default "midam"
        "auto" tries a few methods on inner folds of the training bags and keeps a weighted mean of the best; or the
        name of a method of `midam compare` that gives a model. These methods take no settings of a training.
    positive : object, default None
        Label of the positive class of two, the class of bags with witnesses. Default: the positive class of `Bags`,
        else the second of `classes_`.
    warm_start : bool, default False
        `fit` continues from where the last call of `fit` or `partial_fit` ended.
    show_progress : bool, default False
        Show a bar with loss and validation AUROC on standard error.
    random_state : int, optional
        scikit-learn's name of `seed`; if given, it replaces `seed`.
    verbose : int, default 0
        scikit-learn's name of `show_progress`; above 0 the bar is shown.

    Attributes
    ----------
    classes_ : array [C]
        The labels, in ascending order; for y [N, L], the names of its columns, else 0 to L - 1.
    positive_ : object
        The positive class of two; None with more classes.
    target_ : str
        "binary", "multiclass" or "multilabel".
    settings_ : ResolvedSettings
        The settings of the last training, with those that depend on the shape of the instances filled in.
    model_ : BagEnsemble
        The trained scorers, one per member; the score of a bag is their mean.
    history_ : list of dict
        A row per epoch; with ``method="auto"`` a row for each method that was tried.
    calibrator_ : PlattCalibrator or None
        Map from scores of two classes to probabilities; None with ``val_fraction=0``, except for methods without
        epochs.
    threshold_ : float
        Operating point of two classes on the scores of `bag_scores`, by the rule `threshold`; 0.5 without calibrator.
    decision_ : TemperatureCalibrator, LabelCalibrator or None
        Map from scores of more classes, or of labels, to probabilities; None with ``val_fraction=0``.
    instance_shape_, n_features_in_, feature_names_in_ : tuple of int, int, array of str
        Shape of one instance, its count of numbers, and their names if X had names.

    Examples
    --------
    >>> import midam
    >>> bags = midam.read_bags("digits")
    >>> train, test = bags.subset(bags.where_split("train")), bags.subset(bags.where_split("test"))
    >>> classifier = MIDAMClassifier(epochs=20, num_instances=4).fit(train, train.labels)
    >>> classifier.predict_proba(test).shape
    (100, 2)
    """

    __init__ = constructor("MIDAMClassifier", {"method": "midam", "positive": None})


class BagClassifier(MIDAMClassifier):
    """`MIDAMClassifier` that chooses the method as `midam fit` does: the best known answer without settings.

    With ``method=None``, its default, it is "auto" for feature vectors of two classes, and "midam" for images, for more
    classes, for several labels, and with settings of a training. All else is as in `MIDAMClassifier`, except that only
    ``method="midam"`` continues from the last call.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> y = np.arange(40) % 2
    >>> bags = [random.normal(label, 1.0, (4, 2)) for label in y]
    >>> classifier = BagClassifier(seed=0).fit(bags, y)
    >>> classifier.history_[0]["method"], classifier.predict(bags).shape
    ('bag-statistics-extratrees', (40,))
    """

    __init__ = constructor("BagClassifier", {"method": None, "positive": None})
