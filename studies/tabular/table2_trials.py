"""The trials of Table 2: the list of trials, the missing trials, and the learning rate that validation bags choose."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.methods.store import Row
from midam.settings import Settings
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.protocol import drop_margin, paper_config, train_splits
from studies.splits import Split, paper_splits

PAPER_SPLITS = 3
_SPLITS_A_GROUP = PAPER_SPLITS


@dataclass(frozen=True)
class Plan:
    """Methods, learning rates and sizes of the trials."""

    methods: tuple[str, ...]  # Names of methods
    lrs: tuple[float, ...]  # Learning rates to choose from
    margin: float  # c of the AUC objectives
    splits: int  # Splits 0 .. splits - 1
    # Number of folds of a split that are run, and epochs of a training
    folds: int
    epochs: int
    accelerator: str = "cpu"

    def config(self, method: str, lr: float) -> Settings:
        """Return the settings of a training."""
        own = paper_config(method, lr=lr, margin=self.margin, epochs=self.epochs)
        return own.replace(accelerator=self.accelerator)


@dataclass(frozen=True, eq=False)
class Training:
    """Trials that train together: a method with a learning rate, on some splits of a set."""

    config: Settings
    bags: Bags
    splits: Sequence[Split]


@dataclass(frozen=True)
class Chosen:
    """A trial after its learning rate was chosen."""

    # The trial
    split: int
    fold: int
    lr: float  # The rate
    test: float  # Test AUROC
    train: float  # AUROC of the training bags at the last epoch


def wanted_groups(plan: Plan, sets: Mapping[str, Bags]) -> list[Group[Training]]:
    """Return the trials of a plan in their order.

    The longest trials are first, so that no process has a long trial at the end. But the paper's splits are before the
    others, and the others are in blocks, so that a stopped study has the same splits of every set.
    """
    groups = [group for name, bags in sets.items() for group in _groups_of(plan, name, bags)]
    return sorted(groups, key=lambda own: (_first_split(own), -own.tasks[0].bags.num_instances * len(own.names)))


def run_trials(plan: Plan, sets: Mapping[str, Bags], *, store: Store, options: StudyOptions) -> None:
    """Compute the trials of a plan that are not in the store."""
    groups = wanted_groups(plan, sets)
    papers = [group for group in groups if _first_split(group) < PAPER_SPLITS]
    for part, name in ((papers, section(plan.margin)), (groups[len(papers) :], more_section(plan.margin))):
        complete(part, _train, store=store, options=options, section=name)


def section(margin: float) -> str:
    """Return the name under which the time of a margin is stored."""
    return f"splits, margin {margin:g}"


def more_section(margin: float) -> str:
    """Return the name under which the time of the splits beyond the paper's splits is stored."""
    return f"more splits, margin {margin:g}"


def select_rows(plan: Plan, name: str, bags: Bags, method: str, *, store: Store) -> list[Row]:
    """Return the stored trials of a method on a set: all splits, with the plan's settings and margin."""
    return store.select(*(_name(name, method, plan.config(method, lr), bags) for lr in plan.lrs))


def choose(rows: Iterable[Row], *, epoch: str, lrs: Sequence[float]) -> list[Chosen]:
    """Choose the learning rate of each trial by its validation AUROC at the reported epoch.

    At a tie, the higher validation AUROC of the other epoch decides, then the order of `lrs`. A training that diverged
    is never chosen; a trial is left out if a rate is missing or if all its trainings diverged.

    Examples
    --------
    >>> shared = {"split": 0, "fold": 0, "val_last": 0.5, "test_last": 0.5, "train_last": 1.0}
    >>> rows = [{**shared, "lr": lr, "val_best": v, "test_best": t} for lr, v, t in [(0.1, 0.7, 0.6), (0.01, 0.8, 0.9)]]
    >>> choose(rows, epoch="best", lrs=[0.1, 0.01])[0].test
    0.9
    """
    trials: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        trials[row["split"], row["fold"]].append(row)
    other = "last" if epoch == "best" else "best"
    chosen = []
    for (split, fold), candidates in sorted(trials.items()):
        if {row["lr"] for row in candidates} != set(lrs):
            continue
        sound = [row for row in candidates if row[f"val_{epoch}"] is not None and row["train_last"] is not None]
        if sound:
            best = max(
                sound,
                key=lambda row: (row[f"val_{epoch}"], row[f"val_{other}"] or 0.0, -list(lrs).index(row["lr"])),
            )
            chosen.append(Chosen(split, fold, best["lr"], best[f"test_{epoch}"], best["train_last"]))
    return chosen


def choose_together(rows: Sequence[Row], *, lrs: Sequence[float]) -> list[Chosen]:
    """Choose one learning rate for all trials, by the mean of their best validation AUROC."""
    means = []
    for lr in lrs:
        own = [row["val_best"] for row in rows if row["lr"] == lr and row["val_best"] is not None]
        means.append(sum(own) / len(own) if own else -1.0)
    best = lrs[means.index(max(means))]
    return choose([row for row in rows if row["lr"] == best], epoch="best", lrs=[best])


def _groups_of(plan: Plan, name: str, bags: Bags) -> Iterator[Group[Training]]:
    for split in range(0, plan.splits, _SPLITS_A_GROUP):
        numbers = range(split, min(split + _SPLITS_A_GROUP, plan.splits))
        splits = paper_splits(bags.require_labels(), splits=numbers, folds=plan.folds)
        for method in plan.methods:
            for lr in plan.lrs:
                config = plan.config(method, lr)
                named = _name(name, method, config, bags)
                names = [{**named, "split": s.split, "fold": s.fold, "seed": s.seed} for s in splits]
                yield Group(names, [Training(config, bags, splits)])


def _first_split(group: Group[Training]) -> int:
    return int(group.names[0]["split"])


def _train(training: Training) -> list[Row]:
    return train_splits(training.config, training.bags, training.splits)


def _name(name: str, method: str, config: Settings, bags: Bags) -> Row:
    settings = settings_hash(config, bags=bags)
    return trial_name(
        "table2", set=name, method=method, lr=config.training.lr, margin=drop_margin(config), settings=settings
    )
