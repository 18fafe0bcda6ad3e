"""One image per file, cut into patches: PNG and JPEG through Pillow, and TIFFs that are not slides.

Tissue in an image is saturated color, separated from the pale background by Otsu's threshold.
"""

import threading
import warnings
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.file_names import FileReader
from midam.data.sources.formats.open_file import Column, CutRows, OpenFile, cut_file, need, sound
from midam.data.sources.request import ImageOptions, Places
from midam.errors import BagDataError, with_article
from midam.settings.data import PATCHES

_WIDTH, _HEIGHT, _BITS, _WHITE, _ORIENTATION, _HIGHEST = 256, 257, 258, 262, 274, 281  # the tags of EXIF and TIFF
# The tags of a TIFF for the kind of its numbers, and whole ones with a sign; and for planes, of which Pillow reads one.
_FORMAT, _SIGNED, _DEPTH = 339, 2, 32997
_TOPS = (255, 1023, 4095, 16383, 65535)  # of 8 to 16 bits
# Modes of Pillow.
_GRAY = ("1", "L", "LA", "La")
_WIDE = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
_MOST = 30  # of 255: a higher threshold would split a picture that is all tissue by its stain
# Of 255. Saturation is a ratio, so the noise of a black border would pass for color. CLAM calls a patch black if its
# mean red, green and blue are all below 40.
_BLACK = 40
_ROWS = 512
_LARGE, _TURN = 1 << 26, threading.Lock()  # bytes from which one image at a time is decoded


class ImageReader(FileReader):
    """Reader of an image as patches [n, C, P, P], with their top left corners x, y [n, 2], row by row.

    A gray image has one channel (uint16 for 16 bits), others red, green and blue. Transparent pixels are laid on white,
    and the orientation that the file states is applied. The image is decoded when it is first read.
    """

    what = "images"
    suffixes: ClassVar[tuple[str, ...]] = (".png", ".jpg", ".jpeg")
    parameters: ClassVar[tuple[str, ...]] = PATCHES
    family = "images"

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open an image; needs the package pillow. Damaged pixels are found when they are read."""
        with _open(path) as image, sound("a whole image", path):
            width, height = image.size
            if image.format == "TIFF":  # Pillow has turned these sizes already
                width, height = image.tag_v2[_WIDTH], image.tag_v2[_HEIGHT]
            # Pillow would decode a PNG without EXIF to search for it. Above 4, the image is rotated by 90 degrees.
            if (image.format != "PNG" or "exif" in image.info) and image.getexif().get(_ORIENTATION, 1) > 4:
                width, height = height, width
            num_bytes = width * height * (1 if image.mode in _GRAY else 4 if image.mode in _WIDE else 3)
        size = options.patch_size

        def cut() -> tuple[Column, Column]:
            if places is None:
                require_patch(width, height, size, kind="image", path=path)
            with nullcontext() if num_bytes <= _LARGE else _TURN:
                pixels = read_pixels(path)
            corners = _places(pixels, options, path) if places is None else places

            def patch(number: int) -> NDArray[Any]:
                x, y = corners[number].tolist()
                return pixels[:, y : y + size, x : x + size]

            return CutRows((len(corners), len(pixels), size, size), pixels.dtype, patch), corners

        coords = {"patch_size": size, "patch_size_level0": size, "level0_width": width, "level0_height": height}
        return cut_file("patches", cut, {"coords": coords}, held=num_bytes, handle=False)

    def verify(self, path: Path) -> None:
        """Compare the checksums of a PNG, which Pillow ignores when it decodes."""
        with _open(path) as image, sound("a whole image", path):
            image.verify()


def read_pixels(path: Path, *, mask: bool = False) -> NDArray[Any]:
    """Decode an image [C, H, W] as `ImageReader` does; refuse a damaged image, or one of 16 bits per color.

    In a `mask`, transparent pixels are black, and those of an indexed image are its numbers, whatever their colors.
    """
    from PIL import ImageOps

    with _open(path) as image, sound("a whole image", path):
        _require_image(image, path)
        if image.format == "TIFF":
            image.filename = ""  # else Pillow maps plain pixels into memory, with the width of the turned image
        ImageOps.exif_transpose(image, in_place=True)
        pixels = np.empty(0)
        for top in range(0, image.height, _ROWS):  # in parts, since each conversion copies
            part = _pixels_of(image.crop((0, top, image.width, min(top + _ROWS, image.height))), path, image, mask)
            if top == 0:
                pixels = np.empty((len(part), image.height, image.width), part.dtype)
            pixels[:, top : top + _ROWS] = part
        return pixels


def _require_image(opened: Any, path: Path) -> None:
    count = max(getattr(opened, "n_frames", 1), getattr(opened, "tag_v2", {}).get(_DEPTH, 1))
    if opened.format != "MPO" and count > 1:  # the others of a JPEG are its previews
        got = f"{count} pages or frames that form no pyramid (in {path})"
        raise BagDataError(f"Expected one image in a file, got {got}; write a file for each, or a volume as .npy.")
    if _is_cut(opened):
        got = f"16 or a sign, or gray with more channels, which would be lost (in {path})"
        raise BagDataError(f"Expected 8 bits of each color, got {got}; convert it to 8 bits, or to plain gray.")


def _pixels_of(image: Any, path: Path, opened: Any, mask: bool) -> NDArray[Any]:
    """Return the pixels [C, H, W] of an image, or of a part of it, whose tags are those of the `opened` file."""
    from PIL import Image

    if image.mode in _WIDE:
        array = np.asarray(image, dtype=np.float32)[None] if image.mode == "F" else _deep(np.asarray(image), path)
        array = np.where(array == opened.info.get("transparency"), _TOPS[-1] * (not mask), array)
        inverted = opened.format == "TIFF" and opened.tag_v2.get(_WHITE) == 0  # Pillow itself inverts up to 8 bits
        return (0 if image.mode == "F" else _black(opened)) - array if inverted else array
    if mask and image.mode == "P":
        return np.where(image.convert("RGBA").getchannel("A"), image, 0)[None]
    gray = image.mode in _GRAY
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "black" if mask else "white"), layer)
    array = np.asarray(image.convert("L" if gray else "RGB"))
    return array[None] if gray else np.ascontiguousarray(array.transpose(2, 0, 1))


def _black(opened: Any) -> np.uint16:
    """Return the number of black in a TIFF of 16 bits with white as zero: as stated, or by the bits in use."""
    stated, high = np.max(opened.tag_v2.get(_HIGHEST, 0)), opened.getextrema()[1]
    if stated >= high:
        return np.uint16(stated)
    top = next(top for top in _TOPS if top >= high)
    if top < _TOPS[-1]:
        text = f"TIFFs with white as zero state no MaxSampleValue: by the bits in use, black is {top}"
        warnings.warn(f"{text}; if files of this kind use more bits, convert all", stacklevel=4)
    return np.uint16(top)


@lru_cache(maxsize=16)  # images of one size share their corners
def grid(width: int, height: int, *, size: int, stride: int) -> Places:
    """Return the top left corners [n, 2] (x, y) of the whole squares in an image, row by row; read-only."""
    x, y = np.arange(0, width - size + 1, stride), np.arange(0, height - size + 1, stride)
    corners = np.stack([np.tile(x, len(y)), np.repeat(y, len(x))], axis=1).astype(np.int64)
    corners.setflags(write=False)
    return corners


def need_pillow(path: Path) -> Any:
    """Import the part of Pillow that opens images."""
    return need("PIL.Image", "images", path, extra="images", package="pillow")


def require_patch(width: int, height: int, side: int, *, kind: str, path: Path) -> None:
    """Refuse an image or slide that is smaller than a patch."""
    if min(width, height) < side:
        wanted, got = f"at least {side}x{side} pixels, one patch", f"{width}x{height} (in {path})"
        raise BagDataError(f"Expected {with_article(kind)} of {wanted}, got {got}; choose a smaller `patch_size`.")


def _open(path: Path) -> Any:
    image = need_pillow(path)
    with sound("a whole image", path):
        try:
            return image.open(path)
        except image.DecompressionBombError as error:
            text = f"Expected an image that fits into memory, got: {error}"
            raise BagDataError(f"{text} (in {path}); save it as a pyramidal TIFF, which is read as a slide.") from error


def _is_cut(image: Any) -> bool:
    """Return whether Pillow would read only 8 bits of pixels that have 16, or ignore their sign or a second channel."""
    if image.format != "TIFF":
        return image.mode not in _WIDE and ";16" in str(image.tile)  # such as RGB;16B
    bits, signed = image.tag_v2.get(_BITS, (1,)), _SIGNED in image.tag_v2.get(_FORMAT, ())
    return image.mode not in _WIDE and (max(bits) > 8 or signed or (image.mode == "L" and len(bits) > 1))


def _deep(array: NDArray[Any], path: Path) -> NDArray[Any]:
    low, high = array.min(), array.max()
    if low < 0 or high > np.iinfo(np.uint16).max:
        raise BagDataError(f"Expected gray values from 0 to 65535, got {low} to {high} (in {path}); write it as .npy.")
    return array.astype(np.uint16)[None]


def _places(pixels: NDArray[Any], options: ImageOptions, path: Path) -> Places:
    places = grid(pixels.shape[2], pixels.shape[1], size=options.patch_size, stride=options.step)
    if not options.tissue:
        return places
    if len(pixels) != 3 or pixels.dtype != np.uint8:
        got = f"{len(pixels)} channel of {pixels.dtype} (in {path})"
        raise BagDataError(f"Expected a color image with `tissue`, got {got}; leave out `tissue`.")
    return on_tissue(places, pixels, side=options.patch_size, share=options.tissue, path=path)


def saturation(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the saturation [H, W] of colors [3, H, W], as in HSV: 255 (max - min) / max."""
    high, low = pixels.max(axis=0), pixels.min(axis=0)
    return np.asarray((high - low).astype(np.uint16) * 255 // np.maximum(high, 1), dtype=np.uint8)


def otsu(values: NDArray[np.uint8]) -> int:
    """Return the threshold t that best separates the values <= t from those > t (Otsu 1979)."""
    counts = np.bincount(values.reshape(-1), minlength=256).astype(np.float64)
    below = np.cumsum(counts)
    sums = np.cumsum(counts * np.arange(256))
    above = below[-1] - below
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = sums / below - (sums[-1] - sums) / above
    return int(np.argmax(np.nan_to_num(below * above * gap**2, posinf=0.0)))


def tissue_mask(pixels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return where colors [3, H, W] are more saturated than Otsu's threshold, or than 30 of 255 if that is lower.

    Pixels whose colors are all below 40 are black: they are not tissue, and Otsu's threshold ignores them.
    """
    values, bright = saturation(pixels), pixels.max(axis=0) >= _BLACK
    return np.asarray(bright & (values > min(otsu(values[bright]), _MOST)), dtype=np.bool_)


def covered(mask: NDArray[np.bool_], corners: NDArray[Any], side: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each square that a mask [H, W] covers; corners (x, y) and side are in pixels of the mask.

    Two sides are the width and height of rectangles. Each covers at least one pixel, so that rounding loses none.
    """
    sums = np.pad(np.cumsum(np.cumsum(mask, axis=0, dtype=np.int64), axis=1), ((1, 0), (1, 0)))
    height, width = mask.shape
    low = np.clip(np.floor(corners).astype(np.int64), 0, [width - 1, height - 1])
    high = np.clip(np.floor(corners + side).astype(np.int64), low + 1, [width, height])
    (x0, y0), (x1, y1) = low.T, high.T
    inside = sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]
    return np.asarray(inside / ((x1 - x0) * (y1 - y0)), dtype=np.float64)


def on_tissue(
    places: Places, pixels: NDArray[np.uint8], *, side: float, share: float, zoom: float = 1.0, path: Path
) -> Places:
    """Return the squares of which at least this share is tissue; `zoom` scales corners and side to `pixels`."""
    kept = places[covered(tissue_mask(pixels), places * zoom, side * zoom) >= share]
    if not len(kept):
        got = f"none of {len(places)} (in {path}); lower `tissue`, or leave it out"
        raise BagDataError(f"Expected patches with a tissue share of {share:g}, got {got}.")
    return kept
