"""The choice of bags and instances per step (S+, S-, B) for settings that are "auto"."""

import inspect
import math
import warnings

from midam.data.bags import Bags
from midam.errors import Note, plural
from midam.registry import ESTIMATORS
from midam.settings import ResolvedSettings
from midam.targets import target_of

_ENOUGH_STEPS = 2400
_MOST_NUMBERS = 2**23  # in the instances of a step


def choose_batch_size(config: ResolvedSettings, train: Bags) -> ResolvedSettings:
    """Choose the "auto" counts of `config` for these training bags, and name them in a note.

    They are the first of `batch_sizes` whose step holds at most 8 million numbers, such as 55 images of 3 x 224 x 224,
    else the last. Bags of one class raise a `OneClassError`.
    """
    target, largest, draws = target_of(train), int(train.sizes.max()), _draws(config)
    target.check(train)
    positives = int(train.require_labels().sum()) if target.name == "binary" else len(train) // 2
    sizes = batch_sizes(config, largest=largest, counts=(positives, len(train) - positives))
    width = math.prod(train.instance_shape)
    held = ((size, (size[0] + size[1]) * min(size[2], largest) * width) for size in sizes)
    positive, negative, drawn = next((size for size, numbers in held if numbers <= _MOST_NUMBERS), sizes[-1])
    counts = f"{positive} + {negative} whole bags per step"
    if draws:
        counts = f"{plural(drawn, 'instance')} of a bag and {positive} + {negative} bags per step"
    message = f"{counts}: bags hold up to {plural(largest, 'instance')} of {plural(width, 'number')}"
    warnings.warn(message, Note, stacklevel=3)
    return config.replace(num_positive=positive, num_negative=negative, num_instances=drawn)


def batch_sizes(config: ResolvedSettings, *, largest: int, counts: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Return (S+, S-, B) in the order of preference; the last is the smallest possible.

    The first has 16 instances of a bag, or the power of two that holds the `largest` bag, and 8 bags of each class, or
    all of the `counts` (positive, negative); 4 or 2 bags if bags are larger than that and the epochs would take fewer
    than 2400 steps. Then come fewer bags, down to 2 + 2 (more steps per epoch, each with as much of a bag), then fewer
    instances, down to 4, then both.
    """
    training = config.training
    # A single instance has the weight 1, from which nothing is learned, unless the bag's state is tracked.
    least = 1 if ESTIMATORS.find(config.method.estimator).tracks else 2
    drawn = [count for count in (16, 8, 4, 2, 1) if least <= count < 2 * max(largest, least)]
    if training.num_instances != "auto":
        drawn = [training.num_instances]
    elif not _draws(config):
        drawn = drawn[:1]

    def classes(bags: int) -> tuple[int, int]:
        positive = min(bags, counts[0]) if training.num_positive == "auto" else training.num_positive
        return positive, min(bags, counts[1]) if training.num_negative == "auto" else training.num_negative

    def enough(bags: int) -> bool:
        return training.epochs * math.ceil(sum(counts) / sum(classes(bags))) >= _ENOUGH_STEPS

    most = next(bags for bags in (8, 4, 2) if bags == 2 or largest <= drawn[0] or enough(bags))
    pairs = [(bags, count) for count in drawn for bags in (8, 4, 2, 1) if bags <= most]
    # One bag of a class comes with at most 4 of its instances, where they can be fewer.
    return [(*classes(bags), count) for bags, count in pairs if bags > 1 or count <= max(4, drawn[-1])]


def _draws(config: ResolvedSettings) -> bool:
    """Return whether the estimator draws instances."""
    estimator = ESTIMATORS.find(config.method.estimator)
    return not estimator.whole or "num_instances" in inspect.signature(estimator).parameters
