"""`voxel-logistic`: logistic regression on the number of voxels of a bag above its least intensity."""

import numpy as np

from midam.data.bags import Bags
from midam.data.validate import row_chunks
from midam.methods.baselines import BagStatisticsLogistic
from midam.methods.inner_folds import Positions
from midam.methods.method import Scores
from midam.registry import BASELINES

NAME = "voxel-logistic"


def voxel_counts(bags: Bags, index: Positions) -> Scores:
    """Count the voxels [n, 1] of each bag above its lowest intensity, the background of a scan; read by chunks."""
    counts = []
    for number in index.tolist():
        least, voxels, ground = np.inf, 0, 0
        for low, high in row_chunks(bags.instances, bags.starts[[number]], bags.sizes[[number]]):
            chunk = np.asarray(bags.instances[low:high])
            # A lower intensity is the new background.
            ground = ground if least <= chunk.min() else 0
            least = min(least, float(chunk.min()))
            ground += int((chunk == least).sum())
            voxels += chunk.size
        counts.append([float(voxels - ground)])
    return np.array(counts)


class VoxelLogistic(BagStatisticsLogistic):
    """Logistic regression on voxel counts, for scores alone."""

    statistics = staticmethod(voxel_counts)
    pixels = True
    lacks = "it is a baseline of a study"


BASELINES.add(NAME, VoxelLogistic)
