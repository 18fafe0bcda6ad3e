"""How well the scores of a run rank the bags, for all targets: figures, metrics, tables, and the wrong bags."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.errors import plural
from midam.evaluate.labeled_instances import FIGURES
from midam.evaluate.proportions import estimate_of, proportion
from midam.report import plot_scores
from midam.report.page.render import Figure, Note, Number, Part, Table, interval
from midam.report.page.study import UNDECIDED, Study
from midam.report.words import INSTANCE_NAMES, PART_NAMES, capitalized, form_apart
from midam.targets.binary import Binary
from midam.targets.columns import ColumnTarget, Multiclass
from midam.targets.ranked import Continuous, Ordinal
from midam.targets.survival import Survival

_CURVES = 10  # most classes with ROC curves
_MOST_NAMES = 12  # most classes or grades with a column of their own
_WORST, _FEW = 10, 20  # bags in a table of errors; bags below which intervals are wide
_SCALED = ("mae", "mae_constant", "median_follow_up")  # in the unit of the labels
_AREA, _CORRELATION = "1 is perfect, 0.5 chance", "1 is perfect, 0 chance"
_MEANS = {
    **{"auroc": _AREA, "auroc_macro": _AREA, "c_index": _AREA, "spearman": _CORRELATION},
    **{"brier": "0 is perfect", "auprc": "average precision"},
    "quadratic_kappa": f"{_CORRELATION}; weighted by squared distance",
    "mae_constant": "the mean absolute error of a constant",
}
_TEXT = (
    "Some instances have known labels, which no training used. The contribution of an instance is the score of the bag "
    "minus its score without the instance, as `midam explain` shows it. In a bag: the mean over the bags that hold "
    "both labels. Pooled: all labeled instances on one scale. Intervals resample whole {units}."
)


def figures(study: Study) -> list[Figure]:
    """Return the figures of the scores."""
    tested, names = study.tested, study.target.names
    match study.target:
        case Binary():
            roc = plot_scores.plot_roc(tested.values, tested.scores, study.summary, folds=tested.folds)
            precision = plot_scores.plot_precision(tested.values, tested.scores)
            histogram = plot_scores.plot_histogram(tested.values, tested.scores, threshold=study.threshold)
            mean = "" if tested.folds is None else "Mean over the folds, weighted by their pairs."
            return [
                Figure(roc, "ROC curve.", mean),
                Figure(precision, "Precision and recall."),
                Figure(histogram, "Scores.", "Where they overlap, bags are misclassified."),
            ]
        case ColumnTarget() if len(names) <= _CURVES:
            columns = study.target.table(tested.values)
            rocs = plot_scores.plot_class_rocs(names, columns, tested.scores, study.summary)
            return [Figure(rocs, "ROC curves.", "Each is ranked by a score of its own, against the bags without it.")]
        case Ordinal():
            return [Figure(plot_scores.plot_grade_scores(names, tested.codes, tested.scores), "Score by grade.")]
        case Continuous():
            numbers = tested.values[:, 0]
            dots = plot_scores.plot_number_scores(names[0], numbers, tested.scores, tested.predicted)
            return [Figure(dots, "Score and number.", "A dot is a bag.")]
        case Survival() if tested.predicted is not None:
            known = np.isfinite(tested.predicted)
            time, event = tested.values[known].T
            curves = plot_scores.plot_survival(time, event, tested.predicted[known].astype(np.int64))
            caution = "; they take bags for independent" if tested.grouped else ""
            text = f"Bands are pointwise 95% intervals (Greenwood){caution}; ticks are censored bags."
            return [Figure(curves, "Kaplan-Meier curves.", text)]
    return []


def metrics(study: Study) -> Table:
    """Return the table of the metrics that the target names, and of their intervals."""
    rows = []
    for title, key in ((study.metric_name, study.metric), *study.target.card.figures):
        if (estimate := study.figure(key)) is not None:
            name = key.rpartition(".")[2]
            form = ".0f" if isinstance(estimate.value, int) else ".4g" if name in _SCALED else ".3f"
            head = capitalized(title.removesuffix(" (95% CI)"))
            rows.append([head, Number(estimate.value, form, key), interval(estimate, form), _MEANS.get(name, "")])
    method = f"interval of the {study.metric_name}: {study.summary[f'{study.metric}_method']}"
    return Table(f"Metrics of {study.tested.counted()}; {method}", ["metric", "value", "95% interval", ""], rows)


def tables(study: Study) -> list[Any]:
    """Return what the labels mean, the metrics of each class, and how the predictions agree with the labels."""
    target, summary = study.target, study.summary
    match target:
        case Binary() if classes := study.about.get("data", {}).get("classes"):
            return [Note(f"Positive is {classes[1]}, negative {classes[0]}.")]
        case ColumnTarget():
            rows: list[list[Any]] = []
            for name in target.names:
                part, key = summary["per_class"][str(name)], f"per_class.{name}"
                area = estimate_of(part["auroc"], part["auroc_ci95"], part["positives"] + part["negatives"])
                shown = [Number(area, key=f"{key}.auroc"), Number(part["ap"], key=f"{key}.ap")]
                rows.append([name, part["positives"], part["negatives"], *shown])
            heads = ["name", "with it", "without", "AUROC", "average precision"]
            each = Table("Each class or label", heads, rows, sorts=True)
            return [each, _calls(study, _shares(study).argmax(axis=1))] if isinstance(target, Multiclass) else [each]
        case Ordinal() if study.tested.predicted is not None:
            return [_calls(study, study.tested.predicted)]
        case Survival() if study.tested.predicted is not None:
            rows = []
            for at, row in enumerate(summary["risk_groups"]):
                numbers = {"bags": ".0f", "events": ".0f", "median_time": ".4g"}
                shown = [Number(row[key], form, f"risk_groups.{at}.{key}") for key, form in numbers.items()]
                rows.append([target.predicted_names[row["group"]], *shown])
            caption = f"Risk groups, cut at the terciles of {study.fitted_on}; no median if most have no event"
            return [Table(caption, ["risk", "bags", "events", "median time"], rows)]
        case Ordinal() | Survival():
            return [UNDECIDED]
    return []


def _shares(study: Study) -> NDArray[np.float64]:
    """Return probabilities, or else scores [N, C] of classes."""
    return study.tested.scores if study.tested.predicted is None else study.tested.predicted


def _calls(study: Study, called: ArrayLike) -> Table:
    """Return recall and precision of each class or grade, and the confusion unless there are many."""
    names, codes, groups, rows = study.target.names, study.tested.codes, study.tested.groups, list[list[Any]]()
    confusion = study.summary.get("confusion") if len(names) <= _MOST_NAMES else None
    for code, name in enumerate(names):
        parts = codes == code, np.asarray(called) == code
        shares = [proportion(codes == called, groups=groups, among=part) for part in parts]
        rows.append([name, int(parts[0].sum()), *shares, *(confusion[code] if confusion else ())])
    heads = ["true", "bags", "recall", "precision", *(f"called {name}" for name in names if confusion)]
    return Table("Predictions, with 95% Wilson intervals", heads, rows, sorts=True)


def instances_parts(study: Study) -> list[Part]:
    """Return the block on labeled instances, if there are any, from the entries of `InstanceMetrics.entries`."""
    if study.instances is None:
        return []
    part, entry = study.instances
    known = [name for name in FIGURES if entry[name] is not None]
    rows: list[list[Any]] = []
    for name in known:
        value, chance = Number(entry[name]), Number(entry["chance"][name])
        bounds = interval(estimate_of(entry[name], entry[f"{name}_ci95"], 0))
        rows.append([capitalized(INSTANCE_NAMES[name]), value, bounds, chance, entry[f"{name}_bags"]])
    counts = f"{entry['instances']} labeled instances, {entry['positives']} positive, of {entry['bags']}"
    caption = f"Contributions of {counts} {PART_NAMES[part]} bags"
    table = Table(caption, ["metric", "value", "95% interval", "chance", "bags"], rows)
    blocks: list[Any] = [_TEXT.format(units="groups" if study.tested.grouped else "bags"), table]
    if part == "train":
        blocks.append(Note("These bags trained the model. `--test-fraction 0.2` holds bags out."))
    if min((entry[f"{name}_bags"] for name in known), default=_FEW) < _FEW:
        blocks.append(Note(f"Fewer than {_FEW} bags: the intervals are wide, and approximate."))
    return [Part("Did the right instances decide?", blocks)]


def wrong_bags(study: Study) -> list[Part]:
    """Return tables of the bags that were predicted wrongly, the worst first."""
    tested, parts = study.tested, list[Part]()
    for title, badness, columns in _wrong(study):
        order = np.argsort(-badness, kind="stable")[: np.isfinite(badness).sum()]
        if not len(order):
            parts.append(Part(title, [f"None of {plural(len(tested), 'bag')}."]))
            continue
        worst, known = order[:_WORST].tolist(), {"bag": tested.ids, **columns}
        known |= {"instances": tested.sizes, "group": tested.groups}
        known = {head: column for head, column in known.items() if column is not None}
        rows = [[column[at] for column in known.values()] for at in worst]
        limit = f", the worst {len(worst)}" if len(worst) < len(order) else ""
        caption = f"{len(order)} of {plural(len(tested), 'bag')}{limit}"
        parts.append(Part(title, [Table(caption, [*known], rows, sorts=True)]))
    return parts


def _numbers(values: ArrayLike, form: str = ".3f") -> list[Number]:
    return [Number(value, form) for value in np.asarray(values, dtype=np.float64).tolist()]


def _wrong(study: Study) -> Iterator[tuple[str, NDArray[np.float64], dict[str, Any]]]:
    """Yield kinds of wrong bags: a title, how wrong each bag is [N], NaN if it is not, and columns [N] to show."""
    target, tested, predicted, names = study.target, study.tested, study.tested.predicted, np.array(study.target.names)
    if isinstance(target, Binary) and (threshold := study.threshold) is not None:
        off, called = np.abs(tested.scores - threshold), tested.scores >= threshold
        form = form_apart(tested.scores, threshold, least=3)
        columns: dict[str, Any] = {"score": _numbers(tested.scores, form)}
        columns |= {} if predicted is None else {"probability": _numbers(predicted)}
        kinds = {1: "Missed: positive bags called negative", 0: "False alarms: negative bags called positive"}
        for label, title in kinds.items():
            wrong = (tested.values == label) & (called != label)
            yield f"{title}, at the threshold {threshold:{form}}", np.where(wrong, off, np.nan), columns
    elif isinstance(target, Multiclass):
        shares, rows = _shares(study), np.arange(len(tested))
        calls, measure = shares.argmax(axis=1), "score" if predicted is None else "probability"
        of_class, of_call = shares[rows, tested.codes], shares[rows, calls]
        columns = {"class": names[tested.codes], "predicted": names[calls]}
        columns |= {f"{measure} of the class": _numbers(of_class), "of the predicted": _numbers(of_call)}
        yield "Misclassified", np.where(calls != tested.codes, of_call - of_class, np.nan), columns
    elif predicted is None:
        return
    elif isinstance(target, ColumnTarget):
        kinds = {1: "Missed: with the label, least probable", 0: "False alarms: without it, most probable"}
        for label, title in kinds.items():
            # For each bag, the present (or absent) label whose probability was furthest from 1 (or 0).
            off = np.where(tested.values == label, np.nan_to_num(np.abs(tested.values - predicted), nan=-1), -1)
            at, worst = off.argmax(axis=1), off.max(axis=1)
            columns = {"label": names[at], "probability": _numbers(predicted[np.arange(len(tested)), at])}
            yield title, np.where(worst >= 0, worst, np.nan), columns
    elif isinstance(target, Survival):
        (time, event), risks = tested.values.T, np.array(target.predicted_names)
        columns = {"risk": risks[np.nan_to_num(predicted).astype(np.int64)], "score": _numbers(tested.scores)}
        columns |= {"time": _numbers(time, ".4g")}
        low, high = np.nanmin(predicted), np.nanmax(predicted)
        early, late = (event == 1) & (predicted == low), (event == 0) & (predicted == high)
        yield f"Event at {risks[int(low)]} risk, the earliest first", np.where(early, -time, np.nan), columns
        yield f"No event at {risks[int(high)]} risk, the longest time first", np.where(late, time, np.nan), columns
    elif isinstance(target, Continuous | Ordinal):
        true = tested.values[:, 0]
        gap, columns = true - predicted, {"true": _numbers(true, ".4g"), "predicted": _numbers(predicted, ".4g")}
        if isinstance(target, Ordinal):
            columns = {"true": names[tested.codes], "predicted": names[predicted.astype(np.int64)]}
        columns |= {"score": _numbers(tested.scores)}
        yield "Predicted too low", np.where(gap > 0, gap, np.nan), columns
        yield "Predicted too high", np.where(gap < 0, -gap, np.nan), columns
