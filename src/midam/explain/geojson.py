"""The top patches of a slide as GeoJSON for slide viewers, and the names of these files."""

import json
import math
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from midam.data.bags import Bags
from midam.data.sources.file_rows import files_of
from midam.explain.explanation import Explanation
from midam.explain.layers import layers_of
from midam.explain.patches import Patches
from midam.runs.instance_files import file_name, file_names, unique_names

TOP, MOST = 1000, 100_000


def slide_names(bags: Bags, index: Sequence[int]) -> dict[int, list[str]]:
    """Return the names of the GeoJSON files of each bag, one for each slide, unique also if case is ignored.

    One slide has the name of the bag, each of several slides the names of the bag and of its file. Names that would be
    the same, as of the slide `c` of the bag `a.b` and the slide `b.c` of `a`, get a digest.
    """
    every, names = file_names(bags), dict[tuple[int, int], str]()
    for i in index:
        files = files_of(bags, i)
        stems = [file_name(f"{bags.ids[i]}.{file.stem}") for file in files] if len(files) > 1 else [every[i]]
        names |= {(i, at): stem for at, stem in enumerate(stems)}
    unique = unique_names([*names.values()], [f"{bags.ids[i]} {at}" for i, at in names])
    slides: dict[int, list[str]] = {i: [] for i in index}
    for (i, _), name in zip(names, unique):
        slides[i].append(f"{name}.geojson")
    return slides


def geojson_text(explanation: Explanation, patches: Patches, *, limit: int = TOP) -> str:
    """Return the top patches of a bag as GeoJSON for QuPath (0.4 and later): at most `limit` polygons, one per line.

    Each patch is an annotation with the measurements `contribution` (to the score of the bag; it sets the color),
    `score`, `weight` and `relative weight` (in multiples of 1/n). For other
    programs, these are also properties. If a bag has several slides, ranks are ranks in the whole bag.

    If the slide states the bounds of its scanned area, coordinates start at the corner of this area, as in QuPath.
    """
    features = ",\n".join(json.dumps(feature, allow_nan=False) for feature in _features(explanation, patches, limit))
    return f'{{"type": "FeatureCollection", "features": [\n{features}\n]}}\n'


def _features(explanation: Explanation, patches: Patches, limit: int) -> Iterator[dict[str, Any]]:
    ranks, places = (part[:limit] for part in patches.ranked(explanation.order))
    instances, added = explanation.order[ranks - 1], layers_of(explanation)[0]
    sides = (patches.sides - np.array([*patches.corner, *patches.corner]))[places]
    colors = (255 * added.colors(np.asarray(added.scale(added.values[instances])))[:, :3]).astype(int).tolist()
    for at, (rank, i) in enumerate(zip(ranks.tolist(), instances.tolist())):
        left, top, right, bottom = sides[at].tolist()
        ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
        values = {
            "contribution": float(explanation.contribution[i]),
            "score": float(explanation.instances.score[i]),
            "weight": float(explanation.instances.weight[i]),
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
