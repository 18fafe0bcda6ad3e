"""Pages of labels with an order: grades, and numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate.intervals import auroc_interval
from midam.evaluate.proportions import Estimate
from midam.evaluate.ranking import Pairs, auroc
from midam.report import plot_order
from midam.report.figures import evenly
from midam.report.page.classes import decisions
from midam.report.page.render import Number, Section, Table, Tile, drawing
from midam.report.page.target_page import FEW, UNDECIDED, ScoredBags, ScoredPart, TargetPage, joined, named_counts
from midam.report.words import signed
from midam.targets import Target

_PARTS = 5
_CUTS = (
    "The cuts of the score between grades maximize the quadratic kappa of the validation bags; a bag gets the grade of "
    "the last cut that its score has reached. Kappa counts an error of two grades four times as much as an error of "
    "one grade."
)
_ON_AVERAGE = "Calibration: are predicted numbers right on average?"
_TOO = ((1, "Predicted too low"), (-1, "Predicted too high"))


class GradesPage(TargetPage):
    """Page of grades, the lowest first."""

    of_target = "ordinal"
    label = "each grade"
    claim = ": of two bags of different grades, the one with the higher grade had the higher score"
    pairs = "such pairs"
    validates = "cuts between grades"

    @classmethod
    def draw(cls, folder: Path, target: Target, part: ScoredPart) -> None:
        """Plot the scores of each grade with the cuts between grades."""
        options: dict[str, Any] = {"names": target.names, "grades": part.values[:, 0]}
        plot_order.plot_grade_scores(folder / "scores.png", **options, cuts=part.fitted.get("cuts", ()), **part.shown)

    @property
    def flow_heads(self) -> Sequence[str]:  # type: ignore[override]
        """The grades."""
        return self.target.names

    def counted(self) -> str:
        """Return the counts of bags and grades."""
        return self.tested.counted(f" of {plural(len(np.unique(self.codes)), 'grade')}")

    def second(self) -> str | None:
        """Return a sentence on how many bags get their true grade or a neighboring grade."""
        if "confusion" not in self.summary:
            return None
        matrix = np.asarray(self.summary["confusion"])
        near = sum(int(np.trace(matrix, offset)) for offset in (-1, 0, 1))
        return (
            f"By cuts chosen on validation bags, {np.trace(matrix)} of {len(self.tested)} bags got their true grade, "
            f"and {near} the true or a neighboring grade."
        )

    def tiles(self) -> list[Tile]:
        """Return C-index, kappa, accuracy and tau."""
        kappa = self.tile("Kappa (quadratic)", "quadratic_kappa", "1 is perfect, 0 chance")
        tau = self.tile("Kendall's tau-b", "kendall_tau", "0 is chance")
        return [self.metric_tile(), kappa, self.tile("Accuracy", "accuracy"), tau]

    def card_lines(self, parts: Sequence[ScoredBags]) -> list[str]:
        """Return the number of bags of each grade."""
        return named_counts(joined(parts)[:, 0], self.target.names, plural(len(self.target.names), "grade"))

    def flow_cells(self, bags: ScoredBags) -> list[Any]:
        """Return the number of bags of each grade."""
        return list(np.bincount(bags.values[:, 0].astype(np.int64), minlength=len(self.target.names)).tolist())

    def sections(self) -> list[Section]:
        """Return the sections on ranking and predicted grades."""
        tested, names, predicted = self.tested, self.target.names, self.tested.predicted
        bags: dict[str, Any] = {"grades": self.codes, "scores": tested.scores, "ids": tested.ids.tolist()}
        figure = plot_order.plot_grade_scores(names=names, summary=self.summary, **bags)
        chart = drawing(figure, "Score of each bag, by grade.", "Score by grade.", _some(tested.scores))
        ranking = {"figure": chart, "table": self._steps(), "note": "", "method": self.summary["c_index_method"]}
        content: dict[str, Any] = dict.fromkeys(("opening", "chart", "pairs", "matrix", "each"))
        content["missing"] = UNDECIDED
        if predicted is not None and "confusion" in self.summary:
            content = decisions(self, _CUTS, self.codes, predicted, kind="grade")
        first = Section("ranking", "Ranking: do higher grades score higher?", "ordered.html", ranking)
        return [first, Section("operating", "Decisions: which grade is predicted", "classes.html", content)]

    def _steps(self) -> Table:
        """Return the AUROC of each grade and higher grades against lower grades."""
        rows: list[list[Any]] = []
        for grade, name in list(enumerate(self.target.names))[1:]:
            above, estimate = self.codes >= grade, None
            if above.any() and not above.all():
                bounds = auroc_interval(above, self.tested.scores, groups=self.tested.groups, resamples=1000)
                estimate = Estimate(auroc(above, self.tested.scores), bounds.low, bounds.high, above.size)
            rows.append([f"{name} or higher", int(above.sum()), int((~above).sum()), estimate])
        return Table("Ranking at each step of the grades", ["against lower ones", "bags", "lower", "AUROC"], rows)

    def errors(self) -> Section | None:
        """Return the section of the bags whose grade is furthest from the predicted grade."""
        if self.tested.predicted is None:
            return None
        names, called, tables = self.target.names, self.tested.predicted.astype(np.int64), []

        def cells(i: int) -> list[Any]:
            return [names[self.codes[i]], names[called[i]], Number(float(self.tested.scores[i]))]

        for sign, title in _TOO:
            gap = sign * (self.codes - called)
            wrong = np.flatnonzero(gap > 0)
            order = wrong[np.lexsort((sign * self.tested.scores[wrong], -gap[wrong]))]
            tables.append(self.error_table(title, order, ["grade", "predicted", "score"], cells))
        return self.error_section("Misclassified bags, the most grades off first.", *tables)

    def few(self) -> list[str]:
        """Return a caution if a grade is rare, in addition to the warnings of the summary."""
        counts = np.bincount(self.codes, minlength=len(self.target.names))
        least, name = int(counts.min()), self.target.names[int(counts.argmin())]
        words = f"The rarest grade, {name}, has {plural(least, 'bag')}: figures that involve it rest on few bags."
        return [*super().few(), *([words] if least < FEW else [])]

    shift = (
        "Kappa, accuracy and C-index depend on the shares of the grades: neighboring grades are harder to tell apart "
        "than distant ones.",
    )


class NumbersPage(TargetPage):
    """Page of a number."""

    of_target = "continuous"
    label = "the number"
    claim = ": of two bags, the one with the larger number had the higher score"
    pairs = "pairs of different numbers"
    validates = "numbers for scores"
    flow_heads = ("lowest", "quarter", "median", "three quarters", "highest")

    @classmethod
    def draw(cls, folder: Path, target: Target, part: ScoredPart) -> None:
        """Plot the scores against the numbers, with the predicted number of each score."""
        knots = (part.fitted["scores"], part.fitted["numbers"]) if part.fitted else None
        options: dict[str, Any] = {"name": target.names[0], "values": part.values[:, 0], "knots": knots}
        plot_order.plot_number_scores(folder / "scores.png", **options, **part.shown)

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The true numbers [N]."""
        return self.tested.values[:, 0]

    def second(self) -> str | None:
        """Return a sentence on the mean error of the prediction."""
        error, constant = self.summary.get("mae"), self.summary.get("mae_constant")
        if error is None or constant is None:
            return None
        median = f"predicting the median for all bags would be off by {signed(constant)}"
        return f"The predicted {self.target.names[0]} was off by {signed(error)} on average; {median}."

    def tiles(self) -> list[Tile]:
        """Return C-index, rank correlations and mean error."""
        constant = self.summary.get("mae_constant")
        below = None if constant is None else f"{signed(constant)} by a constant"
        return [
            self.metric_tile(),
            self.tile("Spearman's rho", "spearman", "1 is perfect, 0 chance"),
            self.tile("Kendall's tau-b", "kendall_tau", "0 is chance"),
            self.tile("Mean error", "mae", below, form=".3g"),
        ]

    def card_lines(self, parts: Sequence[ScoredBags]) -> list[str]:
        """Return median and range."""
        low, middle, high = np.quantile(joined(parts), (0, 0.5, 1)).tolist()
        return [f"median {signed(middle)}", f"{signed(low)} to {signed(high)}"]

    def flow_cells(self, bags: ScoredBags) -> list[Any]:
        """Return minimum, quartiles and maximum."""
        return [Number(value, ".3g") for value in np.quantile(bags.values, (0, 0.25, 0.5, 0.75, 1)).tolist()]

    def sections(self) -> list[Section]:
        """Return the sections on ranking, predicted numbers and calibration."""
        tested, summary, name = self.tested, self.summary, self.target.names[0]
        bags: dict[str, Any] = {"values": self.numbers, "scores": tested.scores, "ids": tested.ids.tolist()}
        figure = plot_order.plot_number_scores(name=name, summary=summary, **bags)
        numbers = [
            ("C-index (1 is perfect, 0.5 chance)", Number(summary["c_index"])),
            ("Pairs of different numbers", f"{Pairs.of_numbers(self.numbers).total:,.0f}"),
            ("Kendall's tau-b, which corrects for ties", Number(summary["kendall_tau"])),
            ("Spearman's rank correlation", Number(summary["spearman"])),
        ]
        chart = drawing(figure, f"Score against {name}.", "Score and number.", _dot(self.numbers))
        ranking = {"figure": chart, "table": None, "numbers": numbers, "note": "", "method": summary["c_index_method"]}
        title, predicted = "Decisions: which number is predicted", tested.predicted
        first = Section("ranking", "Ranking: do larger numbers score higher?", "ordered.html", ranking)
        if predicted is None or "mae" not in summary:
            return [first, Section("operating", title, "numbers.html", {"missing": UNDECIDED})]
        calibration = Section("calibration", _ON_AVERAGE, "ordered.html", self._calibration(predicted))
        return [first, Section("operating", title, "numbers.html", self._predictions(predicted)), calibration]

    def _predictions(self, predicted: NDArray[np.float64]) -> dict[str, Any]:
        name = self.target.names[0]
        figure = plot_order.plot_predicted_numbers(name, self.numbers, predicted, self.tested.ids)
        chart = drawing(figure, f"Predicted against true {name}.", "Predicted and true.", _dot(self.numbers))
        error, off = float(self.summary["mae"]), np.abs(predicted - self.numbers)
        constant = float(self.summary["mae_constant"])
        numbers = [
            ("Mean absolute error (MAE)", Number(error, ".4g", "mae")),
            ("MAE of a constant, the median of these bags", Number(constant, ".4g", "mae_constant")),
            ("Share of this error that the model avoids", Number(None if constant == 0 else 1 - error / constant)),
            ("Half of the bags are off by at most", Number(float(np.quantile(off, 0.5)), ".4g")),
            ("Nine of ten are off by at most", Number(float(np.quantile(off, 0.9)), ".4g")),
        ]
        return {"missing": None, "figure": chart, "numbers": numbers, "caption": f"Errors of the predicted {name}"}

    def _calibration(self, predicted: NDArray[np.float64]) -> dict[str, Any]:
        """Return the mean true numbers of bags with similar predicted numbers."""
        edges = np.unique(np.quantile(predicted, np.arange(1, _PARTS) / _PARTS))
        place, rows, dots = np.searchsorted(edges, predicted, side="left"), list[list[Any]](), []
        for part in np.unique(place).tolist():
            inside = place == part
            true, guess = self.numbers[inside], predicted[inside]
            low, high = np.quantile(true, (0.1, 0.9)).tolist()
            dots.append((float(guess.mean()), float(true.mean()), low, high))
            ends = [signed(float(end)) for end in (guess.min(), guess.max())]
            means = [Number(x, ".4g") for x in (*dots[-1][:2], float(np.abs(guess - true).mean()))]
            rows.append([" to ".join(dict.fromkeys(ends)), int(inside.sum()), *means])
        alt = "Mean of the true numbers against the mean of the predicted numbers."
        heads = ["predicted", "bags", "mean predicted", "mean true", "mean error"]
        table = Table("Bags by the predicted number", heads, rows)
        return {"figure": drawing(plot_order.plot_number_reliability(dots), alt, "Reliability."), "table": table}

    def errors(self) -> Section | None:
        """Return the section of the bags with the largest errors."""
        predicted, tables = self.tested.predicted, []
        if predicted is None:
            return None
        off = predicted - self.numbers

        def cells(i: int) -> list[Any]:
            shown = ((self.numbers[i], ".4g"), (predicted[i], ".4g"), (off[i], "+.4g"))
            return [Number(float(value), form) for value, form in shown]

        for sign, title in _TOO:
            wrong = np.flatnonzero(-sign * off > 0)
            order = wrong[np.argsort(-np.abs(off[wrong]), kind="stable")]
            tables.append(self.error_table(title, order, ["true", "predicted", "off by"], cells))
        return self.error_section("The bags whose predicted number is the furthest off.", *tables)

    shift = (
        "Among bags with more similar numbers, the C-index is lower. Predicted numbers are pulled toward the numbers "
        "of the validation bags.",
    )


def _dot(values: NDArray[np.float64]) -> str:
    """Return a sentence on the bags that a scatter plot shows."""
    return f"A dot is a bag:{some}" if (some := _some(values)) else f"A dot is a bag, n = {len(values)}."


def _some(values: NDArray[np.float64]) -> str:
    count = len(evenly(values))
    return "" if count == len(values) else f" {count} of {len(values)} bags, evenly along their order."
