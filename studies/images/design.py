"""Design of the studies on images: methods, settings and epochs of each set, in three sizes and a test in seconds."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.methods.names import method_settings
from midam.settings import Settings
from studies.engine import STATE_RATE
from studies.images import voxels
from studies.options import StudyOptions
from studies.paper_tables import OURS

STACKED = ("ce-3d", "dam-3d")
SAMPLED = tuple(f"{loss}-mb-{pooling}" for pooling in ("mean", "max", "smx", "att") for loss in ("ce", "dam"))
MIDAM = ("midam-printed-smx", "midam-printed-att")
EXACT = ("ce-smx", "dam-smx", "ce-att", "dam-att")
METHODS = (*STACKED, *SAMPLED, *MIDAM, *OURS, *EXACT)
COLOR_BASELINES = ("rgb-logistic", "rgb-trees")
VOXEL_BASELINES = (voxels.NAME,)
SETS = ("breast", "colon", "adrenal")

# Optimizer and learning rate of the AUC objectives if a study chooses none: for each set the choice by validation bags
# of the other two sets, with the estimator of the paper and without the lowest rates of `image-defaults`.
CHOSEN: dict[str, tuple[Literal["sgd", "adam"], float]] = {
    "breast": ("sgd", 0.01),
    "colon": ("adam", 0.0003),
    "adrenal": ("adam", 0.0003),
}
_STACKED_CHUNK = 16  # number of volumes scored at a time: a volume is as large as a bag
# From the paper's text if it gives a value, else from the authors' code.
_SETTINGS: dict[str, Any] = {
    "decay_at": [0.5, 0.75],
    "momentum": 0.1,
    "weight_decay": 1e-4,
    "dual_lr": 1.0,
    "objective_weight": "paper",
    "dual_domain": "nonnegative",
    "members": 1,
    "norm": "group",
    "standardize": True,
    "workers": 0,
    "resident": True,
    "threads": 1,
}


@dataclass(frozen=True)
class Recipe:
    """Methods and settings for one set."""

    # Names of methods (`METHODS`), and of baselines of `midam.compare`
    methods: tuple[str, ...]
    baselines: tuple[str, ...]
    epochs: int  # Epochs of a training
    instances: int  # B of the sampling estimators
    # Repeats of a 5-fold cross-validation, and how many of the folds are run
    repeats: int = 1
    folds: int = 5
    # Learning rates and margins to choose from, on validation bags; the first margin goes with the learning rates
    lrs: tuple[float, ...] = (0.1, 0.01, 0.001)
    margins: tuple[float, ...] = (1.0, 0.5, 0.1)
    search: float = 0.0  # Share of the epochs that a training of the search takes; 0: nothing is chosen
    tries: int = 1  # Trainings of each setting in the search, with different seeds; their mean decides
    score_every: int = 1  # Number of epochs between scorings of validation and test bags; the last epoch is scored too
    bags: int = 8  # Number of bags of a class in a batch, S+ = S-
    state_rate: float = STATE_RATE  # gamma0 of vrsp-printed
    less: tuple[tuple[str, int], ...] = ()  # Methods with fewer epochs, because they cost much more than the others
    lr_ce: float | None = None  # Learning rate of cross-entropy (Adam) if none is chosen
    optimizer: Literal["sgd", "adam"] = "sgd"  # For the AUC objectives
    others: tuple[tuple[str, Any], ...] = ()  # Settings that replace the settings of the studies on images
    # Vectors are standardized once for each trial, by the training bags, not at each pass of the encoder
    standardized: bool = False
    by_group: bool = True  # Folds disjoint by group; else the paper's splits with a random tenth as test

    @property
    def validates(self) -> bool:
        """Return whether a setting is chosen, so that validation bags are needed."""
        return self.search > 0

    def epochs_of(self, method: str) -> int:
        """Return the epochs of a method."""
        return dict(self.less).get(method, self.epochs)

    def search_epochs(self, method: str) -> int:
        """Return the epochs of a training of the search."""
        return max(1, round(self.search * self.epochs_of(method)))

    def rates(self, method: str) -> tuple[float, ...]:
        """Return the learning rates of a method; a single rate if nothing is chosen."""
        if self.validates:
            return self.lrs
        return (self.lr_ce,) if is_ce(method) and self.lr_ce is not None else self.lrs[:1]

    def margins_of(self, method: str) -> tuple[float, ...]:
        """Return the margins of a method; a single margin if nothing is chosen, and 1 for cross-entropy."""
        return (1.0,) if is_ce(method) else self.margins if self.validates else self.margins[:1]


@dataclass(frozen=True)
class Design:
    """A study in one size."""

    name: str  # Of the size
    recipes: Mapping[str, Recipe]  # By set
    # Most bags of each class of a set, and most instances of a bag
    bags: int | None = None
    instances: int | None = None
    halve: bool = False  # Volumes at half the resolution


def is_ce(method: str) -> bool:
    """Return whether a method optimizes cross-entropy.

    Examples
    --------
    >>> is_ce("ce-3d"), is_ce("dam-3d")
    (True, False)
    """
    return method.startswith("ce-")


def image_config(method: str, recipe: Recipe, *, lr: float, margin: float, epochs: int, cuda: bool = False) -> Settings:
    """Return the settings of a training: ResNet20, cross-entropy with Adam, the AUC objectives with momentum.

    A stacked method ("ce-3d", "dam-3d") gets a bag as one instance [C, n, H, W].

    Examples
    --------
    >>> recipe = Recipe(METHODS, COLOR_BASELINES, epochs=3, instances=4)
    >>> config = image_config("dam-3d", recipe, lr=0.1, margin=0.5, epochs=3)
    >>> config.model.encoder, config.method.estimator, config.method.margin
    ('resnet20-3d', 'exact', 0.5)
    """
    stacked = method in STACKED
    named = method_settings("ce-mean" if method == "ce-3d" else "dam-mean") if stacked else method_settings(method)
    values: dict[str, Any] = _SETTINGS | named
    values |= {"lr": lr, "epochs": epochs, "num_instances": recipe.instances}
    values |= {"state_rate": recipe.state_rate} if named["estimator"] == "vrsp-printed" else {}
    values |= {"num_positive": recipe.bags, "num_negative": recipe.bags}
    values |= {"optimizer": "adam"} if is_ce(method) else {"optimizer": recipe.optimizer, "margin": margin}
    values["encoder"] = "resnet20-3d" if stacked else "resnet20"
    values["precision"] = "bf16-mixed" if half_precision(stacked=stacked, cuda=cuda) else "32-true"
    values["accelerator"] = "cuda" if cuda else "cpu"
    if stacked:
        values["chunk_size"] = _STACKED_CHUNK
    values |= {"standardize": False} if recipe.standardized else {}
    return Settings(**values | dict(recipe.others))


def half_precision(*, stacked: bool, cuda: bool) -> bool:
    """Return whether a training runs in bfloat16: on a GPU, or on a CPU that supports it, which halves the time.

    Volumes on the CPU do not: with two slices, the gradients of 3-D convolutions were infinite there.
    """
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return cuda or (not stacked and any(capabilities.get(f"{unit}_bf16") for unit in ("avx512", "amx")))


def choose_design(options: StudyOptions) -> Design:
    """Return the design that the options ask for.

    Examples
    --------
    >>> choose_design(StudyOptions(quick=True)).name, choose_design(StudyOptions(size="small")).name
    ('quick', 'small')
    """
    if options.smaller or options.quick:
        if options.size is not None:
            raise ConfigError(f"Expected --quick or a --size, got both (size {options.size!r}); leave one out.")
        return SMALLER if options.smaller else QUICK
    size = options.size or "full"
    if size not in DESIGNS:
        raise ConfigError(f"Expected size as one of {', '.join(DESIGNS)}, got {size!r}; choose one of them.")
    return DESIGNS[size]


def fixed_settings(name: str, **others: Any) -> dict[str, Any]:
    """Return the settings of a recipe without a choice, for a set, and `others`.

    These are the library's defaults, Adam's usual 0.001 for cross-entropy, and `CHOSEN`.
    """
    optimizer, lr = CHOSEN[name]
    usual = {"optimizer": optimizer, "lrs": (lr,), "lr_ce": 0.001, "margins": (1.0,)}
    return {**usual, **others}


def limited(bags: Bags, design: Design) -> Bags:
    """Return the first bags of each class and the first instances of each bag, within the limits of the design."""
    if design.bags is not None:
        labels = bags.require_labels()
        kept = [_spread(bags, (labels == value).nonzero()[0].tolist(), design.bags) for value in (0, 1)]
        bags = bags.subset(sorted(kept[0] + kept[1]))
    if design.instances is not None:
        bags = bags.replace(sizes=bags.sizes.clip(max=design.instances), digests=None)
    return bags


def _spread(bags: Bags, positions: list[int], count: int) -> list[int]:
    """Take positions in turn from all groups (or splits): the first positions of a sorted set may be from one group."""
    of = bags.groups if bags.groups is not None else bags.splits
    if of is None:
        return positions[:count]
    turns: dict[str, int] = {}
    ranked = []
    for position in positions:
        turn = turns.get(str(of[position]), 0)
        turns[str(of[position])] = turn + 1
        ranked.append((turn, position))
    return [position for _, position in sorted(ranked)[:count]]


def _fewer(*, stacked: int, exact: int) -> tuple[tuple[str, int], ...]:
    return tuple([(method, stacked) for method in STACKED] + [(method, exact) for method in EXACT])


_FEWER = _fewer(stacked=20, exact=20)
_FULL = {
    "breast": Recipe(
        METHODS, COLOR_BASELINES, epochs=100, instances=16, repeats=2, search=0.1, score_every=5, less=_FEWER
    ),
    "colon": Recipe(METHODS, COLOR_BASELINES, epochs=60, instances=4, search=0.1, score_every=5, less=_FEWER),
    "adrenal": Recipe(
        METHODS,
        VOXEL_BASELINES,
        epochs=20,
        instances=4,
        lrs=(0.1,),
        search=0.1,
        score_every=5,
        less=_fewer(stacked=4, exact=8),
    ),
}
_FOUR = ("dam-mb-smx", "dam-mb-att", *MIDAM)
_SMALL = {
    "colon": Recipe(
        (*_FOUR, "dam-att"),
        COLOR_BASELINES,
        epochs=24,
        instances=4,
        score_every=24,
        less=(("dam-att", 2),),
        **fixed_settings("colon"),
    ),
    "adrenal": Recipe(
        (*STACKED, *_FOUR),
        VOXEL_BASELINES,
        epochs=8,
        instances=4,
        folds=1,
        score_every=8,
        less=(("ce-3d", 2), ("dam-3d", 2)),
        **fixed_settings("adrenal"),
    ),
    "breast": Recipe(_FOUR, COLOR_BASELINES, epochs=15, instances=16, score_every=15, **fixed_settings("breast")),
}


def _one_epoch(methods: tuple[str, ...], *, bags: int, instances: int) -> dict[str, Recipe]:
    recipe = Recipe(
        methods,
        COLOR_BASELINES,
        epochs=1,
        instances=instances,
        folds=1,
        search=1.0,
        bags=bags,
        lrs=(0.01,),
        margins=(1.0,),
    )
    return {**dict.fromkeys(SETS, recipe), "adrenal": dataclasses.replace(recipe, baselines=VOXEL_BASELINES)}


QUICK = Design("quick", _one_epoch(METHODS, bags=2, instances=4), bags=10, instances=24, halve=True)
SMALLER = Design("smaller", _one_epoch(METHODS, bags=2, instances=2), bags=10, instances=4)
DESIGNS = {
    "full": Design("full", _FULL),
    "small": Design("small", _SMALL, halve=True),
}
