"""Multi-instance deep AUC maximization: rank bags of any size from bag labels alone."""

from typing import TYPE_CHECKING

from midam.exports import exports

if TYPE_CHECKING:
    from midam.classifier import MIDAMClassifier as MIDAMClassifier
    from midam.data.bags import Bags as Bags
    from midam.data.batch import InstanceReader as InstanceReader
    from midam.data.batch import SampledBatch as SampledBatch
    from midam.data.batch import WholeBatch as WholeBatch
    from midam.data.batch import sampled_batches as sampled_batches
    from midam.data.batch import whole_batches as whole_batches
    from midam.data.sampling import BagSampler as BagSampler
    from midam.data.sources import read_bags as read_bags
    from midam.data.splits import split_bags as split_bags
    from midam.data.splits import stratified_folds as stratified_folds
    from midam.data.store import open_store as open_store
    from midam.data.store import verify_store as verify_store
    from midam.data.store import write_store as write_store
    from midam.errors import BagDataError as BagDataError
    from midam.errors import CheckpointError as CheckpointError
    from midam.errors import ConfigError as ConfigError
    from midam.errors import DataNotFoundError as DataNotFoundError
    from midam.errors import DivergedError as DivergedError
    from midam.errors import LeakageError as LeakageError
    from midam.errors import MidamError as MidamError
    from midam.errors import OneClassError as OneClassError
    from midam.errors import RunExistsError as RunExistsError
    from midam.errors import RunStoppedError as RunStoppedError
    from midam.errors import StoreError as StoreError
    from midam.evaluate.intervals import auroc_interval as auroc_interval
    from midam.evaluate.intervals import paired_delong as paired_delong
    from midam.evaluate.metrics import auprc as auprc
    from midam.evaluate.metrics import summarize as summarize
    from midam.evaluate.predict import InstanceScores as InstanceScores
    from midam.evaluate.predict import instance_scores as instance_scores
    from midam.evaluate.predict import predict as predict
    from midam.evaluate.ranking import auroc as auroc
    from midam.nn.attention import AttentionPooling as AttentionPooling
    from midam.nn.attention import EmbeddingAttentionPooling as EmbeddingAttentionPooling
    from midam.nn.attention import GatedAttentionPooling as GatedAttentionPooling
    from midam.nn.encoders import MLP as MLP
    from midam.nn.pooling import GeneralisedMeanPooling as GeneralisedMeanPooling
    from midam.nn.pooling import MaxPooling as MaxPooling
    from midam.nn.pooling import MeanPooling as MeanPooling
    from midam.nn.pooling import NoisyAndPooling as NoisyAndPooling
    from midam.nn.pooling import NoisyOrPooling as NoisyOrPooling
    from midam.nn.pooling import SmoothedMaxPooling as SmoothedMaxPooling
    from midam.nn.pooling import make_pooling as make_pooling
    from midam.nn.resnet import ResNet20 as ResNet20
    from midam.nn.scaling import Standardizer as Standardizer
    from midam.nn.scorer import BagOutput as BagOutput
    from midam.nn.scorer import BagScorer as BagScorer
    from midam.runs.apply import LoadedRun as LoadedRun
    from midam.runs.apply import load_run as load_run
    from midam.train.config import FitConfig as FitConfig
    from midam.train.estimators import MiniBatch as MiniBatch
    from midam.train.estimators import VarianceReduced as VarianceReduced
    from midam.train.exact import Exact as Exact
    from midam.train.exact import ExactPoint as ExactPoint
    from midam.train.objective import BCE as BCE
    from midam.train.objective import MinMaxAUC as MinMaxAUC
    from midam.train.objective import PairwiseAUC as PairwiseAUC
    from midam.train.step import make_optimizer as make_optimizer
    from midam.train.step import parameter_groups as parameter_groups
    from midam.train.step import train_step as train_step
    from midam.train.trainer import Trainer as Trainer

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "midam.classifier": "MIDAMClassifier",
        "midam.data.bags": "Bags",
        "midam.data.batch": "InstanceReader SampledBatch WholeBatch sampled_batches whole_batches",
        "midam.data.sampling": "BagSampler",
        "midam.data.sources": "read_bags",
        "midam.data.splits": "split_bags stratified_folds",
        "midam.data.store": "open_store verify_store write_store",
        "midam.errors": (
            "BagDataError CheckpointError ConfigError DataNotFoundError DivergedError LeakageError "
            "MidamError OneClassError RunExistsError RunStoppedError StoreError"
        ),
        "midam.evaluate.intervals": "auroc_interval paired_delong",
        "midam.evaluate.metrics": "auprc summarize",
        "midam.evaluate.predict": "InstanceScores instance_scores predict",
        "midam.evaluate.ranking": "auroc",
        "midam.nn.attention": "AttentionPooling EmbeddingAttentionPooling GatedAttentionPooling",
        "midam.nn.encoders": "MLP",
        "midam.nn.pooling": (
            "GeneralisedMeanPooling MaxPooling MeanPooling NoisyAndPooling NoisyOrPooling "
            "SmoothedMaxPooling make_pooling"
        ),
        "midam.nn.resnet": "ResNet20",
        "midam.nn.scaling": "Standardizer",
        "midam.nn.scorer": "BagOutput BagScorer",
        "midam.runs.apply": "LoadedRun load_run",
        "midam.train.config": "FitConfig",
        "midam.train.estimators": "MiniBatch VarianceReduced",
        "midam.train.exact": "Exact ExactPoint",
        "midam.train.objective": "BCE MinMaxAUC PairwiseAUC",
        "midam.train.step": "make_optimizer parameter_groups train_step",
        "midam.train.trainer": "Trainer",
    },
    modules="classifier cli compare data errors evaluate explain functional nn registry report runs train",
)
