"""Pages of labels with an order: grades, and numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate.proportions import auroc_estimate
from midam.evaluate.ranking import Pairs
from midam.report import plot_order
from midam.report.figures import evenly
from midam.report.page.classes import decisions
from midam.report.page.render import Number, Section, Table
from midam.report.page.target_page import FEW, UNDECIDED, Cells, ScoredPart, TargetPage
from midam.report.words import signed
from midam.targets import Target

_PARTS = 5
_ON_AVERAGE = "Calibration: are predicted numbers right on average?"


class GradesPage(TargetPage):
    """Page of grades, the lowest first."""

    of_target = "ordinal"

    @classmethod
    def draw(cls, folder: Path, target: Target, part: ScoredPart) -> None:
        """Plot the scores of each grade with the cuts between grades."""
        options: dict[str, Any] = {"names": target.names, "grades": part.values[:, 0]}
        plot_order.plot_grade_scores(folder / "scores.png", **options, cuts=part.fitted.get("cuts", ()), **part.shown)

    def counted(self) -> str:
        """Return the counts of bags and grades."""
        return self.tested.counted(f" of {plural(len(np.unique(self.codes)), 'grade')}")

    def second(self) -> dict[str, Any] | None:
        """Return how many bags get their true grade, and how many this or a neighboring grade."""
        if "confusion" not in self.summary:
            return None
        matrix = np.asarray(self.summary["confusion"])
        below, correct, above = (int(np.trace(matrix, offset)) for offset in (-1, 0, 1))
        return {"correct": correct, "near": below + correct + above}

    def facts(self, values: NDArray[Any]) -> dict[str, Any]:
        """Return the number of bags of each grade."""
        return self.counts(values)

    def sections(self) -> list[Section]:
        """Return the sections on ranking and predicted grades."""
        tested, names, predicted = self.tested, self.target.names, self.tested.predicted
        figure = plot_order.plot_grade_scores(
            names=names, summary=self.summary, grades=self.codes, scores=tested.scores, ids=tested.ids.tolist()
        )
        ranking = {"figure": figure, **_shown(tested.scores), "steps": self._steps()}
        ranking["method"] = self.summary["c_index_method"]
        content: dict[str, Any] = {"missing": UNDECIDED}
        if predicted is not None and "confusion" in self.summary:
            content = decisions(self, self.codes, predicted, kind="grade")
        first = Section("ranking", "Ranking: do higher grades score higher?", "grades.html", ranking)
        return [first, Section("operating", "Decisions: which grade is predicted", "classes.html", content)]

    def _steps(self) -> Table:
        """Return the AUROC of each grade and higher grades against lower grades."""
        rows: list[list[Any]] = []
        for grade, name in list(enumerate(self.target.names))[1:]:
            above = self.codes >= grade
            estimate = auroc_estimate(above, self.tested.scores, groups=self.tested.groups, resamples=1000)
            rows.append([f"{name} or higher", int(above.sum()), int((~above).sum()), estimate])
        return Table("Ranking at each step of the grades", ["against lower ones", "bags", "lower", "AUROC"], rows)

    def errors(self) -> Section | None:
        """Return the section of the bags whose grade is furthest from the predicted grade."""
        if self.tested.predicted is None:
            return None
        names, called, scores = self.target.names, self.tested.predicted.astype(np.int64), self.tested.scores

        def cells(i: int) -> list[Any]:
            return [names[self.codes[i]], names[called[i]], Number(float(scores[i]))]

        return _off_both_ways(self, self.codes - called, scores, ["grade", "predicted", "score"], cells)

    def rarest(self) -> tuple[int, str] | None:
        """Return how many bags the rarest grade has, and its name."""
        counts = np.bincount(self.codes, minlength=len(self.target.names))
        least = int(counts.argmin())
        return (int(counts[least]), self.target.names[least]) if counts[least] < FEW else None


class NumbersPage(TargetPage):
    """Page of a number."""

    of_target = "continuous"

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

    def second(self) -> dict[str, Any] | None:
        """Return the mean error of the prediction and of a constant."""
        if self.summary.get("mae") is None:
            return None
        return {"name": self.target.names[0], "error": self.summary["mae"], "constant": self.summary["mae_constant"]}

    def facts(self, values: NDArray[Any]) -> dict[str, Any]:
        """Return minimum, quartiles and maximum."""
        heads = ("lowest", "quarter", "median", "three quarters", "highest")
        return {head: Number(x, ".3g") for head, x in zip(heads, np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist())}

    def sections(self) -> list[Section]:
        """Return the sections on ranking, predicted numbers and calibration."""
        tested, summary, name = self.tested, self.summary, self.target.names[0]
        figure = plot_order.plot_number_scores(
            name=name, summary=summary, values=self.numbers, scores=tested.scores, ids=tested.ids.tolist()
        )
        pairs = Pairs.of_numbers(self.numbers).total
        ranking = {"figure": figure, "name": name, **_shown(self.numbers), "pairs": pairs, "summary": summary}
        title, predicted = "Decisions: which number is predicted", tested.predicted
        first = Section("ranking", "Ranking: do larger numbers score higher?", "numbers.html", ranking)
        if predicted is None or "mae" not in summary:
            return [first, Section("operating", title, "numbers.html", {"missing": UNDECIDED})]
        calibration = Section("calibration", _ON_AVERAGE, "numbers.html", self._calibration(predicted))
        return [first, Section("operating", title, "numbers.html", self._predictions(predicted)), calibration]

    def _predictions(self, predicted: NDArray[np.float64]) -> dict[str, Any]:
        name = self.target.names[0]
        figure = plot_order.plot_predicted_numbers(name, self.numbers, predicted, self.tested.ids)
        half, most = np.quantile(np.abs(predicted - self.numbers), (0.5, 0.9)).tolist()
        content = {"missing": None, "figure": figure, "name": name, "half": half, "most": most}
        return {**content, **_shown(self.numbers), "summary": self.summary}

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
        heads = ["predicted", "bags", "mean predicted", "mean true", "mean error"]
        table = Table("Bags by the predicted number", heads, rows)
        return {"curve": plot_order.plot_number_reliability(dots), "table": table}

    def errors(self) -> Section | None:
        """Return the section of the bags with the largest errors."""
        predicted = self.tested.predicted
        if predicted is None:
            return None
        off = predicted - self.numbers

        def cells(i: int) -> list[Any]:
            shown = ((self.numbers[i], ".4g"), (predicted[i], ".4g"), (off[i], "+.4g"))
            return [Number(float(value), form) for value, form in shown]

        return _off_both_ways(self, -off, np.zeros_like(off), ["true", "predicted", "off by"], cells)


def _off_both_ways(
    page: TargetPage, gaps: NDArray[Any], scores: NDArray[np.float64], heads: Sequence[str], cells: Cells
) -> Section:
    """Return the section of the bags with the largest gaps [N], true minus predicted; of equal gaps, by the score."""
    tables = []
    for sign, title in ((1, "Predicted too low"), (-1, "Predicted too high")):
        wrong = np.flatnonzero(sign * gaps > 0)
        order = wrong[np.lexsort((sign * scores[wrong], -sign * gaps[wrong]))]
        tables.append(page.error_table(title, order, heads, cells))
    return page.error_section(*tables)


def _shown(values: NDArray[np.float64]) -> dict[str, int]:
    """Return the numbers of shown bags and of all bags of a figure."""
    return {"shown": len(evenly(values)), "count": len(values)}
