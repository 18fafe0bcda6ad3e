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
    the properties too, for other programs.
    """
    features = ",\n".join(json.dumps(feature, allow_nan=False) for feature in _features(found, patches, limit))
    return f'{{"type": "FeatureCollection", "features": [\n{features}\n]}}\n'


def _features(found: Explanation, patches: Patches, limit: int) -> Iterator[dict[str, Any]]:
    chosen = found.order[:limit]
    sides, percentile, added = patches.sides[chosen], found.percentile, layers_of(found)[0]
    colors = (255 * added.colors(np.asarray(added.scale(added.values[chosen])))[:, :3]).astype(int).tolist()
    for rank, i in enumerate(chosen):
        left, top, right, bottom = sides[rank].tolist()
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
                "name": f"#{i}, rank {rank + 1}",
                "color": colors[rank],
                "classification": {"name": f"top {_decade(rank + 1)}", "color": colors[0]},
                "measurements": {**values, "relative weight": float(found.relative_weight[i])},
                **values,
                "instance": int(i),
            },
        }


def _decade(rank: int) -> int:
    """1, 10, 100, ...: the smallest that holds the rank."""
    return int(10 ** math.ceil(math.log10(rank) - 1e-12))
