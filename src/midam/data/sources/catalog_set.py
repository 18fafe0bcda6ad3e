"""A set of the catalog as input, by its name."""

from midam.data.bags import Bags
from midam.data.sets import catalog
from midam.data.sources.reader import SPLITS, BagReader, Request


class CatalogReader(BagReader):
    """A name of the catalog."""

    what = "a set of the catalog, which is no table"
    parameters = (*SPLITS, "images")

    def takes(self, request: Request) -> bool:
        """Whether it is a name of the catalog."""
        return catalog.is_name(str(request.source))

    def read(self, request: Request) -> Bags:
        """Load the set."""
        return catalog.load(str(request.source), images=request.images, on_file=request.on_file)
