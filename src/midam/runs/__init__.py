"""A run on disk: train, resume and load it, and apply it to new bags."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.runs.apply import Evaluation as Evaluation
    from midam.runs.apply import evaluate_bags as evaluate_bags
    from midam.runs.apply import read_for as read_for
    from midam.runs.assumption import check_run as check_run
    from midam.runs.data import SplitBags as SplitBags
    from midam.runs.data import SubgroupTable as SubgroupTable
    from midam.runs.data import read_data as read_data
    from midam.runs.data import split_data as split_data
    from midam.runs.fit import fit_run as fit_run
    from midam.runs.fit import resume_run as resume_run
    from midam.runs.folder import RunFolder as RunFolder
    from midam.runs.instance_files import write_instance_scores as write_instance_scores
    from midam.runs.loaded import LoadedRun as LoadedRun
    from midam.runs.loaded import load_run as load_run
    from midam.runs.loaded import predict_run as predict_run
    from midam.runs.report import write_evaluation_report as write_evaluation_report
    from midam.runs.report import write_run_report as write_run_report

__all__, __getattr__, __dir__ = exports(__name__)
