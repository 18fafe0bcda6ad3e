"""Bags made ready for a model: features by name, missing values filled, covariates encoded."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from midam.data.bags import Bags
from midam.data.covariate_codes import CovariateCoder
from midam.data.missing import align_features, impute, missing_counts, note_of_filled
from midam.data.on_disk import on_disk
from midam.errors import BagDataError
from midam.nn.ensemble import BagEnsemble, of_covariates, scorers_of
from midam.nn.scorer import BagScorer, coder_of


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


def covariates_of(model: BagScorer | BagEnsemble, bags: Bags) -> Tensor | None:
    """Covariates of bags as the model encodes them, float32 [N, P] on its device; None where it takes none.

    A `BagDataError` names what the bags lack. A category that is not known from training is warned of.
    """
    term = scorers_of(model)[0].covariates
    if term is None:
        return None
    return torch.from_numpy(term.coder.encode(bags)).to(term.weight.device, torch.float32)


def of_bag(model: BagScorer | BagEnsemble, bags: Bags, index: int) -> BagScorer | BagEnsemble:
    """The model for bags with the covariates of bag `index`, see `midam.nn.ensemble.of_covariates`."""
    found = covariates_of(model, bags.subset([index]))
    return model if found is None else of_covariates(model, found[0])


def saved_coder(weights: Mapping[str, Tensor]) -> CovariateCoder | None:
    """The coder among the weights of a saved ensemble, its state dictionary; None where it takes no covariates.

    A `ValueError` where it is none.
    """
    state = weights.get("members.0.covariates._extra_state")
    return None if state is None else coder_of(state, CovariateCoder)


def covariate_names(model: BagScorer | BagEnsemble) -> tuple[str, ...]:
    """Names of the covariates that a model takes."""
    term = scorers_of(model)[0].covariates
    return () if term is None else term.coder.names
