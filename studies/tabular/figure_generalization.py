"""`python -m studies figure-generalization`: training and test AUROC along the epochs of MIDAM and DAM."""

from collections.abc import Mapping
from pathlib import Path

from midam.data.bags import Bags
from midam.data.sets import catalog
from studies.drawing import Band, Panel, plot_panels
from studies.options import StudyOptions
from studies.page import figure_path, table, write_page
from studies.paper_tables import SETS, label
from studies.protocol import EPOCHS, LRS, MARGIN
from studies.split_statistics import mean_interval, paired_interval
from studies.store import Store
from studies.tabular.curves import Arm, CurvePlan, Curves, bands, find_curves, run_curves
from studies.work import wall_time

NAME = "figure-generalization"
POOLINGS = ("smx", "att")
_METHODS = ("midam", "dam")
_SHOWS = (
    "AUROC of training and test bags (whole bags) after each epoch, mean and one standard deviation over random "
    "0.9/0.1 splits: MIDAM, which draws at most 4 instances of a bag, beside DAM, which sees whole bags. The paper "
    "shows MUSK1 and MUSK2 in its figure on generalisation and explains MIDAM's better test AUROC by a worse training "
    "AUROC."
)


def plan(options: StudyOptions) -> CurvePlan:
    """Return what is run."""
    arms = tuple(Arm(f"{method}-{pooling}") for pooling in POOLINGS for method in _METHODS)
    margin = MARGIN if options.margin is None else options.margin
    if options.smaller:
        return CurvePlan(arms, LRS[:1], margin, splits=2, epochs=3)
    return CurvePlan(arms, LRS, margin, splits=3 if options.quick else 10, epochs=EPOCHS)


def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    names = ("musk1", "musk2") if options.quick else SETS
    study(options, {name: catalog.load(name) for name in names})


def study(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Run the study on these sets."""
    wanted = plan(options)
    store = Store(options.cache / "curves.jsonl")
    section = f"{NAME}, margin {wanted.margin:g}"
    run_curves(wanted, sets, store=store, options=options, section=section)
    found: dict[tuple[str, str], Curves] = {}
    for name, bags in sets.items():
        for pooling in POOLINGS:
            arms = [Arm(f"{method}-{pooling}") for method in _METHODS]
            curves = find_curves(wanted, arms, name, bags, store=store)
            found |= {(name, arm.method): own for arm, own in zip(arms, curves)}
    body: list[str] = []
    for pooling in POOLINGS:
        path = figure_path(options, NAME, pooling)
        _draw(path, found, list(sets), pooling)
        body += [f"![Training and test AUROC, {pooling} pooling]({path.name})", ""]
    body += [
        f"Margin {wanted.margin:g}. A training uses four fifths of a split's training part; the last fifth chooses the "
        f"learning rate among {', '.join(f'{lr:g}' for lr in wanted.lrs)}, one for the two methods of a set and "
        "pooling, so that they do not differ by the rate: the highest validation AUROC of the last epoch, mean over "
        "both.",
        "",
        *_table(found),
        "",
        "Intervals are of the mean over splits (t). 'Gap' is training less test AUROC at the last epoch.",
        "",
        *_claim(found),
    ]
    write_page(
        options,
        NAME,
        title="Generalisation: MIDAM and DAM along the epochs",
        shows=_SHOWS,
        seeds=f"0 to {wanted.splits - 1}, one a split, for the split, the weights and the sampling",
        seconds=wall_time(store, section),
        store=store,
        body=body,
    )


def _draw(path: Path, found: Mapping[tuple[str, str], Curves], names: list[str], pooling: str) -> None:
    methods = [f"{method}-{pooling}" for method in _METHODS]
    rows = []
    for part, ylabel in (("train", "Training AUROC"), ("test", "Test AUROC")):
        row = []
        for name in names:
            drawn = [Band(label(m), *bands(getattr(found[name, m], part))) for m in methods]
            row.append(Panel(name if part == "train" else "", ylabel, drawn))
        rows.append(row)
    plot_panels(path, rows, order=[label(m) for m in methods])


def _claim(found: Mapping[tuple[str, str], Curves]) -> list[str]:
    """MIDAM minus DAM on the same splits, and what that says of the paper's account."""
    rows = []
    for name in dict.fromkeys(name for name, _ in found):
        for pooling in POOLINGS:
            ours, theirs = (found[name, f"{method}-{pooling}"] for method in _METHODS)
            train = paired_interval(ours.train[:, -1], theirs.train[:, -1])
            test = paired_interval(ours.test[:, -1], theirs.test[:, -1])
            if train.high < 0 < test.low:
                verdict = "shown"
            elif train.low > 0 or test.high < 0:
                verdict = "contradicted"
            else:
                verdict = "not shown"
            rows.append([name, pooling, f"{train:+}", f"{test:+}", verdict])
    shown = sum(row[-1] == "shown" for row in rows)
    against = sum(row[-1] == "contradicted" for row in rows)
    return [
        "## The paper's account",
        "",
        "MIDAM trains worse and tests better. MIDAM minus DAM at the last epoch, paired by split; 'shown' where the "
        "interval lies below zero in training and above zero in test, 'contradicted' where it lies above zero in "
        f"training or below zero in test. **Shown in {shown} of {len(rows)}, contradicted in {against}.**",
        "",
        *table(["set", "pooling", "training AUROC", "test AUROC", "account"], rows),
    ]


def _table(found: Mapping[tuple[str, str], Curves]) -> list[str]:
    head = ["set", "method", "learning rate", "training AUROC", "test AUROC", "gap"]
    rows = []
    for (name, method), curves in found.items():
        train, test = curves.train[:, -1], curves.test[:, -1]
        cells = [str(mean_interval(values.tolist())) for values in (train, test)]
        cells.append(str(mean_interval((train - test).tolist(), bounds=(-1.0, 1.0))))
        rows.append([name, label(method), f"{curves.lr:g}", *cells])
    return table(head, rows)
