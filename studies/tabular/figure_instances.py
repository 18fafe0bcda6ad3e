"""`python -m studies figure-instances`: MIDAM with 1, 2, 4, 8 or all instances of a bag."""

from collections.abc import Mapping
from pathlib import Path

from midam.data.bags import Bags
from midam.report.figures import new_figure
from studies.drawing import Band, Panel, add_legend, plot_panels, plot_points, save_figure
from studies.engine import Store
from studies.options import StudyOptions
from studies.page import figure_path, table, write_page
from studies.registry import as_study
from studies.sets import catalog
from studies.split_statistics import Estimate, mean_interval, paired_interval
from studies.tabular.curves import Arm, CurvePlan, Curves, Found, bands, curve_plan, run_curves

NAME = "figure-instances"
POOLINGS = ("smx", "att")
SETS = ("musk2", "fox", "tiger", "elephant")
_COUNTS = (1, 2, 4, 8)
_LEVEL = 0.02
_SHOWS = (
    "MIDAM with smoothed-max (smx) and attention (att) pooling when a step draws B = 1, 2, 4, 8 or all instances of "
    "each bag. Above, as in the paper's figure, the AUROC of the training bags along the epochs; below, what the paper "
    "does not show: the test AUROC at the last epoch."
)


def arms(options: StudyOptions) -> dict[str, dict[str, Arm]]:
    """Return the curves by pooling and B; 'all' is the exact estimator, because a whole bag needs no tracked state."""
    counts = _COUNTS[:2] if options.smaller else _COUNTS
    return {p: {f"B = {n}": Arm(f"midam-printed-{p}", n) for n in counts} | {"all": Arm(f"dam-{p}")} for p in POOLINGS}


@as_study("MIDAM with 1, 2, 4, 8 or all instances a bag", takes=("margin",), store="curves")
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    names = ("fox", "musk2") if options.quick else SETS
    study(options, {name: catalog.load(name) for name in names})


def study(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Run the study on these sets."""
    compared = arms(options)
    plan = curve_plan(options, [arm for own in compared.values() for arm in own.values()])
    section = f"{NAME}, margin {plan.margin:g}"
    with Store(options.cache, "curves") as store:
        found = run_curves(plan, compared, sets, store=store, options=options, section=section)
        curves, points = figure_path(options, NAME), figure_path(options, NAME, "test")
        _draw_curves(curves, found, list(sets))
        _draw_points(points, found, list(sets))
        write_page(
            options,
            NAME,
            title="Instances a bag: B = 1, 2, 4, 8, all",
            shows=_SHOWS,
            seeds=f"0 to {plan.splits - 1}, one a split, for the split, the weights and the sampling",
            seconds=store.wall_time(section),
            store=store,
            body=_body(plan, found, curves, points),
        )


def _body(wanted: CurvePlan, found: Found, curves: Path, points: Path) -> list[str]:
    texts = list(dict.fromkeys(text for _, _, text in found))
    rows = [
        [name, pooling, f"{found[name, pooling, texts[0]].lr:g}", *(str(_test(found[name, pooling, t])) for t in texts)]
        for name, pooling in dict.fromkeys((name, pooling) for name, pooling, _ in found)
    ]
    return [
        f"![Training AUROC along the epochs]({curves.name})",
        "",
        f"![Test AUROC against the number of instances]({points.name})",
        "",
        f"Margin {wanted.margin:g}; S+ = S- = 8. The learning rate, one for all B of a set and pooling so that they do "
        f"not differ by the rate, is the one of {', '.join(f'{lr:g}' for lr in wanted.lrs)} with the highest AUROC of "
        "the validation bags, a fifth of the training part, at the last epoch, mean over all B. 'All' is the exact "
        "estimator, which a bag drawn whole amounts to.",
        "",
        f"Test AUROC at the last epoch, mean over {wanted.splits} splits and its 95% interval (t):",
        "",
        *table(["set", "pooling", "learning rate", *texts], rows),
        "",
        *_claims(found, texts),
    ]


def _claims(found: Found, texts: list[str]) -> list[str]:
    """Return a section that tests the paper's two sentences about the figure on the paired splits."""
    least, most, four = texts[0], texts[-2], "B = 4" if "B = 4" in texts else texts[-2]
    rows = []
    for name, pooling in dict.fromkeys((name, pooling) for name, pooling, _ in found):
        of = {text: found[name, pooling, text] for text in texts}
        speed = paired_interval(of[most].train.mean(axis=1), of[least].train.mean(axis=1))
        level = paired_interval(of[four].train[:, -1], of["all"].train[:, -1])
        faster = "shown" if speed.low > 0 else "contradicted" if speed.high < 0 else "not shown"
        same = "shown" if level.low > -_LEVEL and level.high < _LEVEL else "open"
        same = "contradicted" if level.high < -_LEVEL or level.low > _LEVEL else same
        rows.append([name, pooling, f"{speed:+}", faster, f"{level:+}", same])
    counts = [sum(row[column] == "shown" for row in rows) for column in (3, 5)]
    head = ["set", "pooling", f"{most} minus {least}", "faster", f"{four} minus all", "same level"]
    return [
        "## The paper's two claims",
        "",
        f"A larger B converges faster: the training AUROC averaged over the epochs, {most} minus {least}. With {four} "
        f"the training ends almost where all instances end: within {_LEVEL:g} of them at the last epoch. Paired by "
        f"split, 95% intervals (t). **Shown in {counts[0]} and {counts[1]} of {len(rows)}.**",
        "",
        *table(head, rows),
    ]


def _test(curves: Curves) -> Estimate:
    return mean_interval(curves.test[:, -1].tolist())


def _draw_curves(path: Path, found: Found, names: list[str]) -> None:
    texts = list(dict.fromkeys(text for _, _, text in found))
    rows = [
        [
            Panel(
                f"{name}, {pooling}",
                "Training AUROC",
                [Band(text, *bands(found[name, pooling, text].train)) for text in texts],
            )
            for name in names
        ]
        for pooling in POOLINGS
    ]
    plot_panels(path, rows, order=texts)


def _draw_points(path: Path, found: Found, names: list[str]) -> None:
    texts = list(dict.fromkeys(text for _, _, text in found))
    figure = new_figure((3.1 * max(len(names), 2) + 0.4, 3.3))
    grid = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for name, axes in zip(names, grid):
        for style, pooling in enumerate(POOLINGS):
            estimates = [_test(found[name, pooling, text]) for text in texts]
            places = [number + 0.16 * (style - 0.5) for number in range(len(texts))]
            bounds = [(e.low, e.high) for e in estimates]
            plot_points(axes, places, [e.mean for e in estimates], bounds, name=f"MIDAM ({pooling})", style=style)
        axes.set_title(name, loc="left", fontweight="bold", fontsize=10)
        axes.set_xticks(range(len(texts)), [text.removeprefix("B = ") for text in texts])
        axes.set_xlabel("Instances a bag")
    grid[0].set_ylabel("Test AUROC, last epoch")
    add_legend(figure, columns=2)
    save_figure(figure, path)
