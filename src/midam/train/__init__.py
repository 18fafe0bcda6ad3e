"""Training: estimators, objectives, augmentations, the step, the loop and the trainer.

What is named here is imported when it is asked for: settings need no trainer.
"""
# ruff: noqa: F401

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midam.train.augment import Augment, Augmentation
    from midam.train.exact import Exact, ExactPoint
    from midam.train.gradients import Estimator, MiniBatch, VarianceReduced, encoded_sample
    from midam.train.lockstep import Trial, TrialResult, train_trials
    from midam.train.method_names import method_names, method_settings
    from midam.train.objectives import BCE, MinMaxAUC, Objective, PairwiseAUC
    from midam.train.step import make_optimizer, parameter_groups, train_step
    from midam.train.trainer import Trainer, make_fabric
    from midam.train.training import Training, build_training

_MODULES = {
    "augment": ("Augment", "Augmentation"),
    "exact": ("Exact", "ExactPoint"),
    "gradients": ("Estimator", "MiniBatch", "VarianceReduced", "encoded_sample"),
    "lockstep": ("Trial", "TrialResult", "train_trials"),
    "method_names": ("method_names", "method_settings"),
    "objectives": ("BCE", "MinMaxAUC", "Objective", "PairwiseAUC"),
    "step": ("make_optimizer", "parameter_groups", "train_step"),
    "trainer": ("Trainer", "make_fabric"),
    "training": ("Training", "build_training"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
