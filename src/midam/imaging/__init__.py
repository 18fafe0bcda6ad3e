"""Images, slides and scans as instances, and the frozen networks that turn them into vectors by a recorded recipe."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.imaging.embedding import embed_bags as embed_bags
    from midam.imaging.network import Network as Network
    from midam.imaging.networks import load_network as load_network

__all__, __getattr__, __dir__ = exports(__name__)
