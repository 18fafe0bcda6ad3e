"""Score bags with a trained run, and format the table of scores."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate.predict import predict, prepared
from midam.runs.loaded import LoadedRun
from midam.runs.results import predictions_text
from midam.runs.typical import warn_of_units

Scores = NDArray[np.float64]
_ROWS = 10_000  # of a table that are formatted at a time


def predict_run(
    run: LoadedRun, bags: Bags, *, on_bags: Callable[[Sequence[int]], None] | None = None
) -> tuple[Scores, Scores | None]:
    """Return scores [N], or [N, C] for several columns, and probabilities [N], None if the run is not calibrated.

    `on_bags` is called with the positions of bags that were just scored.
    """
    bags = prepared(run.model, bags)
    warn_of_units(bags, run.data, run=run.source)
    scores = predict(run.model, bags, chunk_size=run.settings.run.chunk_size, on_bags=on_bags)
    return scores, None if run.calibrator is None else run.calibrator.predict(scores)


def score_rows(run: LoadedRun, bags: Bags, scores: Scores) -> Iterator[bytes]:
    """Yield the CSV table of bags with these scores [N] or [N, C] in parts, with the header in the first."""
    for low in range(0, len(bags), _ROWS):
        rows = range(low, min(low + _ROWS, len(bags)))
        text = predictions_text(bags.subset(rows), run.target, scores[rows], decision=run.decision, header=low == 0)
        yield text.encode()
