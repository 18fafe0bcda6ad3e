"""Targets by name, for tests that give plain arrays: figures, decisions, differences."""

import numpy as np

from midam.targets import target_named


def target(name, names=()):
    """The target of this name; of a single name that it does not matter to, any."""
    return target_named({"target": name, "names": [str(one) for one in names]})


def summarize(name, names, values, scores, **options):
    """What `Target.summarize` says."""
    return target(name, names).summarize(np.asarray(values, np.float64), np.asarray(scores, np.float64), **options)


def metric_value(name, values, scores):
    """Main metric of arrays."""
    values = np.asarray(values, np.float64)
    return _sized(name, values, scores).metric_value(values, np.asarray(scores, np.float64))


def estimate(name, values, scores, **options):
    """Main metric with its interval."""
    values = np.asarray(values, np.float64)
    return _sized(name, values, scores).estimate(values, np.asarray(scores, np.float64), **options)


def difference(name, values, a, b, **options):
    """Difference of two main metrics, with bounds and p-value."""
    values = np.asarray(values, np.float64)
    found = _sized(name, values, a).difference(values, np.asarray(a, np.float64), np.asarray(b, np.float64), **options)
    return found[:4]


def decide(name, names, values, scores):
    """Decision fitted on arrays."""
    return target(name, names).decide(np.asarray(values, np.float64), np.asarray(scores, np.float64))


def load_decision(name, content):
    """Decision from its dictionary."""
    return target(name).decided_by.from_dict(content)


def _sized(name, values, scores):
    """The target, with a name of each score column."""
    return target(name, range(np.asarray(scores).reshape(len(values), -1).shape[1]))
