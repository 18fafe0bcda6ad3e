"""The settings of a run: one typed dataclass, the source of the command line, of YAML files and of the Python face."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_type_hints

import numpy as np

from midam.data.sources.imageoptions import ImageOptions
from midam.errors import ConfigError
from midam.registry import DRAWS, ENCODERS, ESTIMATORS, OBJECTIVES, POOLINGS
from midam.settings import usual_chunk
from midam.train.augment import check_names
from midam.train.settings import typed, unknown_key

_CLIP_VECTORS, _CLIP_PIXELS = 3.0, 10.0

_ENCODERS_BY_AXES = ("mlp", "resnet20", "resnet20-3d")
AUTO: Final = "auto"
_LEAST_SIDE = 8  # of images: ResNet20 halves them twice
_UNSETTLED = "Expected settings of known instances, got no {}; call `for_instances`."
# Learning rates of the mlp, and of deeper encoders.
_RATES = {"sgd": (0.05, 0.01), "adam": (0.001, 0.0003)}

# The settings that say how images, slides and volumes are cut; they are those of ImageOptions.
IMAGE_FIELDS = (
    *("patch_size", "stride", "magnification", "tissue", "axis", "spacing", "window", "drop_empty"),
    *("slice_size", "volume", "volume_size"),
)
# Those of them that are lists, empty for none.
LISTS = ("window", "volume_size")
# The settings that say how data is read.
DATA_FIELDS = (
    *("bag_column", "label_column", "groups", "split", "coords", "ignore"),
    *("labels", "slides", "positive", "bag_by", "split_file", "fold", "missing"),
    *IMAGE_FIELDS,
)

# Settings, what holds for their values, and how a message says it. None is always allowed where the type allows it.
_RANGES: list[tuple[tuple[str, ...], Callable[[Any], bool], str]] = [
    (
        (
            "members",
            "epochs",
            "num_positive",
            "num_negative",
            "num_instances",
            "chunk_size",
            "patience",
            "threads",
            "state_refresh",
            "val_every",
        ),
        lambda value: value >= 1,
        ">= 1",
    ),
    (("lr", "margin", "clip"), lambda value: 0 < value < math.inf, "> 0"),
    (("weight_decay", "seed", "workers", "fold"), lambda value: 0 <= value < math.inf, ">= 0"),
    (("state_rate", "dual_lr"), lambda value: 0 < value <= 1, "in (0, 1]"),
    (("center_start",), lambda value: 0 <= value <= 1, "in [0, 1]"),
    (
        ("momentum", "dropout", "val_fraction", "test_fraction", "average_from"),
        lambda value: 0 <= value < 1,
        "in [0, 1)",
    ),
    (("hidden",), lambda widths: all(width >= 1 for width in widths), "as widths >= 1, such as [64, 32]"),
    (("decay_at",), lambda marks: all(0 < at < 1 for at in marks), "as fractions of the epochs in (0, 1)"),
]


@dataclass
class FitConfig:
    """Settings of a training run.

    Parameters
    ----------
    pooling
        How instance scores become a bag's score.
    estimator
        How a step estimates the pooling: "vrsp" (MIDAM: tracked state, B instances a bag), "minibatch" (B instances,
        biased), "exact" (whole bags, two passes in bounded memory), "exact-point" (whole bags without graph, B
        instances with). At equal budgets of instances encoded, on bags of 50 to 5000 digits, "vrsp" and "minibatch"
        could be told apart in 1 of 88 cases (for "vrsp"), and both exact ones were far behind on average; on volumes
        "minibatch" was ahead. Take "exact" where whole bags cost no more than B instances.
    objective
        What is optimised: "minmax-auc", "pairwise" (squared hinge over pairs) or "bce" (cross-entropy).
    seed
        Seed of splits, initial weights and sampling.
    members
        Scorers trained from different seeds; their scores are averaged. Default: 3 for the mlp, else 1.
    epochs
        An epoch draws as many bags as the training set holds.
    lr
        Learning rate; divided by 10 at each of `decay_at`. Default: 0.05 for the mlp with "sgd", 0.001 with "adam"; for
        other encoders 0.01 and 0.0003.
    decay_at
        Fractions of the epochs at which the learning rate falls tenfold, and state_rate and dual_lr are halved.
    optimizer
        "sgd" (v = beta1 v + (1 - beta1) g) or "adam"; "auto": "sgd" for the mlp, "adam" for other encoders.
    momentum
        beta1 of "sgd", in [0, 1).
    weight_decay
        On the model's weights; never on the centers a and b.
    num_positive
        Positive bags a batch (S+).
    num_negative
        Negative bags a batch (S-).
    num_instances
        Instances drawn a bag (B) by vrsp, minibatch and exact-point.
    state_rate
        gamma0 in (0, 1], the weight of the new sample in the tracked state of vrsp. The default is the authors' value;
        on bags of 50 to 5000 no other did better, on volumes 0.5 fell behind.
    state_schedule
        "constant", or "warmup": max(gamma0, 1/k) at a bag's k-th visit.
    lag
        Linearize at the previous state, as Algorithm 1 prints it.
    state_start
        The tracked state before the first step: empty until a bag's first visit ("first-visit"), or streamed once over
        all bags ("exact").
    state_refresh
        Set the tracked state exactly again after each so many epochs, at the cost of a pass over all bags; default:
        never.
    margin
        c > 0 of the AUC objectives.
    dual_lr
        eta' in (0, 1] of minmax-auc.
    objective_weight
        F3 of minmax-auc as printed ("paper"), or doubled ("pairwise").
    dual_domain
        Domain of the dual variable.
    center_start
        Where the centers a and b of minmax-auc start, in [0, 1]; default: 0 for the mlp, as in the paper, else 0.5, the
        score of an untrained network, without which a deep one can collapse in its first steps.
    temperature
        tau of smoothed-max; default 0.1.
    pooling_args
        Further arguments of the pooling.
    estimator_args
        Further arguments of the estimator.
    objective_args
        Further arguments of the objective.
    draw
        Which instances of a bag a step encodes, for estimators that draw: "uniform".
    draw_args
        Further arguments of the draw rule.
    encoder
        "auto": "mlp" for feature vectors, "resnet20" for patches and slices, "resnet20-3d" for volumes; one of these;
        or the class path of any torch.nn.Module ("package.module.Class"), which is imported.
    encoder_args
        Arguments of that class.
    encoder_weights
        File with the encoder's weights at the start: a state dictionary of torch.save, or .safetensors.
    freeze
        Parts of the encoder that are not trained, by the names of its submodules; "*" for all of it.
    checkpointing
        Keep an eighth of the encoder's activations for the backward pass, for about a third more work.
    augment
        Random changes of each instance of a training step: "flip", "rotate90", "crop", "color" (three channels),
        "intensity".
    hidden
        Widths of the mlp's layers; default: one layer as wide as the input.
    dropout
        After each layer of the mlp, in [0, 1).
    norm
        Normalization of resnet20 and resnet20-3d: by groups of channels, or by the batch as in the paper.
    standardize
        Standardize features robustly with the statistics of the training instances.
    scaling
        Of standardized feature vectors: "linear", "blend" (the mean of the linear value and the normal score of the
        rank), or "auto" ("blend" for features that pile up on one value, "linear" for the others).
    clip
        Bound on a linearly standardized feature; default: 3 for feature vectors, 10 for the pixels of
        images and volumes.
    chunk_size
        Instances encoded at a time where whole bags are streamed; default: 4096 feature vectors, of images and volumes
        as many as make half a million numbers.
    workers
        Threads that read instances ahead of their use; default: 2 where the instances stay on disk, else 0. The
        batches are the same for any number.
    resident
        Keep all instances on the device of the training; default: on a GPU where they take less than half of its free
        memory, on the CPU where they are not on disk.
    reads
        How instances on disk are read: "mmap" (fastest, counts as resident memory), "pread" (does not), or "auto"
        (mmap for a file of at most a quarter of the machine's memory).
    val_every
        Score the validation bags after each so many epochs, and after the last.
    val_fraction
        Fraction of the bags for validation, where the data names no splits.
    test_fraction
        Fraction of the bags for testing, where the data names no splits.
    select
        Weights that are reported: of the last epoch, or of the one with the best validation AUROC.
    average_from
        From this fraction of the epochs on, in [0, 1), validate and report the mean of the weights after each epoch
        (stochastic weight averaging); default: the weights themselves.
    patience
        Stop after so many epochs without a better validation AUROC; default: never.
    bag_column
        Column of a table that names the bag; of a label table, the file: by default the column that does.
    label_column
        Column of a table that holds the bag's label, 0 or 1, or text with `positive`.
    groups
        Column of a table that names the group (patient); splits are disjoint by group. Default: in a label table, the
        column of the patient or case.
    split
        Column of a table that names the split: train, val or test.
    coords
        Columns of a table that hold coordinates.
    ignore
        Columns of a table that are not features.
    labels
        Label table (CSV or TSV) of a folder of feature files, or other labels for a store.
    slides
        Table of patients and their files, where the label table is one of patients.
    positive
        Value of the label column that is label 1; all others are 0.
    bag_by
        Of a folder of feature files: a bag for each file ("slide"), or one for all files of a patient.
    split_file
        Table of splits: CLAM's splits_K.csv or the folder of these, Patho-Bench's with columns fold_K, or a column
        split beside the names.
    fold
        Which of the splits.
    missing
        What to do about rows of the tables whose file is missing: "error", or "skip" them with a warning.
    patch_size
        Side of the patches that images and slides are cut into, in pixels.
    stride
        Pixels from one patch to the next; default: the patch size.
    magnification
        At which slides are read, such as 20; default: the pixels of level 0.
    tissue
        Least part of a patch that is tissue, in [0, 1]; default: 0.5 on slides, no limit on images.
    axis
        Along which volumes are sliced: 0 sagittal, 1 coronal, 2 axial slices of NIfTI and DICOM; default: axial slices
        of NIfTI, those that were acquired of DICOM. Of arrays the axis itself; default: the first.
    spacing
        Millimetres between pixels to which volumes are resampled.
    window
        Two intensities of volumes that become 0 and 1; default: intensities as they are.
    drop_empty
        Leave out slices that show nothing.
    slice_size
        Side of the square to which slices are resized; with `spacing`, cropped or padded.
    volume
        Take a volume as one instance, for resnet20-3d, rather than as slices.
    volume_size
        Slices, rows and columns to which such volumes are resized; with `spacing`, cropped or padded.
    allow_leakage
        Accept a split in which a group stands on both sides.
    accelerator
        Where to train: "auto", "cpu" or "cuda".
    precision
        "32-true" or "bf16-mixed" (the encoder in bfloat16; pooling and objective stay in float32).
    compile
        Run the encoder of a training step through torch.compile; needs a C++ compiler, or Triton on a GPU.
    threads
        CPU threads of the training; default: 1 for the mlp, whose steps are too small to share, else as many as torch
        takes. A run repeats bit for bit with the same number.
    logger
        Beside metrics.csv, which is always written: "none" or "tensorboard" (extra midam[track]).
    """

    pooling: str = "attention"
    estimator: str = "vrsp"
    objective: str = "minmax-auc"
    seed: int = 0
    members: int | None = None
    epochs: int = 100
    lr: float | None = None
    decay_at: list[float] = field(default_factory=lambda: [0.5, 0.75])
    optimizer: Literal["auto", "sgd", "adam"] = AUTO
    momentum: float = 0.1
    weight_decay: float = 1e-4
    num_positive: int = 8
    num_negative: int = 8
    num_instances: int = 8
    state_rate: float = 0.9
    state_schedule: Literal["constant", "warmup"] = "constant"
    lag: bool = False
    state_start: Literal["first-visit", "exact"] = "first-visit"
    state_refresh: int | None = None
    margin: float = 1.0
    dual_lr: float = 1.0
    objective_weight: Literal["paper", "pairwise"] = "paper"
    dual_domain: Literal["nonnegative", "real"] = "nonnegative"
    center_start: float | None = None
    temperature: float | None = None
    pooling_args: dict[str, Any] = field(default_factory=dict)
    estimator_args: dict[str, Any] = field(default_factory=dict)
    objective_args: dict[str, Any] = field(default_factory=dict)
    draw: str = "uniform"
    draw_args: dict[str, Any] = field(default_factory=dict)
    encoder: str = AUTO
    encoder_args: dict[str, Any] = field(default_factory=dict)
    encoder_weights: str | None = None
    freeze: list[str] = field(default_factory=list)
    checkpointing: bool = False
    augment: list[str] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    dropout: float = 0.0
    norm: Literal["group", "batch"] = "group"
    standardize: bool = True
    scaling: Literal["linear", "blend", "auto"] = "auto"
    clip: float | None = None
    chunk_size: int | None = None
    workers: int | None = None
    resident: bool | None = None
    reads: Literal["auto", "mmap", "pread"] = "auto"
    val_every: int = 1
    val_fraction: float = 0.2
    test_fraction: float = 0.2
    select: Literal["last", "best"] = "last"
    average_from: float | None = None
    patience: int | None = None
    bag_column: str = "bag"
    label_column: str = "label"
    groups: str | None = None
    split: str | None = None
    coords: list[str] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)
    labels: str | None = None
    slides: str | None = None
    positive: str | None = None
    bag_by: Literal["slide", "patient"] = "slide"
    split_file: str | None = None
    fold: int | None = None
    missing: Literal["error", "skip"] = "error"
    patch_size: int = 32
    stride: int | None = None
    magnification: float | None = None
    tissue: float | None = None
    axis: int | None = None
    spacing: float | None = None
    window: list[float] = field(default_factory=list)
    drop_empty: bool = True
    slice_size: int | None = None
    volume: bool = False
    volume_size: list[int] = field(default_factory=list)
    allow_leakage: bool = False
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    compile: bool = False
    threads: int | None = None
    logger: Literal["none", "tensorboard"] = "none"

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(FitConfig).items():
            setattr(self, name, typed(name, getattr(self, name), kind))
        for names, fits, text in _RANGES:
            for name in names:
                value = getattr(self, name)
                if value is not None and not fits(value):
                    raise ConfigError(f"Expected {name} {text}, got {value}; choose another value.")
        if self.val_fraction + self.test_fraction >= 1:
            raise ConfigError(
                f"Expected val_fraction + test_fraction < 1, got {self.val_fraction + self.test_fraction}; lower one."
            )
        for registry in (POOLINGS, ESTIMATORS, OBJECTIVES, DRAWS):
            registry.check(getattr(self, registry.kind))
        if self.encoder != AUTO:
            ENCODERS.check(self.encoder)
        check_names(self.augment)
        self.image_options()

    def image_options(self) -> ImageOptions:
        """How images, slides and volumes are cut."""
        values = {name: getattr(self, name) for name in IMAGE_FIELDS}
        lists = {name: tuple(values[name]) or None for name in LISTS}
        return ImageOptions(**(values | lists))

    def for_instances(self, instance_shape: tuple[int, ...]) -> "FitConfig":
        """These settings with what goes by the instances named: encoder, optimizer and learning rate.

        Parameters
        ----------
        instance_shape : tuple of int
            Shape of one instance: [C, H, W] of at least 8 x 8 is an image, [C, D, H, W] a volume, all else features.

        Examples
        --------
        >>> [FitConfig().for_instances(shape).encoder for shape in [(166,), (3, 32, 32), (1, 32, 64, 64)]]
        ['mlp', 'resnet20', 'resnet20-3d']
        >>> FitConfig(encoder="mlp").for_instances((3, 32, 32)).primal()
        ('sgd', 0.05)
        """
        pixels = len(instance_shape) in (3, 4) and min(instance_shape[-2:]) >= _LEAST_SIDE
        encoder = _ENCODERS_BY_AXES[len(instance_shape) - 2 if pixels else 0] if self.encoder == AUTO else self.encoder
        deep = encoder != "mlp"
        optimizer = self.optimizer if self.optimizer != AUTO else "adam" if deep else "sgd"
        lr = _RATES[optimizer][deep] if self.lr is None else self.lr
        return replace(self, encoder=encoder, optimizer=optimizer, lr=lr)

    def primal(self) -> tuple[Literal["sgd", "adam"], float]:
        """Optimizer and learning rate; as the next three, of settings that went through `for_instances`."""
        if self.optimizer == AUTO or self.lr is None:
            raise ConfigError(_UNSETTLED.format("lr" if self.lr is None else "optimizer"))
        return self.optimizer, self.lr

    def num_members(self) -> int:
        """Scorers that are trained and averaged."""
        if self.members is not None:
            return self.members
        return 3 if self._is_mlp() else 1

    def first_center(self) -> float:
        """Where the centers of minmax-auc start."""
        if self.center_start is not None:
            return self.center_start
        return 0.0 if self._is_mlp() else 0.5

    def cpu_threads(self) -> int | None:
        """CPU threads of the training; None: as many as torch takes."""
        return 1 if self.threads is None and self._is_mlp() else self.threads

    def _is_mlp(self) -> bool:
        if self.encoder == AUTO:
            raise ConfigError(_UNSETTLED.format("encoder"))
        return self.encoder == "mlp"

    def clip_of(self, instance_shape: tuple[int, ...]) -> float:
        """Bound on a linearly standardized feature."""
        if self.clip is not None:
            return self.clip
        return _CLIP_VECTORS if len(instance_shape) < 2 else _CLIP_PIXELS

    def chunk_of(self, instance_shape: tuple[int, ...]) -> int:
        """Instances encoded at a time where whole bags are streamed."""
        return usual_chunk(instance_shape) if self.chunk_size is None else self.chunk_size

    def decays(self, epoch: int) -> int:
        """How often the rates have fallen when epoch `epoch` (from 0) starts."""
        return sum(epoch >= max(1, round(at * self.epochs)) for at in self.decay_at)

    def averages(self, epoch: int) -> bool:
        """Whether the weights after epoch `epoch` (from 0) enter the mean."""
        return self.average_from is not None and epoch >= round(self.average_from * self.epochs)


def member_seed(seed: int, member: int) -> int:
    """Seed of a member's weights and sampling: `seed` itself for member 0, a 32-bit hash of both for the others.

    Examples
    --------
    >>> member_seed(5, 0), member_seed(5, 1)
    (5, 3796490668)
    """
    return seed if member == 0 else int(np.random.SeedSequence([seed, member]).generate_state(1)[0])


def to_dict(config: FitConfig) -> dict[str, Any]:
    """Plain dictionary of the settings, safe for YAML and checkpoints."""
    return dataclasses.asdict(config)


def from_dict(values: dict[str, Any], *, source: str = "the settings") -> FitConfig:
    """Settings from a plain dictionary.

    Raises
    ------
    ConfigError
        For an unknown key, naming the nearest one, or a value out of range.

    Examples
    --------
    >>> from_dict({"epochs": 3}).epochs
    3
    """
    known = [f.name for f in dataclasses.fields(FitConfig)]
    for key in values:
        if key not in known:
            raise ConfigError(unknown_key(key, known, source=source))
    return FitConfig(**values)
