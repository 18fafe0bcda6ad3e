"""Streamed scores, metrics with confidence intervals, calibration."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.evaluate.classes import macro_auroc_interval as macro_auroc_interval
    from midam.evaluate.classes import paired_macro_auroc as paired_macro_auroc
    from midam.evaluate.concordance import concordance_interval as concordance_interval
    from midam.evaluate.concordance import paired_concordance as paired_concordance
    from midam.evaluate.curves import net_benefit as net_benefit
    from midam.evaluate.decisions import Decision as Decision
    from midam.evaluate.intervals import Interval as Interval
    from midam.evaluate.intervals import auroc_interval as auroc_interval
    from midam.evaluate.intervals import paired_delong as paired_delong
    from midam.evaluate.labeled_instances import evaluate_instances as evaluate_instances
    from midam.evaluate.labeled_instances import instance_metrics as instance_metrics
    from midam.evaluate.metrics import auprc as auprc
    from midam.evaluate.metrics import measure as measure
    from midam.evaluate.metrics import summarize as summarize
    from midam.evaluate.metrics import threshold_metrics as threshold_metrics
    from midam.evaluate.pooled import InstanceScores as InstanceScores
    from midam.evaluate.pooled import instance_ranks as instance_ranks
    from midam.evaluate.pooled import instance_scores as instance_scores
    from midam.evaluate.proportions import Estimate as Estimate
    from midam.evaluate.proportions import operating_points as operating_points
    from midam.evaluate.proportions import proportion as proportion
    from midam.evaluate.ranking import Pairs as Pairs
    from midam.evaluate.ranking import auroc as auroc
    from midam.evaluate.subgroups import find_subgroups as find_subgroups
    from midam.evaluate.survival import kaplan_meier as kaplan_meier

__all__, __getattr__, __dir__ = exports(__name__)
