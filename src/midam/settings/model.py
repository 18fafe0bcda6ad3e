"""The encoder, and how features are standardized before it."""

import math
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from midam.errors import ConfigError
from midam.registry import ENCODERS, is_network
from midam.settings.group import Named, SettingsGroup

AUTO: Final = "auto"
_LEAST_SIDE = 8  # of images: ResNet20 halves them twice
_CLIP_VECTORS, _CLIP_PIXELS = 3.0, 10.0
# Of the mlp: of few numbers an instance a layer as wide as the input learns too little, of many it takes long. 512 is
# the width of attention networks on pretrained features (ABMIL; CLAM).
_LEAST_WIDTH, _MOST_WIDTH = 128, 512

Clip = Annotated[float, Field(gt=0)]


class ModelSettings(SettingsGroup):
    """The encoder, and how features are standardized before it.

    Attributes
    ----------
    encoder
        "auto": "mlp" for features, "resnet20" for images, "resnet20-3d" for volumes; "efficientnet-lite0": `fit`
        embeds first.
    encoder_args
        Further arguments of the encoder.
    encoder_weights
        File with the encoder's weights at the start: a state dictionary of torch.save, or .safetensors.
    freeze
        Parts of the encoder that are not trained, by the names of its submodules; "*" for all of it.
    hidden
        Widths of the mlp's layers; default: one layer as wide as the input, but of 128 at least and 512 at most. "[]"
        is one as wide as the input, whatever it is.
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
        Bound on a linearly standardized feature; default: 3 for feature vectors, 10 for pixels.
    """

    encoder: Annotated[str, Named(ENCODERS, also=(AUTO,))] = AUTO
    encoder_args: dict[str, Any] = Field(default_factory=dict)
    encoder_weights: str | None = None
    freeze: tuple[str, ...] = ()
    hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    norm: Literal["group", "batch"] = "group"
    standardize: bool = True
    scaling: Literal["linear", "blend", "auto"] = "auto"
    clip: Clip | None = None

    @field_validator("encoder", mode="before")
    @classmethod
    def _is_trained(cls, name: Any) -> Any:
        if isinstance(name, str) and is_network(name):
            raise ConfigError(
                f"Expected an encoder that is trained, got the frozen network {name!r}; make vectors by `midam embed` "
                "or `midam.embed_bags` first, and train on those."
            )
        return name

    def resolve(self, instance_shape: tuple[int, ...]) -> "ResolvedModel":
        """These settings for instances of one shape."""
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
    clip: Clip


def are_pixels(instance_shape: tuple[int, ...]) -> bool:
    """Whether instances are images [C, H, W] or volumes [C, D, H, W], of at least 8 x 8, rather than features.

    Examples
    --------
    >>> are_pixels((166,)), are_pixels((3, 32, 32)), are_pixels((3, 4, 4))
    (False, True, False)
    """
    return len(instance_shape) in (3, 4) and min(instance_shape[-2:]) >= _LEAST_SIDE
