"""Embed images, patches and slices as vectors by frozen pretrained networks, and record the recipe."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.imaging.embedding import embed_bags as embed_bags
    from midam.imaging.network import Network as Network
    from midam.imaging.networks import load_network as load_network

__all__, __getattr__, __dir__ = exports(__name__)
