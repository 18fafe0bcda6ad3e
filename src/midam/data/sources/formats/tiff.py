"""One TIFF a file: a slide if it is a pyramid, else an image."""

from pathlib import Path

from midam.data.sources.formats.images import ImageReader
from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.formats.openslide_pyramid import is_pyramid
from midam.data.sources.formats.slides import SlideReader
from midam.data.sources.imageoptions import ImageOptions, Places
from midam.errors import BagDataError


class TiffReader(ImageReader):
    """A TIFF, read as `SlideReader` or `ImageReader` reads; a magnification can be asked of slides alone."""

    what = "images and slides"
    suffixes = (".tif", ".tiff")
    parameters = SlideReader.parameters

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a TIFF."""
        if is_pyramid(path):
            return SlideReader().open(path, options, places)
        opened = super().open(path, options, places)
        if options.magnification is not None:
            raise BagDataError(
                f"Expected a pyramidal TIFF where a magnification is asked, got a plain image (in {path}); leave out "
                "`magnification` to read its pixels as they are, or convert it to a pyramid that says its "
                "magnification."
            )
        return opened
