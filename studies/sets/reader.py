"""The reader of the catalog's sets by name, as a plug-in: ``midam fit colon --plugin studies.sets.reader``."""

from midam.data.bags import Bags
from midam.data.sources import BagReader
from midam.data.sources.request import SPLITS, Request
from midam.registry import READERS
from studies.sets import catalog


class CatalogReader(BagReader):
    """Reader of a set of the catalog, by name."""

    what = "a set of the catalog, which is no table"
    parameters = (*SPLITS, "images", "target")

    def takes(self, request: Request) -> bool:
        """Return whether the source is a name of the catalog."""
        return catalog.is_name(request.path_or_name)

    def read(self, request: Request) -> Bags:
        """Load the set."""
        return catalog.load(request.path_or_name, images=request.images)


READERS.add("catalog", CatalogReader)
