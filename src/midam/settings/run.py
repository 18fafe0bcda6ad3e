"""Settings of a run but for its method: splits, seed, device, precision, threads, reading, baseline, logging."""

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from midam.errors import ConfigError
from midam.registry import LOGGERS
from midam.settings.group import Named, SettingsGroup

_VECTORS_A_CHUNK = 4096
_NUMBERS_A_CHUNK = 2**19
_THREADS_SHALLOW, _THREADS_DEEP = 1, 0

Fraction = Annotated[float, Field(ge=0, lt=1)]
Chunk = Annotated[int, Field(ge=1)]
Threads = Annotated[int, Field(ge=0)]
Budget = Annotated[float, Field(gt=0)]


class RunSettings(SettingsGroup):
    """Splits, seed, device and precision of a run, how it reads, the baseline beside it, what it logs.

    Attributes
    ----------
    seed
        Seed of splits, initial weights and sampling.
    val_fraction
        Fraction of the bags for validation, where the data names no splits.
    test_fraction
        Fraction of the bags for testing, where the data names no splits.
    allow_leakage
        Accept a split in which a group stands on both sides.
    accelerator
        Where to train: "auto", "cpu" or "cuda".
    precision
        "32-true" or "bf16-mixed" (the encoder in bfloat16; pooling and objective stay in float32).
    compile
        Run the encoder of a training step through torch.compile; needs a C++ compiler, or Triton on a GPU.
    checkpointing
        Keep an eighth of the encoder's activations for the backward pass, for about a third more work.
    threads
        CPU threads of the training, 0 for as many as torch takes; default: 1 for the mlp, else 0. A run repeats bit for
        bit with the same number.
    chunk_size
        Instances encoded at a time where whole bags are streamed; default: 4096 feature vectors, of images and volumes
        as many as make half a million numbers.
    memory_budget
        GiB that a step may take, by which counts that are "auto" are chosen; default: half of what is free.
    workers
        Threads that read instances ahead, for the same batches; default: 2 where these stay on disk, else 0.
    resident
        Keep all instances on the device of the training; default: on a GPU where they take less than half of its free
        memory, on the CPU where they are not on disk, or are vectors that take at most 512 MiB and a quarter of the
        free memory.
    reads
        How instances on disk are read: "mmap" (fastest, counts as resident memory), "pread" (does not), or "auto" (mmap
        for a file of at most a quarter of the machine's memory).
    baseline
        Train a plain baseline on the same training bags, and say how the model does beside it: trees on statistics of
        the bags, of images on statistics of their colors. For those in a hurry: --no-baseline.
    logger
        Where the training is tracked beside metrics.csv, which is always written: "none", "tensorboard" (extra track),
        "mlflow" or "wandb" (extras of these names).
    logger_args
        Further arguments of the logger, such as ``project`` of wandb or ``tracking_uri`` of mlflow.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    val_fraction: Fraction = 0.2
    test_fraction: Fraction = 0.2
    allow_leakage: bool = False
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    compile: bool = False
    checkpointing: bool = False
    threads: Threads | None = None
    chunk_size: Chunk | None = None
    memory_budget: Budget | None = None
    workers: Annotated[int, Field(ge=0)] | None = None
    resident: bool | None = None
    reads: Literal["auto", "mmap", "pread"] = "auto"
    baseline: bool = True
    logger: Annotated[str, Named(LOGGERS, also=("none",))] = "none"
    logger_args: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _leave_training_bags(self) -> Self:
        total = self.val_fraction + self.test_fraction
        if total >= 1:
            raise ConfigError(f"Expected `val_fraction` + `test_fraction` < 1, got {total}; lower one.")
        return self

    def resolve(self, instance_shape: tuple[int, ...], *, deep: bool) -> "ResolvedRun":
        """These settings for instances of one shape, and the mlp or a deep encoder."""
        threads = _THREADS_DEEP if deep else _THREADS_SHALLOW
        return ResolvedRun(**self._filled(threads=threads, chunk_size=usual_chunk(instance_shape)))


class ResolvedRun(RunSettings):
    """Settings of the run for instances of one shape; ``threads=0`` is as many as torch takes."""

    threads: Threads
    chunk_size: Chunk


def usual_chunk(instance_shape: tuple[int, ...]) -> int:
    """Instances encoded at a time where nobody says: 4096 vectors; of images and volumes, half a million numbers.

    Examples
    --------
    >>> usual_chunk((1024,)), usual_chunk((3, 32, 32)), usual_chunk((1, 240, 240)), usual_chunk((1, 128, 128, 128))
    (4096, 170, 9, 1)
    """
    if len(instance_shape) < 2:
        return _VECTORS_A_CHUNK
    return min(_VECTORS_A_CHUNK, max(1, _NUMBERS_A_CHUNK // math.prod(instance_shape)))


def member_seed(seed: int, member: int) -> int:
    """Seed of a member's weights and sampling: `seed` itself for member 0, a 32-bit hash of both for the others.

    Examples
    --------
    >>> member_seed(5, 0), member_seed(5, 1)
    (5, 3796490668)
    """
    return seed if member == 0 else int(np.random.SeedSequence([seed, member]).generate_state(1)[0])
