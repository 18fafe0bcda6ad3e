# Written by docs/gen_stub.py; do not edit.
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

class SettingParameters(TypedDict, total=False):
    pooling: str
    pooling_args: dict[str, Any] | None
    attention: Literal["shared", "per-class"]
    temperature: float | None
    estimator: str
    estimator_args: dict[str, Any] | None
    state_rate: float | Literal["auto"]
    objective: str
    objective_args: dict[str, Any] | None
    margin: float
    dual_lr: float
    objective_weight: Literal["paper", "pairwise"]
    dual_domain: Literal["nonnegative", "real"]
    center_start: float | None
    max_fpr: float | None
    fpr_temperature: float
    tpr_temperature: float | None
    pair_rate: float
    anneal: float
    epochs: int
    members: int | None
    optimizer: Literal["auto", "sgd", "adam"]
    lr: float | None
    decay_at: Sequence[float]
    momentum: float
    weight_decay: float | None
    num_positive: int | Literal["auto"]
    num_negative: int | Literal["auto"]
    num_instances: int | Literal["auto"]
    val_every: int | None
    select: Literal["auto", "last", "best"]
    patience: int | None
    encoder: str
    encoder_args: dict[str, Any] | None
    encoder_weights: str | None
    freeze: Sequence[str]
    hidden: Sequence[int] | None
    dropout: float
    norm: Literal["group", "batch"]
    standardize: bool
    scaling: Literal["linear", "blend", "auto"]
    clip: float | None
    seed: int
    folds: int | str
    val_fraction: float
    threshold: str
    accelerator: Literal["auto", "cpu", "cuda"]
    precision: Literal["32-true", "bf16-mixed"]
    compile: bool
    checkpointing: bool
    threads: int | None
    chunk_size: int | None
    workers: int | None
    resident: bool | None
    time_features: Sequence[Literal["since-first", "until-last", "hour", "weekday", "days"]]
    impute: Literal["none", "mean", "median", "zero"]
    indicators: bool
    show_progress: bool
    random_state: int | None
    verbose: int
