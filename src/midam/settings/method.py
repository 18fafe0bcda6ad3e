"""The method: encoder and standardization, and pooling x estimator x objective."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from midam.errors import ConfigError
from midam.registry import ENCODERS, ESTIMATORS, OBJECTIVES, POOLINGS, is_network
from midam.settings.group import AUTO, Count, Fraction, Named, OpenRate, Positive, Rate, SettingsGroup

_LEAST_SIDE = 8  # of images, which ResNet20 halves twice
_CLIP_VECTORS, _CLIP_PIXELS = 3.0, 10.0
# A layer of the mlp as wide as the input learns too little from few features per instance, and is slow for many. 512
# is the width of attention networks on pretrained features (ABMIL; CLAM).
_LEAST_WIDTH, _MOST_WIDTH = 128, 512

# The paper's centers start at 0; from there all scores of a deep encoder can fall to 0.
_CENTER_SHALLOW, _CENTER_DEEP = 0.0, 0.5
_OF_TWO_CLASSES = "minmax-auc"
Center = Annotated[float, Field(ge=0, le=1)]


class ModelSettings(SettingsGroup):
    """The encoder, and the standardization of its input.

    Attributes
    ----------
    encoder
        "auto": "mlp" for features, also of embedded images; "resnet20" for pixels, "resnet20-3d" for volumes.
    encoder_args
        Further arguments of the encoder, such as the `network` of "fine-tuned", by default "efficientnet-lite0".
    encoder_weights
        File with the encoder's initial weights: a state dictionary of torch.save, or .safetensors.
    freeze
        Submodules of the encoder that are not trained, by name, with the wildcards "?" and "*"; "*" is the whole
        encoder.
    hidden
        Widths of the mlp's layers; default: one layer as wide as the input, but at least 128 and at most 512. "[]" is
        one layer as wide as the input, without these bounds.
    dropout
        Dropout rate after each mlp layer, in [0, 1).
    norm
        Normalization of resnet20 and resnet20-3d: by groups of channels, or by the batch as in the paper.
    standardize
        Standardize features robustly with the statistics of the training instances.
    scaling
        Scaling of standardized vectors: "linear", "blend" (the mean of the linear value and the normal score of the
        rank), or "auto" ("blend" for features with many equal values, "linear" for the others).
    clip
        Bound on a linearly standardized feature; default: 3 for feature vectors, 10 for pixels.

    Examples
    --------
    >>> ModelSettings(dropout=0.2).resolve((32,)).hidden
    (128,)
    >>> ModelSettings(norm="batch").resolve((3, 32, 32)).encoder
    'resnet20'
    """

    encoder: Annotated[str, Named(ENCODERS, also=(AUTO,))] = AUTO
    encoder_args: dict[str, Any] = Field(default_factory=dict)
    encoder_weights: str | None = None
    freeze: tuple[str, ...] = ()
    hidden: tuple[Count, ...] | None = None
    dropout: Fraction = 0.0
    norm: Literal["group", "batch"] = "group"
    standardize: bool = True
    scaling: Literal["linear", "blend", "auto"] = "auto"
    clip: Positive | None = None

    @field_validator("encoder", mode="before")
    @classmethod
    def _is_trained(cls, name: Any) -> Any:
        if isinstance(name, str) and is_network(name):
            raise ConfigError(
                f"Expected an encoder that is trained, got the frozen network {name!r}; embed data with `midam "
                "embed` or `midam.embed_bags`, and train on the vectors; or use the encoder 'fine-tuned'."
            )
        return name

    def resolve(self, instance_shape: tuple[int, ...]) -> "ResolvedModel":
        """Return these settings with the defaults for instances of one shape."""
        usual = {3: "resnet20", 4: "resnet20-3d"}[len(instance_shape)] if are_pixels(instance_shape) else "mlp"
        encoder = usual if self.encoder == AUTO else self.encoder
        clip = _CLIP_VECTORS if len(instance_shape) < 2 else _CLIP_PIXELS
        width = math.prod(instance_shape)
        usual_width = min(max(width, _LEAST_WIDTH), _MOST_WIDTH)
        hidden = None if encoder != "mlp" else () if width == usual_width else (usual_width,)
        return ResolvedModel(**self._filled(clip=clip, hidden=hidden) | {"encoder": encoder})


class ResolvedModel(ModelSettings):
    """Settings of the model for instances of one shape."""

    encoder: Annotated[str, Named(ENCODERS)]
    clip: Positive


def are_pixels(instance_shape: tuple[int, ...]) -> bool:
    """Return whether instances are images [C, H, W] or volumes [C, D, H, W], of at least 8 x 8, rather than features.

    Examples
    --------
    >>> are_pixels((166,)), are_pixels((3, 32, 32)), are_pixels((3, 4, 4))
    (False, True, False)
    """
    return len(instance_shape) in (3, 4) and min(instance_shape[-2:]) >= _LEAST_SIDE


class MethodSettings(SettingsGroup):
    """The method: pooling x estimator x objective.

    Attributes
    ----------
    pooling
        How instance scores are pooled.
    pooling_args
        Further arguments of the pooling.
    attention
        With several score columns: one attention each ("per-class"), or one for all ("shared").
    temperature
        tau of smoothed-max; default 0.1.
    estimator
        How a step estimates the pooling: "vrsp" (MIDAM: tracked state, B instances per bag), "vrsp-printed" (the
        paper's state), "minibatch" (B instances, biased), "exact" (whole bags in two passes), "exact-point" (B
        instances at the value of whole bags).
    estimator_args
        Further arguments of the estimator, such as `lag` of vrsp-printed.
    state_rate
        gamma0 in (0, 1], the weight of the new sample in the tracked state of vrsp; "auto": a state averages over about
        32 instances, or two median bags, and fewer at first. vrsp-printed takes 0.9 for "auto".
    objective
        Loss; "auto": "minmax-auc", or "pairwise" (squared hinge) for ordered labels.
    objective_args
        Further arguments of the objective.
    margin
        c > 0 of the AUC objectives.
    dual_lr
        eta' in (0, 1] of minmax-auc.
    objective_weight
        F3 of minmax-auc as printed ("paper"), or doubled ("pairwise").
    dual_domain
        Domain of the dual variable of minmax-auc.
    center_start
        Start of the centers a and b of minmax-auc, in [0, 1]; default: 0 for the mlp, as in the paper, else 0.5.
    max_fpr
        For partial-auc, the largest false positive rate that counts, in (0, 1]; default: a soft limit by
        fpr_temperature.
    fpr_temperature
        For partial-auc without max_fpr: gives higher negative bags more weight, in units of the squared hinge; near 0
        only the highest counts.
    tpr_temperature
        For partial-auc: gives lower positive bags more weight, in units of the squared hinge; default: equal
        weights.
    pair_rate
        Weight in (0, 1] of a step in the state of a positive bag, for partial-auc and average-precision.
    anneal
        Fraction of the epochs, in [0, 1], over which the weights of the instances change from nearly equal (power 0.2)
        to those of the pooling; 0 switches this off.

    Examples
    --------
    >>> from midam.settings import MethodSettings, Settings
    >>> method = MethodSettings(pooling="smoothed-max", temperature=0.1, estimator="exact")
    >>> settings = Settings(method=method)
    >>> settings.resolve((166,)).method.objective
    'minmax-auc'
    """

    pooling: Annotated[str, Named(POOLINGS)] = "attention"
    pooling_args: dict[str, Any] = Field(default_factory=dict)
    attention: Literal["shared", "per-class"] = "per-class"
    temperature: Positive | None = None
    estimator: Annotated[str, Named(ESTIMATORS)] = "vrsp"
    estimator_args: dict[str, Any] = Field(default_factory=dict)
    state_rate: OpenRate = AUTO
    objective: Annotated[str, Named(OBJECTIVES, also=(AUTO,))] = AUTO
    objective_args: dict[str, Any] = Field(default_factory=dict)
    margin: Positive = 1.0
    dual_lr: Rate = 1.0
    objective_weight: Literal["paper", "pairwise"] = "paper"
    dual_domain: Literal["nonnegative", "real"] = "nonnegative"
    center_start: Center | None = None
    max_fpr: Rate | None = None
    fpr_temperature: Positive = 0.2
    tpr_temperature: Positive | None = None
    pair_rate: Rate = 0.9
    anneal: Annotated[float, Field(ge=0, le=1)] = 0.0

    def resolve(self, *, deep: bool) -> "ResolvedMethod":
        """Return these settings with the defaults of an MLP or of a deep encoder.

        The objective "auto" becomes that of two classes.
        """
        filled = self._filled(center_start=_CENTER_DEEP if deep else _CENTER_SHALLOW)
        objective = _OF_TWO_CLASSES if self.objective == AUTO else self.objective
        return ResolvedMethod(**filled | {"objective": objective})


class ResolvedMethod(MethodSettings):
    """Settings of the method for instances of one shape."""

    objective: Annotated[str, Named(OBJECTIVES)]
    center_start: Center
