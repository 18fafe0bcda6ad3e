"""The poolings: a family per file, on the base and the statistics of this folder."""

from typing import Any

from midam.nn.pooling import base
from midam.nn.pooling.attention import AttentionPooling, EmbeddingAttentionPooling, GatedAttentionPooling, Weights
from midam.nn.pooling.base import LOG_MEAN, MAXIMUM, ColumnPooling, Pooling, ScorePooling, Statistic, Total, upcast
from midam.nn.pooling.maximum import MaxPooling, SmoothedMaxPooling
from midam.nn.pooling.mean import GeneralizedMeanPooling, MeanPooling, NoisyAndPooling, NoisyOrPooling
from midam.registry import POOLINGS, build

__all__ = ["LOG_MEAN", "MAXIMUM", "AttentionPooling", "ColumnPooling", "EmbeddingAttentionPooling"]
__all__ += ["GatedAttentionPooling", "GeneralizedMeanPooling", "MaxPooling", "MeanPooling", "NoisyAndPooling"]
__all__ += ["NoisyOrPooling", "Pooling", "ScorePooling", "SmoothedMaxPooling", "Statistic", "Total", "make_pooling"]
__all__ += ["upcast"]


def make_pooling(
    name: str,
    in_features: int,
    *,
    squash: bool = True,
    columns: int = 1,
    attention: Weights = "per-class",
    **options: Any,
) -> Pooling:
    """Build a pooling by name.

    If the pooling has these options, `squash` pools probabilities (AUC objectives, which compare scores in [0, 1])
    instead of raw scores (cross-entropy), and `attention` sets whether its score columns share their weights; `options`
    are its keyword arguments. An unknown name, unknown arguments, or unsupported `columns` raise a `ConfigError`.

    Examples
    --------
    >>> make_pooling("attention", 8).value_size
    1
    """
    offered = {"in_features": in_features, "squash": squash, "columns": columns, "attention": attention}
    part = f"the pooling {name!r} in pooling_args"
    pooling: Pooling = build(POOLINGS.find(name), part=part, offered=offered, arguments=options)
    base.check_columns(pooling, columns)
    return pooling
