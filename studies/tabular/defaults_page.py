"""The page of the study `defaults`: each set with the defaults, what the rule would choose, and all candidates."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from studies.differences import over_sets, paired
from studies.page import section, table
from studies.split_statistics import mean_interval
from studies.tabular.defaults_trials import (
    ATTENTION,
    BESIDE,
    CHOSEN,
    DEFAULT,
    KERNEL,
    LINEAR,
    MIXTURES,
    SYNTHETIC,
    TREES,
    Areas,
)

Judged = dict[str, dict[str, NDArray[np.float64]]]  # AUROC for each fold, by set and method
_SHOWN = {
    "auto": "`auto`",
    "no prior": "without its prior",
    DEFAULT: "`midam`",
    "chosen epochs": "its epochs chosen",
    TREES: "ExtraTrees",
    LINEAR: "logistic",
    KERNEL: "mean map",
}
_LEAST_PRIOR = 0.01
_BESIDE = dict(zip(BESIDE, ("LibAUC", "torchmil"), strict=True))
# Wanted differences: of `auto` on average, in the worst case, and to the best of all; of `midam` alone on average.
_NEAR, _BEHIND, _BEST, _CLOSE = -0.005, -0.02, -0.01, -0.01


def judged_areas(
    areas: Areas,
    sets: Mapping[str, Bags],
    kinds: Mapping[str, Sequence[str]],
    *,
    repeats: range,
) -> Judged:
    """Return the AUROC for each fold of each set and method; `auto` has the prior of the other kinds."""
    found: Judged = {}
    for kind, names in kinds.items():
        prior = prior_of(areas, sets, kinds, without=kind, repeats=repeats)
        for data in names:
            found[data] = areas.nested(data, sets[data], prior, repeats=repeats)
            others = {method: areas.beside(data, sets[data], method, repeats=repeats) for method in BESIDE}
            found[data] |= {method: own for method, own in others.items() if own is not None}
    return found


def judged_section(judged: Judged, kinds: Mapping[str, Sequence[str]], prior: Mapping[str, float]) -> list[str]:
    """Return the table of each set with the default, compared with bag statistics."""
    rows: list[list[str]] = []
    means: dict[str, dict[str, float]] = {}
    gaps: dict[str, NDArray[np.float64]] = {}
    ahead: dict[str, list[NDArray[np.float64]]] = {method: [] for method in BESIDE}
    by_kind: dict[str, dict[str, list[float]]] = {method: {} for method in BESIDE}
    over_trees: list[NDArray[np.float64]] = []
    over_even: list[NDArray[np.float64]] = []
    for kind, data in ((kind, data) for kind, names in kinds.items() for data in names):
        found = judged[data]
        mean = {method: float(found[method].mean()) for method in found}
        mean |= {method: float("nan") for method in BESIDE if method not in found}
        gap = found["auto"] - found[max((DEFAULT, TREES), key=mean.__getitem__)]
        rows.append([data, *(_cell(mean[method]) for method in (*_SHOWN, *BESIDE)), paired(gap)])
        if kind != SYNTHETIC:
            means[data], gaps[data] = mean, gap
            over_trees.append(found["auto"] - found[TREES])
            over_even.append(found["auto"] - found["no prior"])
            for method in (method for method in BESIDE if method in found):
                ahead[method].append(found[DEFAULT] - found[method])
                by_kind[method].setdefault(kind, []).append(float(ahead[method][-1].mean()))
    averaged = (*_SHOWN, *BESIDE, "best")
    real = {method: float(np.mean([mean[method] for mean in means.values()])) for method in averaged}
    cells = [_cell(real[method]) for method in (*_SHOWN, *BESIDE)]
    rows.append(["mean of the real sets", *cells, str(over_sets(list(gaps.values())))])
    worst = min(gaps, key=lambda data: float(gaps[data].mean()))
    behind = [behind_best(judged[data]) for data in means]
    over, least = float(np.mean([gap.mean() for gap in gaps.values()])), float(gaps[worst].mean())
    return section(
        "Each set with the default",
        "Test AUROC, mean over stratified folds: 10, of more than 1000 bags 5. `auto` makes its choice inside each "
        "training part; its prior weights are the mean weights that the methods have on the other kinds. `midam` is "
        "the method alone, three scorers and all epochs; then with the epochs that inner "
        "folds choose, as `auto` tries it. ExtraTrees and logistic regression see the mean, minimum, maximum and "
        "deviation of each feature over the bag; the mean map is a support vector machine, on at most 2000 training "
        "bags. The last column is `auto` minus the better of `midam` and ExtraTrees, paired by fold, with the "
        "Nadeau-Bengio corrected 95% interval; that of the mean takes the sets for independent, which those of one "
        "kind are not. LibAUC 2.0.1 (attention) and torchmil (ABMIL) train one scorer with the settings [that their "
        "libraries give](../docs/compare.md#methods), on the real sets; a dash where one was not run.",
        table(["set", *_SHOWN.values(), *_BESIDE.values(), "difference"], rows),
        f"- `auto` minus the better of the two, mean over the real sets: {over:+.3f} (wanted: {_NEAR:+.3f} or more); "
        f"at worst {least:+.3f}, {worst} (wanted: {_BEHIND:+.2f} or more).\n"
        f"- `auto` minus ExtraTrees, mean over the real sets: {over_sets(over_trees)} (wanted: +0.010, the interval "
        "above 0).\n"
        f"- `auto` minus `auto` without its prior: {over_sets(over_even)}. The rule was added when the sets "
        "had been seen; stacking by likelihood was tried beside it, and not kept: bags with one witness lost by it.\n"
        f"- `auto` minus the best single column, chosen for each set afterwards: {np.mean(behind):+.3f} (wanted: "
        f"{_BEST:+.3f} or more).\n"
        f"- `midam` alone minus ExtraTrees: {real[DEFAULT] - real[TREES]:+.3f} (wanted: {_CLOSE:+.2f} or more).\n"
        f"- The one method that the inner folds rank first, in place of the mixture: {real['best']:.3f} for "
        f"{real['auto']:.3f}."
        + "".join(
            f"\n- `midam`, three scorers, minus {_BESIDE[method]}, one, mean over {len(own)} of {len(gaps)} real sets: "
            f"{over_sets(own)}{_over_kinds(by_kind[method])}."
            for method, own in ahead.items()
            if own
        ),
        f"Prior weights, of all kinds: {', '.join(f'{method} {weight:.2f}' for method, weight in prior.items())}.",
    )


def behind_best(found: Mapping[str, NDArray[np.float64]]) -> float:
    """Return the mean AUROC of `auto` minus that of the best single method, known afterwards."""
    means = {method: float(own.mean()) for method, own in found.items() if method not in ("auto", "no prior", "best")}
    return float(found["auto"].mean()) - max(mean for mean in means.values() if np.isfinite(mean))


def frozen_section(judged: Judged, kinds: Mapping[str, Sequence[str]], frozen: Mapping[str, Judged]) -> list[str]:
    """Return `auto` minus trees, and minus the best method, over the kinds of real sets with vectors of images."""
    real = {kind: {data: judged[data] for data in names} for kind, names in kinds.items() if kind != SYNTHETIC}
    over_trees, behind, rows, each = list[float](), list[float](), list[list[str]](), list[float]()
    for kind, of in (*real.items(), *frozen.items()):
        gaps = {data: float((found["auto"] - found[TREES]).mean()) for data, found in of.items()}
        worse = {data: behind_best(found) for data, found in of.items()}
        if kind in frozen:
            shown = ("auto", DEFAULT, TREES, LINEAR)
            rows += [
                [data, *(_cell(float(of[data][name].mean())) for name in shown), f"{gaps[data]:+.3f}"] for data in of
            ]
        each += gaps.values()
        over_trees.append(float(np.mean(list(gaps.values()))))
        behind.append(float(np.mean(list(worse.values()))))
    return section(
        "With vectors of a pretrained network",
        "The trainings with all defaults on vectors of images and slices ([their page](pretrained.md)) join the real "
        "sets, as two kinds more. The weights of `auto` begin there from the prior of all kinds on this page. LibAUC "
        "and torchmil were not run there.",
        table(["set", *(_SHOWN[name] for name in ("auto", DEFAULT, TREES, LINEAR)), "`auto` minus ExtraTrees"], rows),
        f"- `auto` minus ExtraTrees, mean over {len(over_trees)} kinds: {mean_interval(over_trees, bounds=(-1, 1)):+} "
        "(wanted: +0.010, the interval above 0); the interval is over kinds. Over the "
        f"{len(each)} sets, taken for independent: {mean_interval(each, bounds=(-1, 1)):+}.\n"
        f"- `auto` minus the best single method, chosen for each set afterwards, mean over the kinds: "
        f"{np.mean(behind):+.3f} (wanted: {_BEST:+.3f} or more).",
    )


def prior_of(
    areas: Areas,
    sets: Mapping[str, Bags],
    kinds: Mapping[str, Sequence[str]],
    *,
    without: str | None,
    repeats: range,
) -> dict[str, float]:
    """Return the mean weight of each method of `auto`, over the sets of a kind, then over the kinds except one.

    It is at least 0.01, so that a method that these kinds do not take is still tried.
    """
    by_kind: dict[str, list[float]] = defaultdict(list)
    for names in (names for kind, names in kinds.items() if kind != without):
        found = [areas.weights(data, sets[data], repeats=repeats) for data in names]
        for method in found[0]:
            by_kind[method].append(float(np.mean([weights[method] for weights in found if method in weights])))
    return {method: max(_LEAST_PRIOR, float(np.mean(own))) for method, own in by_kind.items()}


def choice_section(
    kinds: Mapping[str, Sequence[str]], chosen: Mapping[str | None, str], gaps: Sequence[float]
) -> list[str]:
    """Return what the rule chooses without each kind and with all, and the default minus the latter for each kind."""
    if chosen[None] == CHOSEN:
        told = "It is the default."
    else:
        told = (
            f"The default minus it, mean over the {len(gaps)} kinds: {mean_interval(gaps, bounds=(-1, 1)):+}. It would "
            "replace the default if this interval were below 0, which was decided when the candidates had been "
            "compared, and before the default was judged."
        )
    return section(
        "What the rule would choose",
        f"The default is '{CHOSEN}'. An earlier run, before the state of attention was relative to a step, chose it "
        "without each of the kinds, so that no kind had a part in the choice that it judges. The rule takes the best "
        "mean over the other kinds, however small its lead.",
        f"Chosen without a kind: {'; '.join(f'{kind}: {chosen[kind]}' for kind in kinds)}.",
        f"Chosen with all kinds: **{chosen[None]}**. {told}",
    )


def candidates_section(
    kinds: Mapping[str, Sequence[str]],
    first: Mapping[str, Mapping[str, float]],
    second: Mapping[str, Mapping[str, float]],
    repeats: range,
    *,
    kept: int,
) -> list[str]:
    """Return the tables of all candidates over one repeat, and of the `kept` best of each choice over all repeats."""

    def lines(found: Mapping[str, Mapping[str, float]]) -> list[str]:
        rows = [
            [name, *(f"{value:.3f}" for value in of.values()), f"{_kinds_mean(of, kinds):.4f}"]
            for name, of in found.items()
        ]
        return table(["candidate", *next(iter(found.values())), "mean of the kinds"], rows)

    return [
        "## The candidates",
        "",
        "Mean AUROC over the folds of one repeat, one member. Other poolings than attention are shown, not chosen. So "
        "many steps are 30 to 400 epochs.",
        "",
        *lines(first),
        "",
        f"The best {kept} of each choice, from which it was made, over {len(repeats)} "
        f"repeat{'s' if len(repeats) > 1 else ''}:",
        "",
        *lines(second),
        "",
    ]


def around_section(
    areas: Areas,
    sets: Mapping[str, Bags],
    kinds: Mapping[str, Sequence[str]],
    found: Mapping[str, Mapping[str, float]],
) -> list[str]:
    """Return the table of further changes to the chosen candidate, with their paired differences to it."""
    if not found:
        return []
    one = range(1)
    base = {data: areas.of(data, bags, CHOSEN, repeats=one) for data, bags in sets.items()}
    lines = []
    for name, of in found.items():
        gaps = [areas.of(data, bags, name, repeats=one) - base[data] for data, bags in sets.items()]
        told = [f"{value:.3f}" for value in of.values()]
        lines.append([name.removeprefix(f"{CHOSEN}, "), *told, f"{_kinds_mean(of, kinds):.4f}", str(over_sets(gaps))])
    return section(
        "Further changes",
        f"Each beside '{CHOSEN}', one repeat, one member. They were tried when the choice stood, and would have taken "
        "its place if the interval of the difference, which is over all sets, had been above 0.",
        table(["beside it", *next(iter(found.values())), "mean of the kinds", "difference"], lines),
    )


def mixtures_section(areas: Areas, sets: Mapping[str, Bags], kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the table of models with different poolings of their members, with paired differences to the default."""
    three = (ATTENTION,) * 3
    base = {data: areas.mixed(data, bags, three, ranks=False) for data, bags in sets.items()}
    lines = []
    for poolings, ranks in ((poolings, ranks) for poolings in (three, *MIXTURES) for ranks in (False, True)):
        found = {data: areas.mixed(data, bags, poolings, ranks=ranks) for data, bags in sets.items()}
        means = {data: float(own.mean()) for data, own in found.items()}
        gap = str(over_sets([found[data] - base[data] for data in sets])) if ranks or poolings != three else "-"
        told = [f"{value:.3f}" for value in means.values()]
        lines.append(
            [", ".join(poolings), "ranks" if ranks else "scores", *told, f"{_kinds_mean(means, kinds):.4f}", gap]
        )
    return section(
        "Members of different poolings",
        f"Three members each, with '{CHOSEN}', over one repeat. The first line is the default, to which the "
        "differences are; what was said of further changes holds here too.",
        table(["members", "mean of", *sets, "mean of the kinds", "difference"], lines),
    )


def _over_kinds(gaps: Mapping[str, Sequence[float]]) -> str:
    """Return the mean over kinds of bags; kinds are independent, but sets of one kind are not."""
    if len(gaps) < 2:
        return ""
    found = mean_interval([float(np.mean(own)) for own in gaps.values()], bounds=(-1.0, 1.0))
    return f"; over the {len(gaps)} kinds {found:+}"


def _kinds_mean(of: Mapping[str, float], kinds: Mapping[str, Sequence[str]]) -> float:
    return float(np.mean([np.mean([of[data] for data in names]) for names in kinds.values()]))


def _cell(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "-"
