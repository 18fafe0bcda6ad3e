"""The top patches of a slide as GeoJSON for slide viewers, and the names of these files."""

import json
import math
import uuid
from collections.abc import Sequence

import numpy as np

from midam.data.bags import Bags
from midam.data.sources.file_rows import files_of
from midam.explain.explanation import Explanation
from midam.explain.maps import DIVERGING, added_range
from midam.explain.patches import Patches
from midam.runs.instance_files import file_name, file_names, unique_names

TOP = 20_000  # polygons of a slide, which viewers still open


def slide_names(bags: Bags, index: Sequence[int]) -> dict[int, list[str]]:
    """Return the names of the GeoJSON files of each bag, one for each slide, unique also if case is ignored.

    One slide has the name of the bag, each of several slides the names of the bag and of its file. Names that would be
    the same, as of the slide `c` of the bag `a.b` and the slide `b.c` of `a`, get a digest.
    """
    every, stems = file_names(bags), dict[int, list[str]]()
    for i in index:
        files = files_of(bags, i)
        stems[i] = [file_name(f"{bags.ids[i]}.{file.stem}") for file in files] if len(files) > 1 else [every[i]]
    texts = [f"{bags.ids[i]} {at}" for i, names in stems.items() for at in range(len(names))]
    unique = iter(unique_names([name for names in stems.values() for name in names], texts))
    return {i: [f"{next(unique)}.geojson" for _ in names] for i, names in stems.items()}


def geojson_text(explanation: Explanation, patches: Patches, *, limit: int = TOP) -> str:
    """Return the top patches of a bag as GeoJSON for QuPath (0.4 and later): at most `limit` polygons, one per line.

    Each patch is an annotation with the measurements `contribution` (to the score of the bag; it sets the color),
    `score`, `weight` and `relative weight` (in multiples of 1/n). For other
    programs, these are also properties. If a bag has several slides, ranks are ranks in the whole bag.

    If the slide states the bounds of its scanned area, coordinates start at the corner of this area, as in QuPath.
    """
    ranks, places = (part[:limit] for part in patches.ranked(explanation.order))
    instances, scale = explanation.order[ranks - 1], added_range(explanation.contribution)
    sides = (patches.sides - np.array([*patches.corner, *patches.corner]))[places]
    colors = (255 * DIVERGING(np.asarray(scale(explanation.contribution[instances])))[:, :3]).astype(int).tolist()
    features = list[str]()
    for at, (rank, i) in enumerate(zip(ranks.tolist(), instances.tolist())):
        left, top, right, bottom = sides[at].tolist()
        ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
        one = explanation.instance(i)
        values = {name: one[name] for name in ("contribution", "score", "weight")}
        properties = {
            "objectType": "annotation",
            "name": f"#{i}, rank {rank}",
            "color": colors[at],
            "classification": {"name": f"top {10 ** math.ceil(math.log10(rank) - 1e-12)}", "color": colors[0]},
            "measurements": {**values, "relative weight": one["relative_weight"]},
            **values,
            "instance": i,
            **({} if patches.file is None else {"file": patches.file.name}),
        }
        known = {"type": "Feature", "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"midam:{explanation.bag}:{i}"))}
        shape = {"geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": properties}
        features.append(json.dumps({**known, **shape}, allow_nan=False))
    text = ",\n".join(features)
    return f'{{"type": "FeatureCollection", "features": [\n{text}\n]}}\n'
