"""The mean of the weights along the epochs, which is reported in place of the last ones."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from midam.errors import ConfigError
from midam.nn.custom import batch_norms
from midam.train.config import FitConfig

Model = TypeVar("Model", bound=torch.nn.Module)


def make_average(config: FitConfig, model: torch.nn.Module) -> AveragedModel | None:
    """Return a copy of the model that takes the mean of its weights, where the settings ask for one.

    Raises
    ------
    ConfigError
        If the model normalises by the statistics of the batch, which those of no mean of weights are.
    """
    if config.average_from is None:
        return None
    if batch_norms(model):
        raise ConfigError(
            f"Expected no average_from with batch normalisation, got {config.average_from:g}: the mean of the weights "
            "would be scored with the statistics of others; take group normalisation, or leave it out."
        )
    return AveragedModel(model)


def reported_model(model: Model, average: AveragedModel | None) -> Model:
    """Return the mean once weights have entered it, else the model."""
    if average is None or not int(average.n_averaged):
        return model
    return cast("Model", average.module)


def reported_weights(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights that a trainer reports which is in this state (`Trainer.state_dict`)."""
    average: Mapping[str, Tensor] | None = state.get("average")
    if average is None or not int(average["n_averaged"]):
        return dict(state["model"])
    prefix = "module."
    return {name.removeprefix(prefix): tensor for name, tensor in average.items() if name.startswith(prefix)}
