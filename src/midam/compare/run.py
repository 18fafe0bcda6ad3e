"""Run a comparison: plan, compute in parallel, append, summarise; what is finished is never computed again."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from warnings import warn

from joblib import Parallel, delayed
from joblib.parallel import get_active_backend

from midam import __version__
from midam.compare.backend import check_backend, use_backend
from midam.compare.figure import plot_comparison
from midam.compare.folds import Fold, check_folds, fold_remarks, folds_digest
from midam.compare.memory import peaks_mib
from midam.compare.methods import Method, find_methods
from midam.compare.plan import LEARNING_RATES, Group, Selection, plan
from midam.compare.summary import SUMMARY_COLUMNS, Comparison, make_comparison
from midam.compare.tasks import Outcome, Task, run_task
from midam.compare.trials import NO_VALIDATION, TrialRow, append_trials, start_trials
from midam.data.bags import Bags, both_classes
from midam.errors import BagDataError, ConfigError, RunStoppedError
from midam.files import LOCK, held, write_text
from midam.runs.folder import csv_text
from midam.train.config import FitConfig, from_dict, to_dict
from midam.train.settings import read_yaml, yaml_text

OnProgress = Callable[[float, int], None]
_Result = tuple[int, int, list[Outcome], list[str]]


def run_comparison(
    bags: Bags,
    methods: Sequence[str],
    folds: Sequence[Fold],
    *,
    settings: FitConfig | None = None,
    lrs: Sequence[float] | None = None,
    margins: Sequence[float] = (0.1, 0.5, 1.0),
    select: Literal["best", "last"] = "best",
    out: str | Path | None = None,
    jobs: int = 1,
    backend: str = "loky",
    measure_memory: bool = True,
    notes: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Test methods on the same folds.

    Inside each training part, a stratified, group-disjoint validation part (``settings.val_fraction``) chooses
    learning rate, margin and epoch of the methods trained here. With a single learning rate, a single margin and
    ``select="last"`` there is nothing to choose, and the whole training part trains. The method "midam" is trained with
    `settings` as they are; baselines and peers choose what they choose inside the training part.

    Parameters
    ----------
    bags : Bags
        Labelled; groups, where there are any, keep the inner splits disjoint.
    methods : sequence of str
        At least two names, see `known_methods`; the others are compared with the first.
    folds : sequence of Fold
        From `repeated_folds`, or ``(repeat, fold, train, test)`` of your own. The repeat is the seed.
    settings : FitConfig, optional
        All other settings of the methods trained here.
    lrs, margins : sequence of float
        Candidates; the first of equals is taken. Margins concern the AUC objectives alone. Default of the learning
        rates: `midam.compare.plan.LEARNING_RATES` of the optimizer that `settings` settle on.
    select : {"best", "last"}
        Epoch that is tested.
    out : str or Path, optional
        Folder that keeps the trials, and gets summary.csv, summary.md and compare.png. A second call with the same
        arguments computes what is missing there; further methods may be named.
    jobs : int >= 1
        Tasks at a time.
    backend : {"loky", "threading", "ray", "dask"}
        Where they run, see `midam.compare.backend`.
    measure_memory : bool
        Measure the peak memory of one trial a method, in a process of its own.
    notes : sequence of str
        What a reader of the summary should know of the folds; stands among its notes.
    on_progress : callable, optional
        Called with the number of finished trials (candidates count in part) and of all.

    Returns
    -------
    Comparison
        Trials and summary.

    Raises
    ------
    MidamError
        For bags, names, folds or settings that make no sense: nothing has then been written.
    RunStoppedError
        If a keyboard interrupt stopped a comparison that has a folder.

    Examples
    --------
    >>> from midam.data.sets import catalog
    >>> bags = catalog.load("digits")
    >>> from midam.compare import repeated_folds
    >>> found = run_comparison(
    ...     bags,
    ...     ["instance-logistic-max", "mi-kernel-svm"],
    ...     repeated_folds(bags, repeats=1, folds=2),
    ...     measure_memory=False,
    ... )
    >>> found.summary["auroc"].gt(0.5).all()
    np.True_
    """
    chosen = find_methods(list(methods))
    check_backend(backend, jobs=jobs)
    both_classes(bags)
    checked = check_folds(bags, folds)
    base = (settings or FitConfig()).for_instances(bags.instance_shape)
    selection = _selection(base, lrs=lrs, margins=margins, select=select)
    if any(selection.validates(method) for method in chosen) and selection.base.val_fraction == 0:
        raise ConfigError("Expected val_fraction > 0 to select by validation, got 0; set a share, or select nothing.")
    barred, groups = plan(bags, chosen, checked, selection, done=())
    if not groups:
        raise _no_fold(bags, barred, len(checked))
    keeper = _Keeper(None if out is None else Path(out))
    remarks = [*notes, *fold_remarks(bags, checked)]
    with keeper.alone():
        keeper.open(_record(bags, checked, selection), chosen)
        barred, groups = plan(bags, chosen, checked, selection, done={row.key for row in keeper.rows})
        keeper.add(barred)
        progress = _Progress(on_progress, keeper, total=len(chosen) * len(checked))
        try:
            with use_backend(backend, jobs=jobs):
                _compute(bags, groups, keeper, progress, measure=measure_memory)
        except KeyboardInterrupt:
            if keeper.folder is None:
                raise
            raise RunStoppedError(
                f"stopped; {keeper.folder} holds {len(keeper.rows)} of {progress.total} trials. The same command goes "
                "on from there"
            ) from None
        comparison = make_comparison(keeper.rows, [method.name for method in chosen], checked, remarks=remarks)
        keeper.finish(comparison, title=f"{bags.source}: {len(checked)} folds")
    return comparison


def _no_fold(bags: Bags, barred: Sequence[TrialRow], count: int) -> BagDataError:
    if any(row.status == NO_VALIDATION for row in barred):
        return BagDataError(
            "Expected training parts that can spare validation bags of both classes, got none that can, of "
            f"{count} (in {bags.source}); give one of --lrs and --margins with --select last, which needs no "
            "validation, or add bags."
        )
    return BagDataError(
        f"Expected a fold with both classes in training and test, got none of {count} (in {bags.source}); ask for "
        "fewer folds, or add bags."
    )


class _Keeper:
    """The rows, and the folder that keeps them."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.rows: list[TrialRow] = []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other comparisons out of the folder."""
        if self.folder is None or (self.folder.exists() and not self.folder.is_dir()):
            yield  # nothing to hold, or nothing that `open` takes
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            busy = (
                f"Expected no other comparison in {self.folder}, got one that is running; wait for its end, or choose "
                "another --out."
            )
            with held(self.folder, busy=ConfigError(busy)):
                yield

    def open(self, record: dict[str, Any], methods: Sequence[Method]) -> None:
        """Take up what is there; refuse a folder of something else."""
        if self.folder is None:
            return
        path = self.folder / "config.yaml"
        names = [method.name for method in methods]
        if path.exists():
            kept = read_yaml(path)
            # Settings that came after the comparison was started stand at their defaults.
            kept["settings"] = {**to_dict(FitConfig()), **kept.get("settings", {})}
            # The same bags under another path are the same bags.
            changed = [key for key, value in record.items() if kept.get(key) != value and key != "data"]
            if changed:
                raise ConfigError(
                    f"Expected the {changed[0]} that the comparison was started with, got another (in {path}); choose "
                    "another --out, or repeat the command as it was."
                )
        elif self.folder.exists() and (not self.folder.is_dir() or {*os.listdir(self.folder)} - {LOCK}):
            raise ConfigError(
                f"Expected a new folder or that of a comparison, got {self.folder}, which holds something else; choose "
                "another --out."
            )
        write_text(path, yaml_text({**record, "methods": names}))
        self.rows = start_trials(self.folder / "trials.csv")

    def add(self, rows: Sequence[TrialRow]) -> None:
        """Keep rows that are not there yet."""
        there = {row.key for row in self.rows}
        fresh = [row for row in rows if row.key not in there]
        if fresh and self.folder is not None:
            append_trials(self.folder / "trials.csv", fresh)
        self.rows += fresh

    def finish(self, comparison: Comparison, *, title: str) -> None:
        """Write summary and picture."""
        if self.folder is None:
            return
        records = comparison.summary.astype(object).where(comparison.summary.notna(), None).to_dict("records")
        write_text(
            self.folder / "summary.csv",
            csv_text(SUMMARY_COLUMNS, [{str(key): value for key, value in row.items()} for row in records]),
        )
        write_text(self.folder / "summary.md", comparison.markdown())
        plot_comparison(self.folder / "compare.png", comparison.summary, title=title)


class _Progress:
    """Counts finished trials; the candidates of a trial in equal parts."""

    def __init__(self, report: OnProgress | None, keeper: _Keeper, *, total: int) -> None:
        self.report, self.keeper, self.total, self.partial = report, keeper, total, 0.0

    def update(self) -> None:
        """Report where things stand."""
        if self.report is not None:
            self.report(min(len(self.keeper.rows) + self.partial, self.total), self.total)


def _compute(bags: Bags, groups: Sequence[Group], keeper: _Keeper, progress: _Progress, *, measure: bool) -> None:
    outcomes: list[dict[int, list[Outcome]]] = [{} for _ in groups]
    told: set[str] = set()
    there = {row.key for row in keeper.rows}
    progress.update()
    peaks = peaks_mib(bags, _unmeasured(groups, keeper.rows)) if measure else {}
    with _results(bags, groups) as results:
        for g, t, found, messages in results:
            group, outcomes[g][t] = groups[g], found
            for message in messages:
                if message not in told:
                    told.add(message)
                    warn(message, UserWarning, stacklevel=3)
            share = sum((group.method.name, f.repeat, f.fold) not in there for f in group.folds) / len(group.tasks)
            progress.partial += share
            if len(outcomes[g]) == len(group.tasks):
                progress.partial -= share * len(group.tasks)
                of_tasks = [outcomes[g].pop(t) for t in range(len(group.tasks))]
                keeper.add(group.rows(bags, of_tasks, peak=peaks.pop(group.method.name, None)))
            progress.update()


@contextmanager
def _results(bags: Bags, groups: Sequence[Group]) -> Iterator[Iterator[_Result]]:
    """Results of all tasks as they come; leaving stops what still runs."""
    calls = [delayed(_run)(bags, task, g, t) for g, group in enumerate(groups) for t, task in enumerate(group.tasks)]
    backend, jobs = get_active_backend()
    if backend.supports_return_generator:
        # One task at a time in the queue of a worker: a stop has little to wait for.
        made = Parallel(return_as="generator_unordered", batch_size=1)(calls)
    else:
        made = _in_rounds(calls, size=2 * jobs)
    with closing(made) as results:
        yield results


def _in_rounds(calls: Sequence[Any], *, size: int) -> Iterator[_Result]:
    """Results for a backend (Ray's) that returns whole lists only: a round of tasks after the other."""
    for low in range(0, len(calls), size):
        yield from Parallel(batch_size=1)(calls[low : low + size])


def _run(bags: Bags, task: Task, g: int, t: int) -> _Result:
    return g, t, *run_task(bags, task)


def _unmeasured(groups: Sequence[Group], rows: Sequence[TrialRow]) -> dict[str, Task]:
    """A task of each method whose peak memory is not known yet."""
    known = {row.method for row in rows if row.peak_mib is not None}
    first: dict[str, Task] = {}
    for group in groups:
        if group.method.name not in known:
            first.setdefault(group.method.name, group.tasks[0])
    return first


def _selection(base: FitConfig, *, lrs: Sequence[float] | None, margins: Sequence[float], select: str) -> Selection:
    if select not in ("best", "last"):
        raise ConfigError(f"Expected select as one of best, last, got {select!r}; choose one of them.")
    lrs = LEARNING_RATES[base.primal()[0]] if lrs is None else lrs
    for name, values in (("lr", lrs), ("margin", margins)):
        if not len(values):
            raise ConfigError(f"Expected at least one {name}, got none; give one.")
        for value in values:
            from_dict({**to_dict(base), name: value})
    # The weights of the last epoch are asked for; selection happens here.
    return Selection(
        replace(base, select="last", patience=None), [float(x) for x in lrs], [*map(float, margins)], select
    )


def _record(bags: Bags, folds: Sequence[Fold], selection: Selection) -> dict[str, Any]:
    """What may not differ between two calls that share a folder."""
    return {
        "version": __version__,
        "data": bags.source,
        "fingerprint": bags.fingerprint(),
        "folds": folds_digest(folds),
        "lrs": selection.lrs,
        "margins": selection.margins,
        "select": selection.select,
        "settings": to_dict(selection.base),
    }
