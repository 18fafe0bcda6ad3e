"""Networks: encoders, poolings, the scorer that is both, several of them as one, and the standardizer."""

from midam.nn.encoders import MLP, Encoder, ResNet20, batch_norms, load_weights, make_module, resnet20, resnet20_3d
from midam.nn.ensemble import BagEnsemble, scorers_of, without_standardizer
from midam.nn.pooling import (
    LOG_MEAN,
    MAXIMUM,
    AttentionPooling,
    EmbeddingAttentionPooling,
    GatedAttentionPooling,
    GeneralizedMeanPooling,
    MaxPooling,
    MeanPooling,
    NoisyAndPooling,
    NoisyOrPooling,
    Pooling,
    ScorePooling,
    SmoothedMaxPooling,
    Statistic,
    Total,
    make_pooling,
    upcast,
)
from midam.nn.scorer import BagOutput, BagScorer
from midam.nn.stack import Stack, StackedScorer
from midam.nn.standardizer import Standardizer

__all__ = [
    "LOG_MEAN",
    "MAXIMUM",
    "MLP",
    "AttentionPooling",
    "BagEnsemble",
    "BagOutput",
    "BagScorer",
    "EmbeddingAttentionPooling",
    "Encoder",
    "GatedAttentionPooling",
    "GeneralizedMeanPooling",
    "MaxPooling",
    "MeanPooling",
    "NoisyAndPooling",
    "NoisyOrPooling",
    "Pooling",
    "ResNet20",
    "ScorePooling",
    "SmoothedMaxPooling",
    "Stack",
    "StackedScorer",
    "Standardizer",
    "Statistic",
    "Total",
    "batch_norms",
    "load_weights",
    "make_module",
    "make_pooling",
    "resnet20",
    "resnet20_3d",
    "scorers_of",
    "upcast",
    "without_standardizer",
]
