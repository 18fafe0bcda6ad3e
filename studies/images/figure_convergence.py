"""`python -m studies figure-convergence`: validation and test AUROC along the epochs on images, MIDAM and DAM (MB)."""

from collections.abc import Mapping

from midam.data.bags import Bags
from studies.images.curves import ImageArm, ImageCurve, draw_curves, load_bags, write_curve_page
from studies.images.design import Recipe, choose_design, fixed_settings
from studies.options import StudyOptions
from studies.page import figure_path
from studies.paper_tables import label
from studies.registry import as_study

NAME = "figure-convergence"
METHODS = ("midam-printed-smx", "dam-mb-smx", "midam-printed-att", "dam-mb-att")
POOLINGS = ("smx", "att")
SETS = ("breast", "colon")
_LEAST_GAIN = 0.01
_SHOWS = (
    "AUROC of validation and of test images (whole bags) along the training: MIDAM, which tracks the pooling of each "
    "bag, beside DAM (MB), which pools the sampled patches alone; both draw the same patches in the same order. The "
    "paper shows training and test AUROC and reads off that MIDAM converges faster and higher."
)


def recipes(options: StudyOptions) -> dict[str, Recipe]:
    """Return the recipe of each set in the size of the options."""
    size = choose_design(options).name
    if size in ("quick", "smaller"):
        tiny = Recipe(METHODS, (), epochs=2, instances=4, folds=1, lrs=(0.01,), margins=(0.1,), search=1.0, bags=2)
        return dict.fromkeys(SETS, tiny)
    if size == "small":
        breast, colon = (fixed_settings(name, search=1.0, folds=1) for name in SETS)
        return {
            "breast": Recipe(METHODS, (), epochs=20, instances=16, score_every=4, **breast),
            "colon": Recipe(METHODS, (), epochs=24, instances=4, score_every=3, **colon),
        }
    longest = 60 if size == "full" else 100
    return {
        "breast": Recipe(METHODS, (), epochs=100, instances=16, margins=(0.1,), folds=3, search=1.0, score_every=5),
        "colon": Recipe(METHODS, (), epochs=longest, instances=4, margins=(0.1,), folds=3, search=1.0, score_every=5),
    }


@as_study(
    "validation and test AUROC along the epochs on images, MIDAM and DAM (MB)",
    takes=("size", "device"),
    store="image-curves",
)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    study(options, load_bags(SETS, options))


def study(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Run the study on these sets."""
    own = recipes(options)
    arms = {name: [ImageArm(label(method), method, own[name]) for method in METHODS] for name in sets}

    def body(found: Mapping[tuple[str, str], ImageCurve]) -> list[str]:
        panels = {
            f"{name}, {pooling}": {
                label(method): found[name, label(method)] for method in METHODS if method.endswith(pooling)
            }
            for name in sets
            for pooling in POOLINGS
        }
        path = figure_path(options, NAME)
        draw_curves(path, panels, xlabel="Epoch", order=[label(method) for method in METHODS])
        note = _note({name: own[name] for name in sets})
        verdicts = [_verdict(name, pooling, found) for name in sets for pooling in POOLINGS]
        return [f"![Validation and test AUROC along the epochs]({path.name})", "", note, "", *verdicts, ""]

    title = "Convergence on images: MIDAM and DAM (MB)"
    write_curve_page(options, NAME, arms, sets, title=title, shows=_SHOWS, body=body)


def _verdict(name: str, pooling: str, found: Mapping[tuple[str, str], ImageCurve]) -> str:
    """Return the result on the paper's claim: the end for 'higher', the mean of all points for 'faster'."""
    names = [label(f"{method}-{pooling}") for method in ("midam-printed", "dam-mb")]
    ours, theirs = (found[name, method].test.mean(axis=0) for method in names)
    gains = {"at the end": ours[-1] - theirs[-1], "on the mean of all points": ours.mean() - theirs.mean()}
    shown = "; ".join(f"{gain:+.3f} {where}" for where, gain in gains.items())
    above = [gain >= _LEAST_GAIN for gain in gains.values()]
    verdict = "faster and higher here" if all(above) else "not faster and higher here"
    return f"- **{name}, {pooling}**: MIDAM minus DAM (MB), test AUROC: {shown}: {verdict}."


def _note(own: Mapping[str, Recipe]) -> str:
    folds = ", ".join(f"{name}: {recipe.folds}" for name, recipe in own.items())
    settings = "; ".join(_setting(name, recipe) for name, recipe in own.items())
    return (
        f"Each curve is the mean over the folds that were run ({folds}), disjoint by group. {settings}. Differences "
        "are not tested here: `python -m studies table3` compares the methods in pairs. Below, the paper's claim "
        f"holds where MIDAM is {_LEAST_GAIN:g} above both at the end (higher) and on the mean of all points (faster). "
        "'Training' is of the scores at the points that the training used (MIDAM: tracked), not of whole bags."
    )


def _setting(name: str, recipe: Recipe) -> str:
    rates = f"learning rate {recipe.lrs[0]:g}"
    if len(recipe.lrs) > 1:
        rates = f"learning rate chosen by validation AUROC at the end among {', '.join(f'{lr:g}' for lr in recipe.lrs)}"
    return f"{name}: {recipe.bags} + {recipe.bags} bags, B = {recipe.instances}, margin {recipe.margins[0]:g}, {rates}"
