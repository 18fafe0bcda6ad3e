"""Multi-instance deep AUC maximization: rank bags of any size from bag labels alone."""

from typing import TYPE_CHECKING

from midam._version import __version__ as __version__
from midam.lazy_imports import exports

if TYPE_CHECKING:
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
    from midam.errors import ExportError as ExportError
    from midam.errors import LeakageError as LeakageError
    from midam.errors import MidamError as MidamError
    from midam.errors import OneClassError as OneClassError
    from midam.errors import RunExistsError as RunExistsError
    from midam.errors import RunStoppedError as RunStoppedError
    from midam.errors import StaleStateError as StaleStateError
    from midam.errors import StoreError as StoreError
    from midam.evaluate.intervals import auroc_interval as auroc_interval
    from midam.evaluate.intervals import paired_delong as paired_delong
    from midam.evaluate.metrics import auprc as auprc
    from midam.evaluate.metrics import summarize as summarize
    from midam.evaluate.predict import InstanceScores as InstanceScores
    from midam.evaluate.predict import instance_scores as instance_scores
    from midam.evaluate.predict import predict as predict
    from midam.evaluate.ranking import auroc as auroc
    from midam.export import export_run as export_run
    from midam.imaging import embed_bags as embed_bags
    from midam.imaging import load_network as load_network
    from midam.nn import MLP as MLP
    from midam.nn import AttentionPooling as AttentionPooling
    from midam.nn import BagOutput as BagOutput
    from midam.nn import BagScorer as BagScorer
    from midam.nn import EmbeddingAttentionPooling as EmbeddingAttentionPooling
    from midam.nn import GatedAttentionPooling as GatedAttentionPooling
    from midam.nn import GeneralizedMeanPooling as GeneralizedMeanPooling
    from midam.nn import MaxPooling as MaxPooling
    from midam.nn import MeanPooling as MeanPooling
    from midam.nn import NoisyAndPooling as NoisyAndPooling
    from midam.nn import NoisyOrPooling as NoisyOrPooling
    from midam.nn import ResNet20 as ResNet20
    from midam.nn import SmoothedMaxPooling as SmoothedMaxPooling
    from midam.nn import Standardizer as Standardizer
    from midam.nn import make_pooling as make_pooling
    from midam.runs.loaded import LoadedRun as LoadedRun
    from midam.runs.loaded import load_run as load_run
    from midam.settings import Settings as Settings
    from midam.sklearn import BagClassifier as BagClassifier
    from midam.sklearn import BagStatistics as BagStatistics
    from midam.sklearn import ColorStatistics as ColorStatistics
    from midam.sklearn import MIDAMClassifier as MIDAMClassifier
    from midam.sklearn import MIDAMRanker as MIDAMRanker
    from midam.sklearn import MIDAMSurvival as MIDAMSurvival
    from midam.sklearn import PerInstance as PerInstance
    from midam.sklearn import VoxelCounts as VoxelCounts
    from midam.train.build import make_optimizer as make_optimizer
    from midam.train.build import parameter_groups as parameter_groups
    from midam.train.estimators import MiniBatch as MiniBatch
    from midam.train.estimators import VarianceReduced as VarianceReduced
    from midam.train.exact import Exact as Exact
    from midam.train.exact import ExactPoint as ExactPoint
    from midam.train.loop import train_step as train_step
    from midam.train.trainer import Trainer as Trainer
    from midam.train.trainer import build_training as build_training

_MODULES = "cli compare data embed errors evaluate explain export functional nn registry report runs sklearn train"
__all__, __getattr__, __dir__ = exports(__name__, modules=_MODULES)
