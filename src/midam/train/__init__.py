"""Training: estimators, objectives, the step, the loop and the trainer."""
# ruff: noqa: F401

from typing import TYPE_CHECKING

from midam.lazy_imports import OLD_OBJECTIVES, exports

if TYPE_CHECKING:
    from midam.nn.objectives import Objective
    from midam.train.estimators import Estimator, MiniBatch, VarianceReduced, encoded_sample
    from midam.train.exact import Exact, ExactPoint
    from midam.train.method_names import method_names, method_settings
    from midam.train.step import make_optimizer, parameter_groups, train_step
    from midam.train.trainer import Trainer, build_training, make_fabric
    from midam.train.training import Training
    from midam.train.trials import Trial, TrialResult, train_trials

__all__, __getattr__, __dir__ = exports(__name__, old=OLD_OBJECTIVES)
