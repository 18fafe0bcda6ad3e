"""Pure tensor functions: the statistics of a bag, the poolings on top of them, the objectives.

Nothing here holds state, and nothing here imports anything but torch.
"""

from midam.functional import logmean, maximum, objectives, poolings, summary
from midam.functional.logmean import BagStatistic
from midam.functional.tracking import track

__all__ = ["BagStatistic", "logmean", "maximum", "objectives", "poolings", "summary", "track"]
