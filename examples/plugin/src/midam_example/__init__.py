"""A plug-in: one example of each part that a package can add to midam without a change of midam."""

from midam.registry import BASELINES, ENCODERS, ESTIMATORS, METRICS, OBJECTIVES, POOLINGS, READERS
from midam_example.baseline import BagSize
from midam_example.encoder import TwoLayers
from midam_example.estimator import CrossFitted
from midam_example.metric import partial_auroc
from midam_example.objective import FocusedAUC
from midam_example.pooling import LinearSoftmaxPooling
from midam_example.reader import JSONLines

POOLINGS.add("linear-softmax", LinearSoftmaxPooling)
OBJECTIVES.add("focused-auc", FocusedAUC)
ESTIMATORS.add("cross-fitted", CrossFitted)
ENCODERS.add("two-layers", TwoLayers)
READERS.add("jsonl", JSONLines)
METRICS.add("partial-auroc", partial_auroc)
BASELINES.add("bag-size", BagSize)
