"""Read bags for a finished run in the way of its training, and evaluate the run on seen or new bags."""

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from midam.data.bags import Bags
from midam.data.missing import align_features, warn_of_marks
from midam.data.sources.patients import file_kinds, pixel_sizes
from midam.data.sources.request import RunOptions
from midam.data.sources.table_columns import require_columns
from midam.data.sources.table_files import header_of
from midam.data.store import is_store
from midam.errors import BagDataError, listed
from midam.evaluate.decisions import Decision
from midam.evaluate.metrics import check_metric
from midam.evaluate.predict import covariate_kinds, encoded, prepared
from midam.imaging.embedding import RECIPE, check_recipe, embed_like
from midam.imaging.pixels import check_pixels
from midam.report.leaks import duplicate_warnings
from midam.report.terminal import BagProgress
from midam.runs.data import noting, read_data
from midam.runs.folder import SPLITS
from midam.runs.instance_files import labeled_bags, summarize_instances
from midam.runs.loaded import LoadedRun, predict_run
from midam.runs.results import summarize_parts
from midam.runs.typical import warn_of_units
from midam.settings import Settings

_OTHER = 1.5  # times as wide or narrow as in training, from which a pixel has another size
_SAME_SCALE = 0.02  # relative: for 40x, scanners note 0.25 or 0.2525 micrometers per pixel


def read_for(
    run: LoadedRun,
    data: str,
    *,
    labeled: bool = False,
    console: Console | None = None,
    chosen: Callable[[Bags], Sequence[int]] | None = None,
    **reading: Any,
) -> Bags:
    """Read bags for a run, check that they have the run's features, and fill missing values as in training.

    Features are matched by name, in any order; other features are left out with a note. Labels are matched to the names
    of the run's classes.

    Parameters
    ----------
    run : LoadedRun
        Its settings name the columns; its tables of labels and slides are used only for the data of the run.
    data : str
        Path, or name of a set of digits.
    labeled : bool, default False
        Refuse unclear or missing labels; by default such bags are read without labels, with a note.
    console : Console, optional
        Where progress is shown, if raw files are embedded for a run on vectors.
    chosen : callable, optional
        Called with the bags before raw files are embedded; may refuse them. Returns the positions of those to embed,
        which alone are returned then; default: all.
    **reading
        Settings of the groups `data` and `cut` that replace those of the run; None keeps the run's value.

    Raises
    ------
    BagDataError
        If the shape of the instances differs from the run's, or features of the run are missing.
    """
    cut: dict[str, Any] | None = run.data.get("cut")
    settings = settings_for(run, data, **reading)
    names = run.data.get("feature_names")
    options: dict[str, Any] = {"bad_labels": "error" if labeled else "ignore", "require_labels": False}
    kinds = {} if run.columns is None else run.columns.kinds
    known = kinds | covariate_kinds(run.model)
    options |= {"classes": run.target.names, "features": list(kinds) or names, "kinds": known}
    if cut is not None and "slice_size" in cut and not (cut["slice_size"] or cut["volume_size"]):
        # Without a size in the settings, slices or volumes get the size of the run.
        matrix = tuple(cut.get("shape", run.data["instance_shape"])[1:])
        options["images"] = RunOptions(**settings.cut.model_dump(), matrix=matrix)
    bags = read_data(data, settings, **options)
    warn_of_marks(bags)
    for name, scanned in file_kinds(bags).items():
        if (trained := run.data.get("file_kinds", {}).get(name)) and not {*scanned} <= {*trained}:
            text = f"{name} of the files {listed(sorted(scanned))}, in the training of {run.source} {listed(trained)}"
            warnings.warn(f"{text}: their scores may be wrong; use files like those (in {data})", stacklevel=2)
    sizes, trained_on = pixel_sizes(bags), run.data.get("pixel_mm")
    if sizes and trained_on and not trained_on[0] / _OTHER <= sizes[0] <= sizes[1] <= _OTHER * trained_on[1]:
        ends, usual = (" to ".join(f"{size:g}" for size in dict.fromkeys(pair)) for pair in (sizes, trained_on))
        text = f"pixels of the files are {ends} mm wide, in the training of {run.source} {usual} mm"
        warnings.warn(f"{text}: their scores may be wrong; resample them (in {data})", stacklevel=2)
    if bags.labels is None and bags.outcome is None and (labeled or reading.get("label_column") is not None):
        _check_label_column(data, settings, labeled=labeled)
    bags = align_features(encoded(run.model, run.recoded(bags)), names, reference=run.source)
    if cut is not None and bags.cut is not None:
        _check_cut({name: value for name, value in cut.items() if name not in RECIPE}, bags.cut, data)
    only = range(len(bags)) if chosen is None else chosen(bags)
    if cut is not None and "network" in cut:
        bags = _as_embedded(run, cut, bags, console or Console(quiet=True), only)
    expected = tuple(run.data["instance_shape"])
    if bags.instance_shape != expected:
        wanted = f"instances of shape {list(expected)}, on which {run.source} was trained"
        got = f"{list(bags.instance_shape)} (in {data}); use the features of {run.data['source']}, or another run"
        raise BagDataError(f"Expected {wanted}, got {got}.")
    if "pixels" in run.data:
        check_pixels(bags, run.data, run=run.source)
    bags = prepared(run.model, bags)
    if not labeled:  # the evaluation warns
        warn_of_units(bags, run.data, run=run.source)
    return bags


def settings_for(run: LoadedRun, data: str, **reading: Any) -> Settings:
    """Return the settings by which a run reads data, see `read_for`."""
    # Relative paths of the run's tables may not exist in this folder; predictions do not need the tables.
    tables = [table for table in (run.settings.data.labels, run.settings.data.slides) if table is not None]
    is_run_data = str(Path(data).resolve()) == run.data["place"] and all(Path(table).is_file() for table in tables)
    changes: dict[str, Any] = {"split_file": None, "fold": None, "positive": None}
    if not is_run_data:
        changes |= {"labels": None, "slides": None, "sheet": None}
    used, outcome = tuple(covariate_kinds(run.model)), run.data.get("outcome")
    # The model uses neither the site column nor covariates that were constant in training; they are not features
    # either.
    columns = (*run.settings.data.covariates, run.settings.run.site)
    unused = (name for name in columns if name is not None and name not in used)
    changes |= {"folds": 0, "covariates": used, "ignore": (*run.settings.data.ignore, *unused)}
    changes |= {name: value for name, value in (run.data.get("cut") or {}).items() if name not in RECIPE}
    changes |= {name: value for name, value in reading.items() if value is not None}
    if outcome is not None:
        changes["target"] = outcome["target"]
        words = not is_store(data) or changes.get("labels", run.settings.data.labels) is not None  # else 0 and 1
        if outcome["target"] == "survival" and reading.get("positive") is None and words:
            changes["positive"] = run.settings.data.positive  # the value that marks an event
    return run.settings.replace(**changes)


def _as_embedded(run: LoadedRun, cut: dict[str, Any], bags: Bags, console: Console, only: Sequence[int]) -> Bags:
    """Return vectors like those of the run: embed raw bags by its recipe, and refuse vectors of another recipe."""
    if "network" in (bags.cut or {}):
        check_recipe(cut, bags.cut or {}, run=run.source, data=bags.source)
    elif len(bags.instance_shape) > 1:
        options: dict[str, Any] = {"run": run.source, "accelerator": run.settings.run.accelerator}
        options |= {"place": run.data["place"], "only": only}
        with BagProgress("embedding", bags.sizes[only], console=console) as progress:
            return embed_like(bags, cut, **options, on_bag=progress.update)
    else:
        message = f"vectors without the name of a network are read as those of {cut['network']} (in {bags.source})"
        warnings.warn(message, stacklevel=4)
    return bags


def _check_label_column(data: str, settings: Settings, *, labeled: bool) -> None:
    """Refuse a table without the label column, and unlabeled bags if they must be `labeled`."""
    table, column = Path(settings.data.labels or data), settings.data.label_column
    if header := header_of(table, sheet=settings.data.sheet):  # none of a folder
        require_columns(header, [("label_column", column)], str(table))
    if labeled:
        advice = "name their column with `label_column`, or a table of them with `labels`."
        raise BagDataError(f"Expected labeled bags, got bags without labels (in {data}); {advice}")


def _check_cut(expected: dict[str, Any], cut: dict[str, Any], data: str) -> None:
    """Refuse instances that were cut with other settings than the run's, for instance in a store."""
    for name in sorted(set(expected) & set(cut)):
        stored, got = expected[name], cut[name]
        numbers = isinstance(stored, float) and isinstance(got, float | int)
        alike = math.isclose(stored, got, rel_tol=_SAME_SCALE) if numbers else stored == got
        if not alike and not (name == "magnification" and stored is None):
            wanted = f"Expected images that were cut with `{name}` {stored} as in training"
            advice = "name the files themselves, or import them with that cut"
            raise BagDataError(f"{wanted}, got {got} (in {data}); {advice}.")


class Evaluation(NamedTuple):
    """Result of `evaluate_bags`, with part [N] and score [N] of the bags, and warnings.

    For targets other than two classes, scores may be [N, C]. `decision` turns scores into predictions.
    """

    result: dict[str, Any]
    parts: NDArray[np.str_]
    scores: NDArray[np.float64]
    notes: list[str]
    decision: Decision | None = None


def evaluate_bags(
    run: LoadedRun, bags: Bags, *, metrics: Sequence[str] = (), on_bags: Callable[[Sequence[int]], None] | None = None
) -> Evaluation:
    """Return metrics of a run on labeled bags, separately for each split of the run and for new bags.

    A bag of the run is recognized by its content, not by its id or file, and is reported under its split, so that no
    training bag counts as a test bag. Every other bag is reported under "new". Warnings count new bags that share an
    id or a group (patient) with bags of the run, and bags with the content of another.

    Parameters
    ----------
    run, bags : LoadedRun, Bags
        The run; bags with labels.
    metrics : sequence of str
        Further metrics, see `midam.evaluate.metrics.measure`.
    on_bags : callable, optional
        Called with the positions of the bags that were just scored.

    Returns
    -------
    Evaluation
        Its `result` holds "test", "val", "train" or "new" with the entries of `midam.evaluate.metrics.summarize`, and
        "headline", the name of the part that measures generalization: "new" if there are new bags, else "test". For
        bags with labels of instances also "instances": `midam.runs.instance_files.summarize_instances`.

    Raises
    ------
    BagDataError
        If the bags have no labels.
    """
    bags = prepared(run.model, run.recoded(bags))
    run.target.values(bags)
    for name in metrics:
        check_metric(name, run.target.given, target=run.target.name)
    parts = np.array([split or "new" for split in run.known_splits(bags)])
    with noting() as notes:
        _warn_of_relatives(run, bags, np.flatnonzero(parts == "new"))
        if copies := "; ".join(duplicate_warnings(bags)):
            warnings.warn(f"{copies}; each of them is counted (in {bags.source})", stacklevel=2)
        run.warn_of_lost_groups(bags)
        scores, _ = predict_run(run, bags, on_bags=on_bags)
    target, decision, chunk = run.target, run.decision, run.settings.run.chunk_size
    result = summarize_parts(bags, target, parts, scores, names=("new", *SPLITS), decision=decision, metrics=metrics)
    labeled = labeled_bags(bags, parts, tuple(result))
    result |= {"headline": next(iter(result)), **target.description}
    if facts := summarize_instances(run.model, bags, target, labeled, scores, decision=decision, chunk_size=chunk):
        result["instances"] = facts
    return Evaluation(result, parts, scores, notes, decision)


def _warn_of_relatives(run: LoadedRun, bags: Bags, new: NDArray[np.int64]) -> None:
    same_id = sum(str(bags.ids[i]) in run.splits for i in new)
    # A patient can be one bag in these data and a group of bags in the run's data, or the reverse.
    trained = {*run.groups, *(bag for bag, split in run.splits.items() if split != "test")}
    in_group = False if bags.groups is None else np.isin(bags.groups[new], [*trained])
    same_group = int((np.isin(bags.ids[new], [*(trained - run.splits.keys())]) | in_group).sum())
    of_id = "have the ids of bags of the run, with other instances: if they are the same patients,"
    of_group = "belong to groups that the run was trained or validated on, or are such groups:"
    for count, relation in ((same_id, of_id), (same_group, of_group)):
        if count:
            message = f"{count} of {len(new)} new bags (in {bags.source}) {relation} the results below are no test"
            warnings.warn(message, stacklevel=3)
