"""Training: estimators, objectives, the step, the loop and the trainer."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.nn.objectives import Objective as Objective
    from midam.train.build import make_optimizer as make_optimizer
    from midam.train.build import parameter_groups as parameter_groups
    from midam.train.estimators import Estimator as Estimator
    from midam.train.estimators import MiniBatch as MiniBatch
    from midam.train.estimators import VarianceReduced as VarianceReduced
    from midam.train.estimators import encoded_sample as encoded_sample
    from midam.train.exact import Exact as Exact
    from midam.train.exact import ExactPoint as ExactPoint
    from midam.train.loop import Training as Training
    from midam.train.loop import train_step as train_step
    from midam.train.side import Trial as Trial
    from midam.train.side import TrialResult as TrialResult
    from midam.train.side import train_trials as train_trials
    from midam.train.trainer import Trainer as Trainer
    from midam.train.trainer import build_training as build_training
    from midam.train.trainer import make_fabric as make_fabric

__all__, __getattr__, __dir__ = exports(__name__)
