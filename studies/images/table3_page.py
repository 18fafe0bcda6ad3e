"""The page of Table 3: means next to the paper's means, intervals by group, paired differences, and the cost."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from studies.images.cost import cost_table, row_costs
from studies.images.design import COLOR_BASELINES, EXACT, METHODS, VOXEL_BASELINES, Design
from studies.images.results import Key, Results, better_baseline, bounds, pairs, resolved, signed
from studies.images.sets import ImageSet
from studies.images.trials import Job
from studies.page import section, table
from studies.paper_tables import OURS, label, printed

BASELINES = (*COLOR_BASELINES, *VOXEL_BASELINES)
# Chosen before all measurements: the library's default pooling.
JUDGED = "midam-printed-att"
_NO_RESULT = ("quick", "smaller")


def shows(design: Design, text: str | None = None) -> str:
    """Return a paragraph on the content of the page; `text` replaces the paragraph of Table 3."""
    text = text or (
        "Test AUROC of the rows of the paper's Table 3 on breast (58 images), colon (1100 image tiles) and adrenal "
        "(1584 shape volumes, in place of the paper's two volume sets, which were not at hand), of the exact methods "
        "on whole bags that the paper could not run, and of plain baselines: mean and deviation of the colors of an "
        "image, voxel count of a volume."
    )
    return text + (
        " **No result: a few bags, one epoch; it shows that each row runs.**" if _is_no_result(design) else ""
    )


def body(
    design: Design,
    sets: Mapping[str, ImageSet],
    jobs: Sequence[Job],
    rows: Sequence[Row | None],
    *,
    expected: Mapping[Key, float],
) -> list[str]:
    """Return the lines of the page without its head, from the rows of the jobs."""
    finished = [(job, row) for job, row in zip(jobs, rows) if row is not None]
    by: dict[Key, list[tuple[Job, Row]]] = defaultdict(list)
    for job, row in finished:
        by[job.name, job.method].append((job, row))
    results = Results(sets, by)
    if _is_no_result(design):
        return [*_paths(design, results), *_settings(design)]
    return [
        *_means(design, results),
        *intervals(design, results),
        *differences(design, results),
        *_verdict(design, results),
        *_settings(design),
        *_limits(design, results),
        *_cost(jobs, finished, expected=expected),
    ]


def size_line(design: Design, jobs: Sequence[Job], rows: Sequence[Row | None]) -> str:
    """Return the entry with the size of the study and its training devices."""
    devices = sorted({row["device"] for job, row in zip(jobs, rows) if row is not None and job.method in METHODS})
    return f"- Size: {design.name}; scorers trained on: {', '.join(devices) or 'nothing'}"


def _is_no_result(design: Design) -> bool:
    return design.name in _NO_RESULT


def _methods(design: Design) -> list[str]:
    """Return the rows of the page: all of Table 3 if MIDAM is run, but for a page of its states; else those run."""
    run = {method for recipe in design.recipes.values() for method in (*recipe.methods, *recipe.baselines)}
    every = METHODS[0] in run or (JUDGED in run and not run.intersection(OURS))
    return [method for method in (*METHODS, *BASELINES) if every or method in run]


def _paths(design: Design, results: Results) -> list[str]:
    lines = []
    for method in _methods(design):
        cells = [method if method in BASELINES else label(method)]
        for name in design.recipes:
            rows = results.rows.get((name, method), [])
            lost = sum(row["test_last"] is None for _, row in rows)
            cells.append(f"ran{f', {lost} diverged' if lost else ''}, no result" if rows else "-")
        lines.append(cells)
    return section("Rows that ran", table(["method", *design.recipes], lines))


def _means(design: Design, results: Results) -> list[str]:
    names = list(design.recipes)
    lines = []
    for method in _methods(design):
        cells = []
        for name in names:
            theirs = printed(name, method)
            cells.append(mean_sd(results, name, method))
            cells.append("-" if theirs is None else f"{theirs[0]:.3f} ({theirs[1]:.3f})")
        lines.append([method if method in BASELINES else label(method), *cells])
    return section(
        "Beside the paper",
        "Mean (standard deviation) of the test AUROC over trials, ours and the paper's, which tests on a random tenth "
        "of the images and knows no groups: tiles of one source, and images of one tissue array, then stand on both "
        "sides. 'not run': left out at this size.",
        table(["method", *(f"{name}, {whose}" for name in names for whose in ("ours", "paper"))], lines),
    )


def mean_sd(results: Results, name: str, method: str) -> str:
    """Return the mean and standard deviation of the test AUROC over trials."""
    tested = results.tested(name, method, epoch="best")
    if not tested:
        return "diverged" if results.rows.get((name, method)) else "not run"
    labels = results.sets[name].bags.require_labels()
    values = [auroc(labels[own.test], own.scores) for own in tested.values()]
    spread = f"{np.std(values, ddof=1):.3f}" if len(values) > 1 else "-"
    return f"{np.mean(values):.3f} ({spread})"


def intervals(design: Design, results: Results) -> list[str]:
    """Return the section of the intervals by group."""
    lines = []
    for name, recipe in design.recipes.items():
        for method in dict.fromkeys([*METHODS, *BASELINES, *recipe.baselines]):
            rows = results.rows.get((name, method), [])
            found = results.compare(name, method)
            if found is None:
                continue
            last = results.compare(name, method, epoch="last")
            lost = sum(row["test_best"] is None for _, row in rows)
            cells = [
                f"{found.trials}{f' ({lost} diverged)' if lost else ''}",
                str(found.groups),
                _epochs(results, name, method),
            ]
            cells += [str(found.grouped), "-" if last is None else f"{last.grouped.mean:.3f}", _chosen(rows)]
            lines.append([f"{name}, {label(method) if method in METHODS else method}", *cells])
    head = ["set, method", "trials", "groups tested", "epochs", "mean [95% by group]", "last epoch", "lr; margin"]
    return section(
        "Intervals",
        "The interval is a bootstrap of the groups of the test bags (patients, source tiles, tissue arrays; single "
        "bags where a set knows none); it leaves out how much hangs on the training bags. 'lr; margin': what was "
        "chosen, and in how many trials.",
        table(head, lines),
    )


def _epochs(results: Results, name: str, method: str) -> str:
    rows = results.rows.get((name, method), [])
    return ", ".join(sorted({str(row["epochs"]) for _, row in rows if row["epochs"] is not None})) or "-"


def _chosen(rows: Sequence[tuple[Job, Row]]) -> str:
    counts: dict[str, int] = defaultdict(int)
    for _, row in rows:
        if row.get("lr") is not None:
            margin = "" if row["margin"] is None else f"; {row['margin']:g}"
            counts[f"{row['lr']:g}{margin}"] += 1
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} ({count})" for name, count in sorted(counts.items())) or "-"


def differences(design: Design, results: Results) -> list[str]:
    """Return the section of the paired differences of MIDAM to its references."""
    lines = []
    for name, recipe in design.recipes.items():
        for first, second in pairs(recipe):
            found = results.compare(name, first, second)
            if found is not None:
                other = second if second in BASELINES else label(second)
                epochs = dict.fromkeys(_epochs(results, name, method) for method in (first, second))
                trained = "; ".join(text for text in epochs if text != "-")
                cells = [str(found.trials), trained, signed(found), bounds(found.corrected), resolved(found)]
                lines.append([f"{name}, {label(first)} minus {other}", *cells])
    if not lines:
        return []
    return section(
        "Paired differences",
        "Mean over trials of the difference of test AUROC on the same bags. 'By group': the bootstrap of groups, the "
        "same ones for both methods; with ten groups or so it is too narrow ([coverage](coverage.md)). 'Epochs': of "
        "the first; the second, where they differ, which is then part of the difference. 'Corrected': Nadeau and "
        "Bengio's corrected t over trials, which knows that trials share training bags; '-' where they share their "
        "test bags. 'Resolved': whether the interval by group excludes 0.",
        table(["set, difference", "trials", "epochs", "mean [95% by group]", "corrected 95%", "resolved"], lines),
    )


def _verdict(design: Design, results: Results) -> list[str]:
    if not results.rows.get(("colon", JUDGED)) or not design.recipes["colon"].baselines:
        return []
    baseline = better_baseline(results, "colon", design.recipes["colon"])
    found = results.compare("colon", JUDGED, baseline)
    if found is None:
        return []
    met = "met" if found.grouped.low > 0 else "not met"
    corrected = ""
    if np.isfinite(found.corrected[0]):
        corrected = (
            f" The corrected interval over trials, which is the wider question, is {bounds(found.corrected)}: its "
            f"lower bound is {'above' if found.corrected[0] > 0 else 'not above'} 0."
        )
    return section(
        "Colon: MIDAM against color alone",
        f"Target: {label(JUDGED)}, named beforehand, minus the better of the two color baselines (the one with the "
        f"higher mean test AUROC, {baseline}): the lower bound of the paired 95% interval by group above 0. Found: "
        f"{signed(found)}. **Target {met}.**{corrected}",
    )


def _settings(design: Design) -> list[str]:
    lines = []
    for name, recipe in design.recipes.items():
        fewer = f"; fewer: {', '.join(f'{m} {e}' for m, e in recipe.less)}" if recipe.less else ""
        lrs = ", ".join(f"{lr:g}" for lr in recipe.lrs)
        chosen = f"lr among {lrs}, then the margin among {', '.join(f'{m:g}' for m in recipe.margins)}"
        if not recipe.validates:
            adam = "" if recipe.lr_ce is None else f" (cross-entropy: adam, {recipe.lr_ce:g})"
            chosen = f"nothing: {recipe.optimizer}, lr {lrs}{adam}, margin {recipe.margins[0]:g}"
        trials = f"{recipe.repeats} x {recipe.folds}"
        batch = f"{recipe.bags} + {recipe.bags}, {recipe.instances}"
        lines.append([name, trials, batch, f"{recipe.epochs}{fewer}", f"{recipe.state_rate:g}", chosen])
    head = ["set", "repeats x folds", "bags a batch, B", "epochs", "gamma0", "chosen on validation bags"]
    fixed = [
        "Where nothing is chosen, optimizer and learning rate of the AUC rows of a set are what validation bags of the "
        "other two sets chose, with the estimator of the paper.",
        "",
    ]
    run = {method for recipe in design.recipes.values() for method in recipe.methods}
    missing = sorted(set(METHODS) & set(_methods(design)) - run)
    left = [f"Not run at this size: {', '.join(label(method) for method in missing)}.", ""] if missing else []
    return [
        "## What was run",
        "",
        "ResNet20 with group normalization (the paper: batch normalization), weight decay 1e-4, the learning rate "
        "falls tenfold at one half and three quarters of the epochs, no augmentation; the centers a and b of the "
        "min-max objective start at 0.5, the library's default for such encoders, since from 0 all scores fell to 0 "
        "and stayed. CE (3D) and DAM (3D): the "
        "patches or slices of a bag in their order as one volume, in ResNet20 with 3-D convolutions. Networks are "
        "trained in bfloat16 on a GPU and, in 2-D, on a processor that computes in it; all bags are scored in float32. "
        f"{', '.join(label(method) for method in EXACT)} see whole bags, exactly, in bounded memory. Five folds, "
        "disjoint by group: fold f tests, f + 1 validates where something is chosen; adrenal has its published test "
        f"bags, and the folds are of the others. {_choice(design)} Test bags choose nothing.",
        "",
        *table(head, lines),
        "",
        *(fixed if any(not recipe.validates for recipe in design.recipes.values()) else []),
        *left,
    ]


def _limits(design: Design, results: Results) -> list[str]:
    """Return the limits of these trainings that a reader of the tables should know."""
    counts = {
        name: sorted(
            {row["steps"] for method in recipe.methods for _, row in results.rows[name, method] if "steps" in row}
        )
        for name, recipe in design.recipes.items()
        if all((name, method) in results.rows for method in recipe.methods)
    }
    told = [f"{name} {' to '.join(map(str, sorted({own[0], own[-1]})))}" for name, own in counts.items() if own]
    tracked = any(JUDGED in recipe.methods for recipe in design.recipes.values())
    lines = ["- The tracked state of MIDAM is the paper's; 'relative' is the library's."] if tracked else []
    lines += ["- Volumes are at half their resolution, means of 2 x 2 x 2 voxels."] if design.halve else []
    lines += [f"- Steps of a training: {', '.join(told)}."] if told else []
    for name in design.recipes:
        found = results.compare(name, JUDGED, "dam-mb-att")
        if found is not None and found.grouped.low == found.grouped.high == 0:
            lines.append(f"- {name}: {label(JUDGED)} and {label('dam-mb-att')} have the same AUROC in each trial.")
    return section("What these trainings cannot show", lines)


def _choice(design: Design) -> str:
    if not any(recipe.validates for recipe in design.recipes.values()):
        return "No validation bags are set aside: the last epoch is reported."
    return (
        "Settings are chosen in each trial by the validation AUROC of short trainings: the learning rate at the first "
        "margin, then the margin. The reported epoch is the one with the best validation AUROC. Baselines train on the "
        "validation bags as well."
    )


def _cost(jobs: Sequence[Job], finished: Sequence[tuple[Job, Row]], *, expected: Mapping[Key, float]) -> list[str]:
    costs = row_costs(jobs)
    taken: dict[Key, float] = defaultdict(float)
    for job, row in finished:
        taken[job.name, job.method] += row["seconds"]
    return section(
        "Cost",
        "Time is of one process; 'expected' was measured on a few batches before the study.",
        cost_table(costs, jobs, expected=expected, taken=taken),
    )
