"""The files of a bag and its slides: their names, polygons for slide viewers, and maps as pictures."""

import json
import math
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from midam.data.bag_files import files_of
from midam.data.bags import Bags
from midam.explain.explanation import Explanation
from midam.explain.layers import PatchMap, layers_of
from midam.explain.patches import Patches
from midam.files import write_bytes, write_text
from midam.runs.instance_files import file_name, file_names, with_digest

_OF_BAG = {"picture": ".png", "instances": ".h5", "table": ".csv"}
_POLYGONS = {"polygons": ".geojson"}
# For each slide, the image, and the maps on it, which are transparent where values are small.
_LAYERS = {"image": ".image.jpg", "added": ".added.png", "weight": ".weight.png", "score": ".score.png"}
_JPEG = 88
TOP, MOST = 1000, 100_000


class BagNames(NamedTuple):
    """File names without suffix of a bag, and of each of its slides."""

    bag: str
    slides: tuple[str, ...]

    def of_bag(self) -> dict[str, str]:
        """Return the files of the bag by kind."""
        return {kind: self.bag + suffix for kind, suffix in _OF_BAG.items()}

    def every(self) -> Iterator[str]:
        """Yield all files that may be written."""
        yield from self.of_bag().values()
        yield from (stem + suffix for stem in self.slides for suffix in (_POLYGONS | _LAYERS).values())


def bag_names(bags: Bags, index: Sequence[int]) -> list[BagNames]:
    """Return unique file names of bags, also if case is ignored; a slide is named by the bag and its file.

    If files of two bags would have the same name, as for `a` and `a.score`, the names get a digest.
    """
    every, names = file_names(bags), list[BagNames]()
    for i in index:
        files = files_of(bags, i)
        stems = [file_name(f"{bags.ids[i]}.{file.stem}") for file in files] if len(files) > 1 else [every[i]]
        twice = Counter(stem.lower() for stem in stems)
        slides = (with_digest(stem, str(at)) if twice[stem.lower()] > 1 else stem for at, stem in enumerate(stems))
        names.append(BagNames(every[i], tuple(slides)))
    counts = Counter(name.lower() for entry in names for name in entry.every())
    for at, (i, entry) in enumerate(zip(index, names)):
        if any(counts[name.lower()] > 1 for name in entry.every()):
            bag = str(bags.ids[i])
            names[at] = BagNames(with_digest(entry.bag, bag), tuple(with_digest(one, bag) for one in entry.slides))
    return names


def slide_stem(names: BagNames, bags: Bags, patches: Patches, index: int) -> str:
    """Return the file name without suffix of one slide."""
    files = files_of(bags, index)
    return names.slides[0 if patches.file is None or len(files) < 2 else files.index(patches.file)]


def write_slide(
    folder: Path, stem: str, explanation: Explanation, patches: Patches, drawn: PatchMap | None, *, limit: int
) -> dict[str, Any]:
    """Write the polygons of a slide, if coordinates are in pixels, and its map; returns its entry in explain.json."""
    entry: dict[str, Any] = {} if patches.file is None else {"file": patches.file.name}
    files = dict[str, str]()
    if patches.in_pixels:
        files["polygons"] = stem + _POLYGONS["polygons"]
        entry["polygons"] = min(limit, len(patches.corners))
        write_text(folder / files["polygons"], geojson_text(explanation, patches, limit=limit))
    if drawn is not None:
        files |= _write_layers(drawn, folder, stem)
        entry["layers"] = [
            {"key": layer.key, "name": layer.name, "here": layer.here, "ends": layer.ends}
            | {"low": layer.scale.vmin, "high": layer.scale.vmax}
            for layer in drawn.layers
        ]
    return entry | {"files": files}


def _write_layers(drawn: PatchMap, folder: Path, stem: str) -> dict[str, str]:
    """Write the image, if any, and the maps on it."""
    from PIL import Image

    pictures = {layer.key: layer.on_image(drawn.raster, opaque=drawn.backdrop is None) for layer in drawn.layers}
    if drawn.backdrop is not None:
        pictures["image"] = drawn.backdrop.pixels
    files = {}
    for key, pixels in pictures.items():
        files[key], content = stem + _LAYERS[key], BytesIO()
        Image.fromarray(pixels).save(content, "JPEG" if key == "image" else "PNG", quality=_JPEG, optimize=True)
        write_bytes(folder / files[key], content.getvalue())
    return files


def geojson_text(explanation: Explanation, patches: Patches, *, limit: int = TOP) -> str:
    """Return the top patches of a bag as GeoJSON for QuPath (0.4 and later): at most `limit` polygons, one per line.

    Each patch is an annotation with the measurements `contribution` (to the score of the bag; it sets the color),
    `score`, `weight`, `relative weight` (in multiples of 1/n) and `percentile` (100 for the top patch). For other
    programs, these are also properties. If a bag has several slides, ranks are ranks in the whole bag.

    If the slide states the bounds of its scanned area, coordinates start at the corner of this area, as in QuPath.
    """
    features = ",\n".join(json.dumps(feature, allow_nan=False) for feature in _features(explanation, patches, limit))
    return f'{{"type": "FeatureCollection", "features": [\n{features}\n]}}\n'


def _features(explanation: Explanation, patches: Patches, limit: int) -> Iterator[dict[str, Any]]:
    ranks, places = (part[:limit] for part in patches.ranked(explanation.order))
    instances, percentile, added = explanation.order[ranks - 1], explanation.percentile, layers_of(explanation)[0]
    sides = (patches.sides - np.array([*patches.corner, *patches.corner]))[places]
    colors = (255 * added.colors(np.asarray(added.scale(added.values[instances])))[:, :3]).astype(int).tolist()
    for at, (rank, i) in enumerate(zip(ranks.tolist(), instances.tolist())):
        left, top, right, bottom = sides[at].tolist()
        ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
        values = {
            "contribution": float(explanation.contribution[i]),
            "score": float(explanation.instances.score[i]),
            "weight": float(explanation.instances.weight[i]),
            "percentile": float(percentile[i]),
        }
        yield {
            "type": "Feature",
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"midam:{explanation.bag}:{i}")),
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": {
                "objectType": "annotation",
                "name": f"#{i}, rank {rank}",
                "color": colors[at],
                "classification": {"name": f"top {10 ** math.ceil(math.log10(rank) - 1e-12)}", "color": colors[0]},
                "measurements": {**values, "relative weight": float(explanation.relative_weight[i])},
                **values,
                "instance": i,
                **({} if patches.file is None else {"file": patches.file.name}),
            },
        }
