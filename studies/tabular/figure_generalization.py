"""`python -m studies figure-generalization`: training and test AUROC along the epochs of MIDAM and DAM."""

from collections.abc import Mapping
from pathlib import Path

from midam.data.bags import Bags
from studies.drawing import Band, Panel, plot_panels
from studies.engine import Store
from studies.options import StudyOptions
from studies.page import figure_path, table, write_page
from studies.paper_tables import SETS, label
from studies.registry import as_study
from studies.sets import catalog
from studies.split_statistics import mean_interval, paired_interval
from studies.tabular.curves import Arm, Found, bands, curve_plan, run_curves

NAME = "figure-generalization"
POOLINGS = ("smx", "att")
_METHODS = ("midam-printed", "dam")
_SHOWS = (
    "AUROC of training and test bags (whole bags) after each epoch, mean and one standard deviation over random "
    "0.9/0.1 splits: MIDAM, which draws at most 4 instances of a bag, beside DAM, which sees whole bags. The paper "
    "shows MUSK1 and MUSK2 in its figure on generalization and explains MIDAM's better test AUROC by a worse training "
    "AUROC."
)


def arms() -> dict[str, dict[str, Arm]]:
    """Return the curves by pooling and name of the method."""
    return {p: {label(f"{m}-{p}"): Arm(f"{m}-{p}") for m in _METHODS} for p in POOLINGS}


@as_study("training and test AUROC along the epochs, MIDAM and DAM", takes=("margin",), store="curves")
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    names = ("musk1", "musk2") if options.quick else SETS
    study(options, {name: catalog.load(name) for name in names})


def study(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Run the study on these sets."""
    compared = arms()
    plan = curve_plan(options, [arm for own in compared.values() for arm in own.values()])
    section = f"{NAME}, margin {plan.margin:g}"
    with Store(options.cache, "curves") as store:
        found = run_curves(plan, compared, sets, store=store, options=options, section=section)
        body: list[str] = []
        for pooling, own in compared.items():
            path = figure_path(options, NAME, pooling)
            _draw(path, found, list(sets), pooling, list(own))
            body += [f"![Training and test AUROC, {pooling} pooling]({path.name})", ""]
        body += [
            f"Margin {plan.margin:g}. A training uses four fifths of a split's training part; the last fifth chooses "
            f"the learning rate among {', '.join(f'{lr:g}' for lr in plan.lrs)}, one for the two methods of a set and "
            "pooling, so that they do not differ by the rate: the highest validation AUROC of the last epoch, mean "
            "over both.",
            "",
            *_table(found),
            "",
            "Intervals are of the mean over splits (t). 'Gap' is training less test AUROC at the last epoch.",
            "",
            *_claim(found, compared),
        ]
        write_page(
            options,
            NAME,
            title="Generalization: MIDAM and DAM along the epochs",
            shows=_SHOWS,
            seeds=f"0 to {plan.splits - 1}, one a split, for the split, the weights and the sampling",
            seconds=store.wall_time(section),
            store=store,
            body=body,
        )


def _draw(path: Path, found: Found, names: list[str], pooling: str, methods: list[str]) -> None:
    rows = []
    for part, ylabel in (("train", "Training AUROC"), ("test", "Test AUROC")):
        row = []
        for name in names:
            drawn = [Band(method, *bands(getattr(found[name, pooling, method], part))) for method in methods]
            row.append(Panel(name if part == "train" else "", ylabel, drawn))
        rows.append(row)
    plot_panels(path, rows, order=methods)


def _claim(found: Found, compared: Mapping[str, Mapping[str, Arm]]) -> list[str]:
    """Return the section on MIDAM minus DAM on the same splits, and on the paper's explanation."""
    rows = []
    for name, pooling in dict.fromkeys((name, pooling) for name, pooling, _ in found):
        ours, theirs = (found[name, pooling, method] for method in compared[pooling])
        train = paired_interval(ours.train[:, -1], theirs.train[:, -1])
        test = paired_interval(ours.test[:, -1], theirs.test[:, -1])
        verdict = "contradicted" if train.low > 0 or test.high < 0 else "not shown"
        verdict = "shown" if train.high < 0 < test.low else verdict
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


def _table(found: Found) -> list[str]:
    head = ["set", "method", "learning rate", "training AUROC", "test AUROC", "gap"]
    rows = []
    for (name, _, method), curves in found.items():
        train, test = curves.train[:, -1], curves.test[:, -1]
        cells = [str(mean_interval(values.tolist())) for values in (train, test)]
        cells.append(str(mean_interval((train - test).tolist(), bounds=(-1.0, 1.0))))
        rows.append([name, method, f"{curves.lr:g}", *cells])
    return table(head, rows)
