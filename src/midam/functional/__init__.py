"""Pure tensor functions: the statistics of a bag, the poolings on top of them, the objectives.

The functions hold no state and import nothing but torch.
"""

from midam.functional import columns, logmean, maximum, objectives, pairs, partial_auc, poolings, summary
from midam.functional.logmean import BagStatistic

__all__ = ["BagStatistic", "columns", "logmean", "maximum", "objectives", "pairs", "partial_auc", "poolings", "summary"]
