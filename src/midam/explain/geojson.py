"""Patches as GeoJSON that QuPath (0.4 and later) opens, in pixels of level 0."""

import json
import math
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np

from midam.explain.explanation import Explanation
from midam.explain.layers import layers_of
from midam.explain.patches import Patches

TOP, MOST = 1000, 100_000


def geojson_text(found: Explanation, patches: Patches, *, limit: int = TOP) -> str:
    """Top patches of a bag as a FeatureCollection of at most `limit` polygons, one a line.

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
