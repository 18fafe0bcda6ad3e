"""The poolings: a family a file, on the base and the two statistics of this folder."""

from typing import Any

from midam.nn.pooling.attention import AttentionPooling, EmbeddingAttentionPooling, GatedAttentionPooling
from midam.nn.pooling.base import Pooling, ScorePooling, upcast
from midam.nn.pooling.maximum import MaxPooling, SmoothedMaxPooling
from midam.nn.pooling.mean import GeneralizedMeanPooling, MeanPooling
from midam.nn.pooling.noisy import NoisyAndPooling, NoisyOrPooling
from midam.nn.pooling.statistic import LOG_MEAN, MAXIMUM, Statistic, Total
from midam.registry import POOLINGS, build

__all__ = ["LOG_MEAN", "MAXIMUM", "AttentionPooling", "EmbeddingAttentionPooling", "GatedAttentionPooling"]
__all__ += ["GeneralizedMeanPooling", "MaxPooling", "MeanPooling", "NoisyAndPooling", "NoisyOrPooling", "Pooling"]
__all__ += ["ScorePooling", "SmoothedMaxPooling", "Statistic", "Total", "make_pooling", "upcast"]


def make_pooling(name: str, in_features: int, *, squash: bool = True, **options: Any) -> Pooling:
    """Build a pooling by name or class path.

    Where the pooling has the choice, `squash` says whether probabilities (AUC objectives) or raw scores (cross-entropy)
    are pooled; `options` are its keyword arguments. A `ConfigError` for an unknown name, or arguments that the pooling
    does not take.

    Examples
    --------
    >>> make_pooling("attention", 8).value_size
    1
    """
    offered = {"in_features": in_features, "squash": squash}
    what = f"the pooling {name!r} in pooling_args"
    pooling: Pooling = build(POOLINGS.find(name), what=what, offered=offered, arguments=options)
    return pooling
