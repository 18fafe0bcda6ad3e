"""Multi-instance deep AUC maximisation: rank bags of any size from bag labels alone."""

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches, whole_batches
from midam.data.sampling import BagSampler
from midam.data.sources import read_bags
from midam.data.splits import split_bags, stratified_folds
from midam.data.store import open_store, verify_store, write_store
from midam.errors import (
    BagDataError,
    CheckpointError,
    ConfigError,
    DataNotFoundError,
    DivergedError,
    LeakageError,
    MidamError,
    OneClassError,
    RunExistsError,
    RunStoppedError,
    StoreError,
)
from midam.estimator import MIDAMClassifier
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.metrics import auprc, auroc, summarize
from midam.evaluate.predict import InstanceScores, instance_scores, predict
from midam.nn import (
    MLP,
    AttentionPooling,
    BagOutput,
    BagScorer,
    EmbeddingAttentionPooling,
    GatedAttentionPooling,
    GeneralizedMeanPooling,
    MaxPooling,
    MeanPooling,
    NoisyAndPooling,
    NoisyOrPooling,
    ResNet20,
    SmoothedMaxPooling,
    Standardizer,
    make_pooling,
)
from midam.train.config import FitConfig
from midam.train.exact import Exact, ExactPoint
from midam.train.gradients import MiniBatch, VarianceReduced
from midam.train.objectives import BCE, MinMaxAUC, PairwiseAUC
from midam.train.step import make_optimizer, parameter_groups, train_step
from midam.train.trainer import Trainer
from midam.train.training import build_training

__version__ = "0.1.0"

__all__ = [
    "BCE",
    "MLP",
    "AttentionPooling",
    "BagDataError",
    "BagOutput",
    "BagSampler",
    "BagScorer",
    "Bags",
    "CheckpointError",
    "ConfigError",
    "DataNotFoundError",
    "DivergedError",
    "EmbeddingAttentionPooling",
    "Exact",
    "ExactPoint",
    "FitConfig",
    "GatedAttentionPooling",
    "GeneralizedMeanPooling",
    "InstanceReader",
    "InstanceScores",
    "LeakageError",
    "MIDAMClassifier",
    "MaxPooling",
    "MeanPooling",
    "MidamError",
    "MinMaxAUC",
    "MiniBatch",
    "NoisyAndPooling",
    "NoisyOrPooling",
    "OneClassError",
    "PairwiseAUC",
    "ResNet20",
    "RunExistsError",
    "RunStoppedError",
    "SampledBatch",
    "SmoothedMaxPooling",
    "Standardizer",
    "StoreError",
    "Trainer",
    "VarianceReduced",
    "WholeBatch",
    "auprc",
    "auroc",
    "auroc_interval",
    "build_training",
    "instance_scores",
    "make_optimizer",
    "make_pooling",
    "open_store",
    "paired_delong",
    "parameter_groups",
    "predict",
    "read_bags",
    "sampled_batches",
    "split_bags",
    "stratified_folds",
    "summarize",
    "train_step",
    "verify_store",
    "whole_batches",
    "write_store",
]
