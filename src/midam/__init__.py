"""Multi-instance deep AUC maximization: rank bags of any size from bag labels alone."""

from typing import TYPE_CHECKING

from midam._version import __version__ as __version__
from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.data.bags import Bags as Bags
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
    from midam.evaluate.pooled import instance_scores as instance_scores
    from midam.evaluate.predict import predict as predict
    from midam.evaluate.ranking import auroc as auroc
    from midam.imaging import embed_bags as embed_bags
    from midam.imaging import load_network as load_network
    from midam.nn import BagScorer as BagScorer
    from midam.nn import ResNet20 as ResNet20
    from midam.runs.loaded import LoadedRun as LoadedRun
    from midam.runs.loaded import load_run as load_run
    from midam.settings import Settings as Settings
    from midam.sklearn import BagClassifier as BagClassifier
    from midam.sklearn import BagStatistics as BagStatistics
    from midam.sklearn import MIDAMClassifier as MIDAMClassifier
    from midam.sklearn import MIDAMRanker as MIDAMRanker
    from midam.sklearn import MIDAMSurvival as MIDAMSurvival
    from midam.sklearn import PerInstance as PerInstance
    from midam.train.trainer import build_training as build_training

_MODULES = "cli compare data embed errors evaluate explain export functional nn registry report runs sklearn train"
__all__, __getattr__, __dir__ = exports(__name__, modules=_MODULES)
