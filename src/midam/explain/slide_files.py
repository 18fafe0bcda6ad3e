"""Files of the slides of a bag: their maps and polygons; and the names of all files that explanations write."""

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
from midam.explain.charts import layers_of
from midam.explain.explanation import Explanation
from midam.explain.overlay import PatchMap
from midam.explain.patches import Patches
from midam.files import write_bytes, write_text
from midam.runs.instance_files import file_name, file_names, with_digest

_OF_BAG = {"picture": ".png", "instances": ".h5", "table": ".csv"}
_POLYGONS = {"polygons": ".geojson"}
# Of each slide the image below its maps, and the maps, clear where there is little to see, to lie on it.
_LAYERS = {"image": ".image.jpg", "added": ".added.png", "weight": ".weight.png", "score": ".score.png"}
_JPEG = 88
TOP, MOST = 1000, 100_000


class BagNames(NamedTuple):
    """Names without suffix of the files of a bag, and of those of its slides, one for each."""

    bag: str
    slides: tuple[str, ...]

    def of_bag(self) -> dict[str, str]:
        """Files of the bag, by kind."""
        return {kind: self.bag + suffix for kind, suffix in _OF_BAG.items()}

    def every(self) -> Iterator[str]:
        """All files that can be written."""
        yield from self.of_bag().values()
        yield from (stem + suffix for stem in self.slides for suffix in (_POLYGONS | _LAYERS).values())


def bag_names(bags: Bags, index: Sequence[int]) -> list[BagNames]:
    """Names of the files of some bags, no two alike in any case: of slides those of the bag and its file.

    Bags whose files would have names of others, as those of `a` and `a.score`, get a digest.
    """
    every, found = file_names(bags), list[BagNames]()
    for i in index:
        files = files_of(bags, i)
        stems = [file_name(f"{bags.ids[i]}.{file.stem}") for file in files] if len(files) > 1 else [every[i]]
        twice = Counter(stem.lower() for stem in stems)
        slides = (with_digest(stem, str(at)) if twice[stem.lower()] > 1 else stem for at, stem in enumerate(stems))
        found.append(BagNames(every[i], tuple(slides)))
    counts = Counter(name.lower() for own in found for name in own.every())
    for at, (i, own) in enumerate(zip(index, found)):
        if any(counts[name.lower()] > 1 for name in own.every()):
            bag = str(bags.ids[i])
            found[at] = BagNames(with_digest(own.bag, bag), tuple(with_digest(one, bag) for one in own.slides))
    return found


def slide_stem(names: BagNames, bags: Bags, patches: Patches, index: int) -> str:
    """Name without suffix of the files of one slide."""
    files = files_of(bags, index)
    return names.slides[0 if patches.file is None or len(files) < 2 else files.index(patches.file)]


def write_slide(
    folder: Path, stem: str, found: Explanation, patches: Patches, drawn: PatchMap | None, *, limit: int
) -> dict[str, Any]:
    """Write the polygons of a slide, where its places are pixels, and its map; returns its entry in explain.json."""
    entry: dict[str, Any] = {} if patches.file is None else {"file": patches.file.name}
    files = dict[str, str]()
    if patches.in_pixels:
        files["polygons"] = stem + _POLYGONS["polygons"]
        entry["polygons"] = min(limit, len(patches.corners))
        write_text(folder / files["polygons"], geojson_text(found, patches, limit=limit))
    if drawn is not None:
        files |= _write_layers(drawn, folder, stem)
        entry["layers"] = [
            {"key": one.key, "name": one.name, "here": one.here, "ends": one.ends}
            | {"low": one.scale.vmin, "high": one.scale.vmax}
            for one in drawn.layers
        ]
    return entry | {"files": files}


def _write_layers(drawn: PatchMap, folder: Path, stem: str) -> dict[str, str]:
    """Write the image, where there is one, and the maps that lie on it."""
    from PIL import Image

    pictures = {one.key: one.on_image(drawn.raster, opaque=drawn.backdrop is None) for one in drawn.layers}
    if drawn.backdrop is not None:
        pictures["image"] = drawn.backdrop.pixels
    files = {}
    for key, pixels in pictures.items():
        files[key], content = stem + _LAYERS[key], BytesIO()
        Image.fromarray(pixels).save(content, "JPEG" if key == "image" else "PNG", quality=_JPEG, optimize=True)
        write_bytes(folder / files[key], content.getvalue())
    return files


def geojson_text(found: Explanation, patches: Patches, *, limit: int = TOP) -> str:
    """Top patches of a bag as GeoJSON for QuPath (0.4 and later): at most `limit` polygons, one a line.

    Each is an annotation with the measurements `contribution` (what it adds to the score of the bag, which colors it),
    `score`, `weight`, `relative weight` (in multiples of 1/n) and `percentile` (100 for the top one), which stand among
    the properties too, for other programs. Of the patches of one slide of several, ranks are those in the whole bag.

    Places count from the corner of what was scanned, where the slide states its bounds: QuPath shows no more of it.
    """
    features = ",\n".join(json.dumps(feature, allow_nan=False) for feature in _features(found, patches, limit))
    return f'{{"type": "FeatureCollection", "features": [\n{features}\n]}}\n'


def _features(found: Explanation, patches: Patches, limit: int) -> Iterator[dict[str, Any]]:
    ranks, places = (part[:limit] for part in patches.ranked(found.order))
    chosen, percentile, added = found.order[ranks - 1], found.percentile, layers_of(found)[0]
    sides = (patches.sides - np.array([*patches.corner, *patches.corner]))[places]
    colors = (255 * added.colors(np.asarray(added.scale(added.values[chosen])))[:, :3]).astype(int).tolist()
    for at, (rank, i) in enumerate(zip(ranks.tolist(), chosen.tolist())):
        left, top, right, bottom = sides[at].tolist()
        ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
        values = {
            "contribution": float(found.contribution[i]),
            "score": float(found.instances.score[i]),
            "weight": float(found.instances.weight[i]),
            "percentile": float(percentile[i]),
        }
        yield {
            "type": "Feature",
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"midam:{found.bag}:{i}")),
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": {
                "objectType": "annotation",
                "name": f"#{i}, rank {rank}",
                "color": colors[at],
                "classification": {"name": f"top {_decade(rank)}", "color": colors[0]},
                "measurements": {**values, "relative weight": float(found.relative_weight[i])},
                **values,
                "instance": i,
                **({} if patches.file is None else {"file": patches.file.name}),
            },
        }


def _decade(rank: int) -> int:
    """1, 10, 100, ...: the smallest that holds the rank."""
    return int(10 ** math.ceil(math.log10(rank) - 1e-12))
