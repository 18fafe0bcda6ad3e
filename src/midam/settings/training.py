"""How a method is trained, and everything else about a run: splits, seed, device, precision, threads, logging."""

import math
import re
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from midam.errors import ConfigError
from midam.registry import LOGGERS
from midam.settings.group import AUTO, LARGEST_COUNT, Count, Fraction, Named, OpenCount, Positive, SettingsGroup

# Learning rates of the mlp, and of deep encoders.
_RATES: dict[str, tuple[float, float]] = {"sgd": (0.05, 0.01), "adam": (0.001, 0.0003)}
_MEMBERS_SHALLOW, _MEMBERS_DEEP = 3, 1

_VECTORS_A_CHUNK = 4096
_NUMBERS_A_CHUNK = 2**19
_THREADS_SHALLOW, _THREADS_DEEP = 1, 0
_TESTED, _MOST_FOLDS = 0.2, 1000
_RULE = re.compile(
    r"(?P<plain>youden|f1)|(?P<of>sensitivity|specificity|ppv)=(?P<share>\d*\.?\d+)"
    r"|cost=(?P<missed>\d*\.?\d+):(?P<alarm>\d*\.?\d+)"
)
Threads = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]


def threshold_rule(text: str) -> tuple[str, float]:
    """Return the name and number of a threshold rule: the required share, or the ratio of the costs; else 0.

    Raise a `ConfigError` if the text is not a rule.

    Examples
    --------
    >>> threshold_rule("youden"), threshold_rule("sensitivity=.9"), threshold_rule("cost=10:1")
    (('youden', 0.0), ('sensitivity', 0.9), ('cost', 10.0))
    """
    match = _RULE.fullmatch(text) if isinstance(text, str) else None
    if match is not None and match["plain"]:
        return text, 0.0
    if match is not None and match["of"] and 0 < float(match["share"]) <= 1:
        return match["of"], float(match["share"])
    if match is not None and match["missed"] and float(match["missed"]) > 0 and float(match["alarm"]) > 0:
        return "cost", float(match["missed"]) / float(match["alarm"])
    raise ConfigError(
        f"Expected `threshold` as a rule, got {text!r}; choose youden, f1, sensitivity=0.9, specificity=0.95, "
        "ppv=0.5 (a share in (0, 1]), or cost=10:1 (of a missed positive bag, of a false alarm)."
    )


def _checked_rule(text: str) -> str:
    name, number = threshold_rule(text)
    return text if name == "cost" or not number else f"{name}={number:g}"


def _checked_folds(folds: int | str) -> int | str:
    if isinstance(folds, int) and folds != 0 and not 2 <= folds <= _MOST_FOLDS:
        raise ConfigError(
            f"Expected `folds` as 2 to {_MOST_FOLDS} folds, 0 (bags are held out) or a column of sites, got {folds}; "
            "choose another."
        )
    return folds


class TrainingSettings(SettingsGroup):
    """How a method is trained: epochs, optimizer, batches, members, validation and selection.

    Attributes
    ----------
    epochs
        Epochs; each samples as many bags as the training set has.
    members
        Scorers trained from different seeds; their scores are averaged. Default: 3 for the mlp, else 1.
    optimizer
        "sgd" (v = beta1 v + (1 - beta1) g) or "adam"; "auto": "sgd" for the mlp, "adam" for other encoders.
    lr
        Learning rate. Default: 0.05 for the mlp with "sgd" and 0.001 with "adam", 0.01 and 0.0003 for other encoders.
    decay_at
        Fractions of the epochs at which the learning rate falls tenfold, and state_rate and dual_lr are halved.
    momentum
        beta1 of "sgd", in [0, 1).
    weight_decay
        Weight decay of the model, but not of the centers a and b. Default: 1e-4; 0.01 if `select` "auto" means the best
        epoch.
    num_positive
        Positive bags per batch (S+); "auto": 8.
    num_negative
        Negative bags per batch (S-); "auto": 8.
    num_instances
        Instances per bag (B) of vrsp, minibatch and exact-point; "auto": 16, less for small bags or large instances.
    val_every
        Score the validation bags every N epochs, and after the last. Default: 1; if scoring takes longer than an epoch
        of training, every few epochs, at least 20 times, unless `select` is "best" or `patience` is set.
    select
        Weights to report: of the last epoch, or of the best validation AUROC; "auto": the best with more than 500
        training bags of vectors, else the last.
    patience
        Stop after N epochs without a better validation AUROC; default: never.

    Examples
    --------
    >>> training = TrainingSettings(epochs=40, num_instances=16)
    >>> [training.decays(epoch) for epoch in (0, 20, 30)]
    [0, 1, 2]
    """

    epochs: Count = 100
    members: Count | None = None
    optimizer: Literal["auto", "sgd", "adam"] = AUTO
    lr: Positive | None = None
    decay_at: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.5, 0.75)
    momentum: Fraction = 0.1
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    num_positive: OpenCount = 8
    num_negative: OpenCount = 8
    num_instances: OpenCount = 8
    val_every: Count | None = None
    select: Literal["auto", "last", "best"] = AUTO
    patience: Count | None = None

    @property
    def open(self) -> list[str]:
        """Names of the counts that are "auto", to be chosen for the training bags."""
        return [name for name in ("num_positive", "num_negative", "num_instances") if getattr(self, name) == AUTO]

    @property
    def decay(self) -> float:
        """Weight decay; `Trainer` may have replaced a missing one for its bags."""
        return 1e-4 if self.weight_decay is None else self.weight_decay

    @property
    def batch(self) -> tuple[int, int, int]:
        """S+, S- and B; raises a `ConfigError` if one is "auto"."""
        counts = self.num_positive, self.num_negative, self.num_instances
        if counts[0] == AUTO or counts[1] == AUTO or counts[2] == AUTO:
            raise ConfigError(
                f"Expected a number for `{self.open[0]}`, got 'auto', which only `Trainer` and `build_training` "
                "replace; give a number."
            )
        return counts[0], counts[1], counts[2]

    def decays(self, epoch: int) -> int:
        """Return how often the rates have fallen when epoch `epoch` (from 0) starts."""
        return sum(epoch >= max(1, round(at * self.epochs)) for at in self.decay_at)

    def resolve(self, *, deep: bool) -> "ResolvedTraining":
        """Return these settings with the defaults of an MLP or of a deep encoder."""
        optimizer = self.optimizer if self.optimizer != AUTO else "adam" if deep else "sgd"
        members = _MEMBERS_DEEP if deep else _MEMBERS_SHALLOW
        return ResolvedTraining(**self._filled(lr=_RATES[optimizer][deep], members=members) | {"optimizer": optimizer})


class ResolvedTraining(TrainingSettings):
    """Settings of the training for instances of one shape."""

    members: Count
    optimizer: Literal["sgd", "adam"]
    lr: Positive


class RunSettings(SettingsGroup):
    """Splits, seed, device, precision, reading, baseline and logging of a run.

    Attributes
    ----------
    seed
        Seed of splits, initial weights and sampling.
    folds
        Folds, each scored by a model of the others, while all bags train the model; 0 holds bags out; a column makes
        each site a fold. "auto": 5 for at most 500 bags without splits or `test_fraction`, else 0.
    val_fraction
        Fraction of the bags for validation, if bags are held out at random.
    test_fraction
        Fraction of the bags for testing, if bags are held out; default: 0.2.
    threshold
        Rule for the score from which a bag is called positive, with two classes: "youden", "sensitivity=0.9",
        "specificity=0.95", "f1", "ppv=0.5", or "cost=10:1" (of a missed positive bag to a false alarm).
    allow_leakage
        Accept a split in which a group is on both sides.
    accelerator
        Where to train: "auto", "cpu" or "cuda".
    precision
        "32-true" or "bf16-mixed" (the encoder in bfloat16; pooling and objective stay in float32).
    compile
        Run the encoder of a training step through torch.compile; needs a C++ compiler, or Triton on a GPU.
    checkpointing
        Keep an eighth of the encoder's activations for the backward pass, for about a third more work.
    threads
        CPU threads of the training; 0 means as many as torch uses; default: 1 for the mlp, else 0. With the same
        number, a run repeats bit for bit.
    chunk_size
        Instances encoded at a time when whole bags are streamed; default: 4096 feature vectors, or images and volumes
        with half a million numbers.
    workers
        Threads that read instances ahead; batches do not change; default: 2 if instances stay on disk, else 0.
    resident
        Keep all instances on the training device; default: on a GPU if they take less than half of its free memory, on
        the CPU if they are not on disk, or are vectors that take at most 512 MiB and a quarter of the free memory.
    reads
        How instances on disk are read: "mmap" (fastest, counts as resident memory), "pread" (does not), or "auto" (mmap
        for a file of at most a quarter of the machine's memory).
    baseline
        Train a simple baseline on the same training bags and compare the model with it: trees on statistics of the
        bags, or of the colors of images. --no-baseline leaves it out.
    logger
        Where the training is tracked besides metrics.csv, which is always written: "none", or
        "tensorboard" (extra track).
    logger_args
        Further arguments of the logger, such as ``flush_secs`` of tensorboard.

    Examples
    --------
    >>> RunSettings(threshold="sensitivity=.90").threshold
    'sensitivity=0.9'
    """

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    folds: Annotated[int | str, AfterValidator(_checked_folds)] = AUTO
    val_fraction: Fraction = 0.2
    test_fraction: Fraction | None = None
    threshold: Annotated[str, AfterValidator(_checked_rule)] = "youden"
    allow_leakage: bool = False
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    compile: bool = False
    checkpointing: bool = False
    threads: Threads | None = None
    chunk_size: Count | None = None
    workers: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] | None = None
    resident: bool | None = None
    reads: Literal["auto", "mmap", "pread"] = "auto"
    baseline: bool = True
    logger: Annotated[str, Named(LOGGERS, also=("none",))] = "none"
    logger_args: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _leave_training_bags(self) -> Self:
        total = self.val_fraction + self.tested
        if total >= 1:
            raise ConfigError(f"Expected `val_fraction` + `test_fraction` < 1, got {total}; lower one.")
        return self

    @property
    def tested(self) -> float:
        """Fraction of the bags for testing, if bags are held out."""
        return _TESTED if self.test_fraction is None else self.test_fraction

    @property
    def site(self) -> str | None:
        """Column of the sites that are the folds, if `folds` names one."""
        return self.folds if isinstance(self.folds, str) and self.folds != AUTO else None

    def resolve(self, instance_shape: tuple[int, ...], *, deep: bool) -> "ResolvedRun":
        """Return these settings with the defaults for one instance shape and an MLP or a deep encoder."""
        threads = _THREADS_DEEP if deep else _THREADS_SHALLOW
        return ResolvedRun(**self._filled(threads=threads, chunk_size=usual_chunk(instance_shape)))


class ResolvedRun(RunSettings):
    """Settings of the run for instances of one shape; ``threads=0`` is as many as torch uses."""

    threads: Threads
    chunk_size: Count


def usual_chunk(instance_shape: tuple[int, ...]) -> int:
    """Return the default number of instances encoded at a time: 4096 vectors, or half a million numbers of images.

    Examples
    --------
    >>> usual_chunk((1024,)), usual_chunk((3, 32, 32)), usual_chunk((1, 240, 240)), usual_chunk((1, 128, 128, 128))
    (4096, 170, 9, 1)
    """
    if len(instance_shape) < 2:
        return _VECTORS_A_CHUNK
    return min(_VECTORS_A_CHUNK, max(1, _NUMBERS_A_CHUNK // math.prod(instance_shape)))


def member_seed(seed: int, member: int) -> int:
    """Return the seed of a member's weights and sampling: `seed` for member 0, a 32-bit hash of both for the others.

    Examples
    --------
    >>> member_seed(5, 0), member_seed(5, 1)
    (5, 3796490668)
    """
    return seed if member == 0 else int(np.random.SeedSequence([seed, member]).generate_state(1)[0])
