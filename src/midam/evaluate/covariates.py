"""Covariates of bags as a model takes them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from midam.data.bags import Bags
from midam.data.covariate_codes import CovariateCoder
from midam.nn.covariates import coder_of
from midam.nn.ensemble import BagEnsemble, of_covariates, scorers_of
from midam.nn.scorer import BagScorer


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
