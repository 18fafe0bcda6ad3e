"""Run a comparison: plan, compute missing trials in parallel, summarize."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from midam._version import __version__
from midam.compare.folds import Fold, check_folds, fold_remarks, folds_digest
from midam.compare.methods import check_methods, find_methods
from midam.compare.plan import Grid, Outcome, Selection, Task, group_results, make_selection, plan, run_task
from midam.compare.report import write_comparison_report
from midam.compare.summary import Comparison, make_comparison, stopped_early
from midam.compare.trials import TABLES, Status, open_trials, read_record, safe_frame, write_trials
from midam.compare.workers import Group, Workers, compute
from midam.data.bags import Bags
from midam.data.column_codes import needs_preparing, note_of_filled
from midam.errors import BagDataError, ConfigError, RunStoppedError
from midam.files import LOCK, is_left, require_plain_folder, sweep, write_text
from midam.methods.store import TrialStore
from midam.reading import file_digest
from midam.runs.data import write_left_out
from midam.settings import Settings, yaml_text
from midam.targets import target_of
from midam.train.members import with_objective

OnProgress = Callable[[float, int], None]
_USUAL, _HERE = Grid(), Workers()


def run_comparison(
    bags: Bags,
    methods: Sequence[str],
    folds: Sequence[Fold],
    *,
    settings: Settings | None = None,
    grid: Grid = _USUAL,
    out: str | Path | None = None,
    workers: Workers = _HERE,
    notes: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Compare methods on the same folds by the main metric of the target; for two classes, the AUROC.

    In each training part, a stratified, group-disjoint validation part (``settings.val_fraction``) chooses learning
    rate, margin and epoch of the methods of this library. With one learning rate, one margin and the last epoch,
    nothing is chosen, and the method trains on the whole training part. "midam" is trained with unchanged `settings`;
    baselines choose by their own inner folds.

    Parameters
    ----------
    bags : Bags
        Labeled bags; inner splits are disjoint by group.
    methods : sequence of str
        At least two names, see `known_methods`; the others are compared with the first.
        All must serve the target of the bags; if the settings name no objective, "midam" uses the target's.
    folds : sequence of Fold
        Result of `repeated_folds`, or your own ``(repeat, fold, train, test)``. The repeat is the seed.
    settings : Settings, optional
        All other settings of the methods of this library.
    grid : Grid
        Learning rates, margins and epochs to choose from.
    out : str or Path, optional
        Folder for the trials, trials.csv, predictions.csv, summary.csv, summary.md and report.html. A
        second call with the same arguments, or further methods, computes the missing trials.
    workers : Workers
        Number of parallel tasks and their place; default: one at a time, here. If the settings name the accelerator
        "cuda", each task gets its own GPU.
    notes : sequence of str
        Notes on bags and folds for the summary, such as left-out files.
    on_progress : callable, optional
        Called with the numbers of finished (candidates count in part) and of all trials.

    Raises
    ------
    MidamError
        If arguments are wrong, before anything is written. A `RunStoppedError` if a keyboard interrupt stopped a
        comparison with a folder; a `TrialsLostError` if trials are missing because their worker died each time.

    Examples
    --------
    >>> from midam.compare import repeated_folds
    >>> import midam
    >>> bags = midam.read_bags("digits")
    >>> folds = repeated_folds(bags, repeats=1, folds=2)
    >>> comparison = run_comparison(bags, ["mean-map-svm", "bag-statistics-logistic"], folds)
    >>> comparison.summary["auroc"].gt(0.5).all()
    np.True_
    """
    compared = find_methods(methods)
    workers = replace(workers, gpu=workers.gpu or (settings or Settings()).run.accelerator == "cuda")
    workers.check()
    target = target_of(bags)
    target.check(bags)
    check_methods(compared, bags)
    checked = check_folds(bags, folds)
    folder, names = None if out is None else Path(out), [method.name for method in compared]
    base = with_objective(settings or Settings(), target).resolve(bags.instance_shape)
    data_settings = base.data if needs_preparing(bags, base.data) else None
    if base.data.impute != "none":
        note_of_filled(bags, base.data.impute, fitted_on="the training bags of each fold")
    selection = make_selection(base, grid)
    if any(selection.validates(method) for method in compared) and selection.base.run.val_fraction == 0:
        raise ConfigError("Expected val_fraction > 0 to select by validation, got 0; set a share, or select nothing.")
    barred, groups = plan(bags, compared, checked, selection)
    if not groups:
        raise _no_fold(bags, len(checked), {result["status"] for _, result in barred})
    total = len(compared) * len(checked)
    record = {**_record(bags, checked, selection), "methods": names}
    with _open_store(folder, bags, record) as store:
        store.keep([name for name, _ in barred], [result for _, result in barred])
        missing = store.missing(groups)
        keeper, progress = _Keeper(bags, store, folder), _progress(on_progress, missing, total)
        with _resumable(folder, store, total):
            run = partial(run_task, bags, data_settings=data_settings)
            compute(missing, run, keep=keeper, workers=workers, on_progress=progress)
            comparison = make_comparison(bags, store.rows, names, checked)
            remarks = [*notes, *fold_remarks(bags, checked)]
            trained = [method.name for method in compared if method.baseline is None]
            remarks += stopped_early(comparison.summary, trained, base.training.epochs, metric=target.metric)
            comparison = replace(comparison, remarks=tuple(remarks))
            if folder is not None:
                _write(comparison, folder, record)
    return comparison


@contextmanager
def _resumable(folder: Path | None, store: TrialStore, total: int) -> Iterator[None]:
    """Turn a keyboard interrupt into advice on how to resume, if the comparison has a folder."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is None:
            raise
        raise RunStoppedError(
            f"stopped; {folder} holds {len(store.rows)} of {total} trials. The same command continues from there"
        ) from None


def _write(comparison: Comparison, folder: Path, record: Mapping[str, Any]) -> None:
    for name, frame in (("summary", comparison.summary), ("predictions", comparison.predictions)):
        text = safe_frame(frame).to_csv(index=False, float_format="%.9g", lineterminator="\n")
        write_text(folder / f"{name}.csv", text)
    write_text(folder / "summary.md", comparison.markdown())
    files = {name: file_digest(folder / name) for name in TABLES}
    write_text(folder / "config.yaml", yaml_text({**record, "files": files}))
    write_comparison_report(folder)


class _Keeper:
    """Stores the trials of each finished group, and shows each warning once."""

    def __init__(self, bags: Bags, store: TrialStore, folder: Path | None) -> None:
        self._bags, self._store, self._folder = bags, store, folder
        self._warned: set[str] = set()
        self._write()

    def __call__(self, group: Group[Task], results: Sequence[tuple[list[Outcome], list[str]]]) -> None:
        for message in dict.fromkeys(message for _, messages in results for message in messages):
            if message not in self._warned:
                self._warned.add(message)
                warnings.warn(message, stacklevel=4)
        self._store.keep(group.names, group_results(self._bags, group, [outcome for outcome, _ in results]))
        self._write()

    def _write(self) -> None:
        if self._folder is not None:
            write_trials(self._folder / "trials.csv", self._store.rows, metric=target_of(self._bags).metric)


def _progress(report: OnProgress | None, missing: Sequence[Group[Task]], total: int) -> Callable[[float], None] | None:
    if report is None:
        return None
    there = total - sum(len(group.names) for group in missing)
    report(there, total)
    return lambda done: report(there + done, total)


def _no_fold(bags: Bags, count: int, reasons: Collection[str]) -> BagDataError:
    binary = bags.outcome is None
    wanted, way_out = "a fold with both classes in training and test", "take other folds, or add bags"
    if not binary:
        wanted = "a fold with enough training bags of each class or label, or with an event, and test bags that differ"
    if Status.NO_VALIDATION in reasons:
        wanted = f"training parts with enough bags for validation bags{' of both classes' if binary else ''}"
        way_out = "leave nothing to choose (one lr, one margin, `select='last'`), or add bags"
    return BagDataError(f"Expected {wanted}, got none of {count} (in {bags.source}); {way_out}.")


def _open_store(folder: Path | None, bags: Bags, record: dict[str, Any]) -> TrialStore:
    """Open the trials of a folder; refuse a folder with other files."""
    if folder is None:
        return TrialStore()
    path, journal = folder / "config.yaml", folder / "trials.jsonl"
    if path.exists():
        kept, _ = read_record(folder)
        # The same bags may have another path, and methods may be added.
        changed = [key for key in record if key not in ("data", "methods") and kept.get(key) != record[key]]
        if changed:
            raise ConfigError(
                f"Expected the {changed[0]} that the comparison was started with, got a different one (in {path}); "
                "choose another folder, or repeat the call as it was."
            )
    elif folder.exists() and (not folder.is_dir() or (_foreign(folder, journal) and not journal.exists())):
        raise ConfigError(
            f"Expected a new folder, or one of a comparison, got {folder} with other files; choose another one."
        )
    require_plain_folder(folder, writes=True)
    target = target_of(bags)
    store = open_trials(journal, metric=target.metric, columns=target.count)
    sweep(folder)
    write_text(path, yaml_text(record))
    write_left_out(bags, folder / "left-out.csv")
    return store


def _foreign(folder: Path, journal: Path) -> bool:
    """Return whether a folder holds other files than those of a comparison that was killed at its start."""
    return any(not is_left(path) and path.name != f"{journal.name}{LOCK}" for path in folder.iterdir())


def _record(bags: Bags, folds: Sequence[Fold], selection: Selection) -> dict[str, Any]:
    """Return the settings that must be equal in two calls with the same folder, except for the path of the data."""
    return {
        "version": __version__,
        "data": bags.source,
        **target_of(bags).description,
        "fingerprint": bags.fingerprint(),
        "folds": folds_digest(folds),
        "lrs": selection.lrs,
        "margins": selection.margins,
        "select": selection.select,
        "settings": selection.base.flat(),
    }
