"""What judges a ranking by any label: classes, several labels, grades, numbers, times to an event."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.evaluate.outcomes.classes import class_aurocs as class_aurocs
    from midam.evaluate.outcomes.classes import class_intervals as class_intervals
    from midam.evaluate.outcomes.classes import macro_auroc as macro_auroc
    from midam.evaluate.outcomes.classes import macro_auroc_interval as macro_auroc_interval
    from midam.evaluate.outcomes.concordance import concordance_index as concordance_index
    from midam.evaluate.outcomes.concordance import concordance_index_censored as concordance_index_censored
    from midam.evaluate.outcomes.concordance import concordance_index_ipcw as concordance_index_ipcw
    from midam.evaluate.outcomes.concordance import concordance_interval as concordance_interval
    from midam.evaluate.outcomes.concordance import ipcw_pairs as ipcw_pairs
    from midam.evaluate.outcomes.concordance import ipcw_truncation as ipcw_truncation
    from midam.evaluate.outcomes.decide import Decision as Decision
    from midam.evaluate.outcomes.decide import LabelCalibrator as LabelCalibrator
    from midam.evaluate.outcomes.decide import NumberScale as NumberScale
    from midam.evaluate.outcomes.decide import RiskGroups as RiskGroups
    from midam.evaluate.outcomes.decide import TemperatureCalibrator as TemperatureCalibrator
    from midam.evaluate.outcomes.differences import paired_concordance as paired_concordance
    from midam.evaluate.outcomes.differences import paired_macro_auroc as paired_macro_auroc
    from midam.evaluate.outcomes.grades import GradeCuts as GradeCuts
    from midam.evaluate.outcomes.grades import quadratic_kappa as quadratic_kappa
    from midam.evaluate.outcomes.pairs import Pairs as Pairs
    from midam.evaluate.outcomes.subgroups import OutcomeSubgroup as OutcomeSubgroup
    from midam.evaluate.outcomes.subgroups import outcome_subgroups as outcome_subgroups
    from midam.evaluate.outcomes.survival import SurvivalCurve as SurvivalCurve
    from midam.evaluate.outcomes.survival import kaplan_meier as kaplan_meier
    from midam.evaluate.outcomes.survival import log_rank as log_rank
    from midam.evaluate.outcomes.survival import median_follow_up as median_follow_up

__all__, __getattr__, __dir__ = exports(__name__)
