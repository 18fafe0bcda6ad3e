"""Covariates of bags as a model takes them."""

import torch
from torch import Tensor

from midam.data.bags import Bags
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
