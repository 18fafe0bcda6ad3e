"""The mean of the weights along the epochs, which is reported in place of the last ones."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from midam.errors import ConfigError
from midam.nn.encoders import batch_norms
from midam.settings import Settings

Model = TypeVar("Model", bound=torch.nn.Module)


class WeightAverage(Generic[Model]):
    """The mean of a model's weights over the epochs that the settings name, if any; refuses batch statistics."""

    def __init__(self, config: Settings, model: Model) -> None:
        self._config, self._model = config, model
        self._mean: AveragedModel | None = None
        if config.training.average_from is None:
            return
        if batch_norms(model):
            raise ConfigError(
                f"Expected no `average_from` with batch normalization, got {config.training.average_from:g}: the mean "
                "of the weights would be scored with the statistics of others; take group normalization, or leave it "
                "out."
            )
        self._mean = AveragedModel(model)

    def update(self, epoch: int) -> None:
        """Let the weights after epoch `epoch` (from 0) enter the mean, where the settings say so."""
        if self._mean is not None and self._config.training.averages(epoch):
            self._mean.update_parameters(self._model)

    @property
    def reported(self) -> Model:
        """The mean once weights have entered it, else the model."""
        if self._mean is None or not int(self._mean.n_averaged):
            return self._model
        return cast("Model", self._mean.module)

    def state_dict(self) -> dict[str, Any] | None:
        """State that a resume needs."""
        return None if self._mean is None else self._mean.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Continue from `state_dict`."""
        if self._mean is not None and state is not None:
            self._mean.load_state_dict(state)


def reported_weights(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Weights that a trainer in this state (`Trainer.state_dict`) reports."""
    average: Mapping[str, Tensor] | None = state.get("average")
    if average is None or not int(average["n_averaged"]):
        return dict(state["model"])
    prefix = "module."
    return {name.removeprefix(prefix): tensor for name, tensor in average.items() if name.startswith(prefix)}
