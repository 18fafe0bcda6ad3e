"""TIFFs in strips of rows, from top to bottom: each strip becomes a small TIFF, which Pillow decodes.

Pillow holds all other images as a whole.
"""

import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

_WIDTH, _HEIGHT, _BITS, _CODE, _PLANES, _ORIENTATION = 256, 257, 258, 259, 284, 274  # tags of TIFF
_STRIPS, _TILES = (273, 279, 278), (324, 325, 323)  # offsets, numbers of bytes, rows
_KEPT = (_WIDTH, _BITS, _CODE, 262, 266, 277, _PLANES, 317, 320, 322, 338, 339, 347, 530)  # tags that decoders need


def strips_of(image: Any, path: Path, rows: int) -> Iterator[Any] | None:
    """Return strips of about `rows` rows of an image opened by Pillow; None if it must be decoded as a whole.

    That is no TIFF, or one of several pages, of one packed strip, of strips per color, or to be rotated.
    """
    if image.format != "TIFF" or getattr(image, "n_frames", 1) > 1 or image.tag_v2.get(_ORIENTATION, 1) != 1:
        return None
    tags = image.tag_v2
    names = _TILES if _TILES[0] in tags else _STRIPS
    width, height, code = tags[_WIDTH], tags[_HEIGHT], tags.get(_CODE, 1)
    offsets, sizes, unit = list(tags[names[0]]), list(tags[names[1]]), min(tags.get(names[2], height), height)
    line = -(-width * sum(tags.get(_BITS, (1,))) // 8)
    if code == 1 and names is _STRIPS and line * unit == sizes[0]:
        offsets = [offsets[row // unit] + row % unit * line for row in range(height)]
        sizes, unit = [line] * height, 1
    if tags.get(_PLANES, 1) != 1 or code == 6 or unit >= height:
        return None
    across = -(-width // tags[322]) if names is _TILES else 1

    def strips() -> Iterator[Any]:
        step = max(rows // unit, 1)
        with path.open("rb") as file:
            for low in range(0, -(-height // unit), step):
                span = slice(low * across, (low + step) * across)
                parts = []
                for offset, size in zip(offsets[span], sizes[span], strict=True):
                    file.seek(offset)
                    parts.append(file.read(size))
                more = {_HEIGHT: min(step * unit, height - low * unit), names[2]: unit}
                yield _decoded(_tiff_of(tags, names, parts, more))

    return strips()


def _tiff_of(tags: Any, names: tuple[int, ...], parts: list[bytes], more: dict[int, Any]) -> bytes:
    """Return a TIFF of these strips or tiles."""
    order, head = (">", b"MM\0*") if tags.prefix == b"MM" else ("<", b"II*\0")
    sizes = [len(part) for part in parts]
    offsets = (8 + np.cumsum([0, *sizes[:-1]])).tolist()
    known = {tag: tags[tag] for tag in _KEPT if tag in tags} | more | {names[0]: offsets, names[1]: sizes}
    body = b"".join(parts) + b"\0" * (sum(sizes) % 2)
    entries, beyond, at = b"", b"", 8 + len(body) + 6 + 12 * len(known)
    for tag, value in sorted(known.items()):
        values = value if isinstance(value, bytes) else tuple(np.atleast_1d(value).tolist())
        kind, form = (7, "B") if isinstance(value, bytes) else (4, "L") if max(values) >= 1 << 16 else (3, "H")
        content = struct.pack(f"{order}{len(values)}{form}", *values)
        content += b"\0" * (len(content) % 2)
        place = content.ljust(4, b"\0") if len(content) <= 4 else struct.pack(f"{order}L", at + len(beyond))
        beyond += content if len(content) > 4 else b""
        entries += struct.pack(f"{order}HHL", tag, kind, len(values)) + place
    start = struct.pack(f"{order}L", 8 + len(body))
    return head + start + body + struct.pack(f"{order}H", len(known)) + entries + b"\0" * 4 + beyond


def _decoded(content: bytes) -> Any:
    from PIL import Image

    image = Image.open(BytesIO(content))
    image.load()
    return image
