"""`python -m studies figure-budget`: MIDAM on images with a fixed number of patches in a step, of few or many bags."""

import dataclasses
from collections.abc import Mapping

from midam.data.bags import Bags
from studies.images.curves import ImageArm, ImageCurve, draw_curves, load_bags, write_curve_page
from studies.images.design import Recipe, choose_design, fixed_settings
from studies.options import StudyOptions
from studies.page import figure_path
from studies.paper_tables import label
from studies.registry import as_study

NAME = "figure-budget"
METHODS = ("midam-printed-smx", "midam-printed-att")
SETS = ("breast", "colon")
_SHOWS = (
    "AUROC of validation and of test images along the training of MIDAM, with the patches of a step fixed: S bags "
    "(half of them positive) with B patches each, S x B the same. All curves of a panel encode about the same number "
    "of patches in as many steps. The paper finds that S = 4, B = 64 converges fastest."
)


@dataclasses.dataclass(frozen=True)
class Budget:
    """Batches of one set."""

    bags: tuple[int, ...]  # S of the curves, positive and negative bags together
    patches: int  # S x B
    recipe: Recipe  # Settings, with the epochs of a curve with `at` bags in a step
    at: int = 16  # S to which the epochs belong; other curves have the same number of steps

    def arms(self) -> list[ImageArm]:
        """Return the curves of both poolings."""
        return [
            ImageArm(self.name(method, bags), method, self._recipe(bags)) for method in METHODS for bags in self.bags
        ]

    def name(self, method: str, bags: int) -> str:
        """Return the name of a curve."""
        return f"{label(method)}, {self.batch(bags)}"

    def batch(self, bags: int) -> str:
        """Return the name of a batch."""
        return f"S = {bags}, B = {self.patches // bags}"

    def _recipe(self, bags: int) -> Recipe:
        epochs = max(1, round(self.recipe.epochs * bags / self.at))
        # With four bags in a step, an epoch has many steps, so each epoch is scored.
        every = max(1, round(self.recipe.score_every * bags / self.at))
        return dataclasses.replace(
            self.recipe, bags=bags // 2, instances=self.patches // bags, epochs=epochs, score_every=every
        )


def budgets(options: StudyOptions) -> dict[str, Budget]:
    """Return the batches of each set in the size of the options."""
    size = choose_design(options).name
    if size in ("quick", "smaller"):
        tiny = Recipe(METHODS, (), epochs=2, instances=4, folds=1, lrs=(0.01,), margins=(0.1,), search=1.0)
        return dict.fromkeys(SETS, Budget((2, 4), 16, tiny, at=4))
    if size == "small":
        breast, colon = (fixed_settings(name, search=1.0, folds=1) for name in SETS)
        return {
            "breast": Budget((4, 8, 16), 256, Recipe(METHODS, (), epochs=12, instances=16, score_every=3, **breast)),
            "colon": Budget((4, 8, 16, 32), 64, Recipe(METHODS, (), epochs=6, instances=4, score_every=2, **colon)),
        }
    # 32 bags in a step are almost all breast training images.
    recipe = Recipe(METHODS, (), epochs=60, instances=16, margins=(0.1,), folds=1, search=1.0, score_every=4)
    return {"breast": Budget((4, 8, 16, 32), 256, recipe), "colon": Budget((8, 16, 32, 64), 256, recipe)}


@as_study(
    "MIDAM on images at one budget of patches a step: few bags with many, or many bags with few",
    takes=("size", "device"),
    store="image-curves",
)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    study(options, load_bags(SETS, options))


def study(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Run the study on these sets."""
    own = budgets(options)
    arms = {name: own[name].arms() for name in sets}

    def body(found: Mapping[tuple[str, str], ImageCurve]) -> list[str]:
        return [line for name in sets for line in _panels(options, name, own[name], found)]

    title = "One budget: few bags with many patches, or many with few"
    write_curve_page(options, NAME, arms, sets, title=title, shows=_SHOWS, body=body)


def _panels(options: StudyOptions, name: str, budget: Budget, found: Mapping[tuple[str, str], ImageCurve]) -> list[str]:
    """Draw the figure of a set; return its lines of the page."""
    panels = {
        f"{name}, {label(method)}": {budget.batch(bags): found[name, budget.name(method, bags)] for bags in budget.bags}
        for method in METHODS
    }
    path = figure_path(options, NAME, name)
    draw_curves(path, panels, xlabel="Patches encoded", order=[budget.batch(bags) for bags in budget.bags])
    rates = f"learning rate {budget.recipe.lrs[0]:g}"
    if len(budget.recipe.lrs) > 1:
        rates = f"learning rate among {', '.join(f'{lr:g}' for lr in budget.recipe.lrs)} by validation AUROC at the end"
    return [
        f"![Validation and test AUROC along the training on {name}]({path.name})",
        "",
        f"{name}: {budget.patches} patches a step, margin {budget.recipe.margins[0]:g}, {rates}; folds that were run: "
        f"{budget.recipe.folds}, disjoint by group.",
        "",
    ]
