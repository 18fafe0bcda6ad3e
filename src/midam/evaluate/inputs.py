"""Bags made ready for a model, before anything scores them: features by name, missing values filled."""

import numpy as np

from midam.data.bags import Bags
from midam.data.features import align_features
from midam.data.missing import impute, missing_counts, note_of_filled
from midam.data.on_disk import on_disk
from midam.errors import BagDataError
from midam.nn.ensemble import BagEnsemble
from midam.nn.scorer import BagScorer


def prepared(model: BagScorer | BagEnsemble, bags: Bags) -> Bags:
    """Bags with the features that a model was trained on, as `midam.nn.ensemble.Inputs` says.

    Features are found by name where both have names, and missing values are filled as in training. What is ready is
    returned as it is.

    Raises
    ------
    BagDataError
        If features are missing, there are more or fewer of them, or a value is missing or infinite.
    """
    known = model.inputs if isinstance(model, BagEnsemble) else None
    if known is None:
        return bags
    bags, (width, own) = align_features(bags, known.names, of=known.source), (known.shape, bags.instance_shape)
    if len(width) == 1 and bags.instance_shape != width:
        raise BagDataError(
            f"Expected instances of shape {list(width)}, on which {known.source} was trained, got {list(own)} (in "
            f"{bags.source}); use the same features, or another model."
        )
    if on_disk(bags.instances) or bags.instances.dtype.kind != "f":
        return bags
    bags.check(missing=known.filling is not None)
    if known.filling is None:
        return bags
    counts = missing_counts(bags)
    if not counts.any():
        return bags
    note_of_filled(bags, known.how, counts)
    return impute(bags, np.array(known.filling))
