"""Recompute the numbers of README.md and docs/findings.md from the published trials: `python -m tests.outside.recount`.

Nothing of `midam` or `studies` is imported, so that a fault there cannot agree with itself. A claim is a text of a page
with a slot for each number, and a function that returns these numbers. The text must stand on its page exactly once.
Claims whose trials hold scores need the labels of the data in `$MIDAM_DATA`; without it they are skipped and counted.
"""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.outside import recount_league as league
from tests.outside import recount_metrics as metrics
from tests.outside import recount_scores as scores
from tests.outside.published_trials import ROOT, data_root

PAGES = ("README.md", "docs/findings.md")

_INTERVAL = r" \[[+-]?\d+\.\d+, [+-]?\d+\.\d+\]"
_SLOT = rf"([+-]?\d+(?:\.\d+)?(?:{_INTERVAL})?)"
_FIGURE = re.compile(rf"(?<![\w.,])[+-]?\d+\.\d+(?:{_INTERVAL})?(?![\w.]\d)")
_NO_FIGURES = re.compile(r"```.*?```|`[^`]*`|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)")  # code, pictures, targets of links
# Settings that the pages name: no result.
_SETTINGS = (
    "At the paper's margin, {}, ",
    "gamma0 = {} minus {} is",
    "an AUROC of {} the usual",
)


class Claim(NamedTuple):
    """A text of a page, with `{}` where its numbers stand, and what recomputes them."""

    page: str
    text: str
    numbers: Callable[[], Sequence[str]]
    needs: str = ""  # a folder of $MIDAM_DATA


class Found(NamedTuple):
    """What became of a claim, and where its numbers stand on the folded page."""

    claim: Claim
    printed: tuple[str, ...]
    recomputed: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    verdict: str  # ok, DIFFERS, NOT FOUND ONCE or skipped


def main(arguments: Sequence[str] = ()) -> int:
    """Print each claim, and what is not covered; returns 1 where a number differs."""
    root = Path(arguments[0]) if arguments else ROOT
    pages = {name: folded(root / name) for name in PAGES}
    results = [check(claim, pages[claim.page]) for claim in CLAIMS]
    for one in results:
        now = "" if one.verdict in ("ok", "skipped") else f"; printed: {', '.join(one.printed) or 'no such text'}"
        values = ", ".join(one.recomputed) or f"labels of {one.claim.needs} missing"
        _say(f"{one.verdict:8} {one.claim.page}: {one.claim.text} -> {values}{now}")
    wrong = [one for one in results if one.verdict not in ("ok", "skipped")]
    skipped = sum(one.verdict == "skipped" for one in results)
    _say(
        f"\n{len(results)} claims: {len(wrong)} differ, {skipped} skipped because their data are missing (MIDAM_DATA)."
    )
    for name, text in pages.items():
        spans = [span for one in results if one.claim.page == name and one.verdict == "ok" for span in one.spans]
        figures = list(figures_of(text))
        rest = [figure for figure in figures if not any(low <= figure.start() < high for low, high in spans)]
        _say(f"\n{name}: {len(figures) - len(rest)} of {len(figures)} decimals and intervals recomputed. Not these:")
        for figure in rest:
            _say(f"  {figure.group()}  ... {text[max(0, figure.start() - 60) : figure.start()]}")
    cells = league.differing_cells()
    _say(f"\nrecords/league.md: {len(cells)} cells of its tables differ.{''.join(f' {cell}.' for cell in cells)}")
    return int(bool(wrong or cells))


def check(claim: Claim, text: str) -> Found:
    """Compare the numbers of a claim with those of its folded page."""
    matches = list(_pattern(claim.text).finditer(text))
    if len(matches) != 1:
        return Found(claim, (), (), (), "NOT FOUND ONCE")
    printed = matches[0].groups()
    spans = tuple(matches[0].span(i + 1) for i in range(len(printed)))
    if claim.needs and not (data_root() / claim.needs).exists():
        return Found(claim, printed, (), spans, "skipped")
    recomputed = tuple(claim.numbers())
    return Found(claim, printed, recomputed, spans, "ok" if printed == recomputed else "DIFFERS")


def folded(path: Path) -> str:
    """Return the text of a page with each run of white space as one space."""
    return " ".join(path.read_text("utf-8").split())


def figures_of(text: str) -> Sequence[re.Match[str]]:
    """Return the decimals and intervals of a folded page, without those of code, links, badges and settings."""
    plain = _NO_FIGURES.sub(lambda found: " " * len(found.group()), text)
    settings = [
        m.span(i + 1) for own in _SETTINGS for m in _pattern(own).finditer(text) for i in range(len(m.groups()))
    ]
    return [m for m in _FIGURE.finditer(plain) if not any(low <= m.start() < high for low, high in settings)]


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(_SLOT.join(re.escape(part) for part in text.split("{}")))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


_README, _FINDINGS = PAGES
CLAIMS = [
    Claim(_README, "{} of its {} means lie outside our prediction intervals", metrics.outside_the_paper),
    Claim(_FINDINGS, "over {} splits on {} of 5 at the paper's margin, on {} at margin 1.", metrics.firsts_of_entropy),
    Claim(
        _FINDINGS,
        "At the paper's margin, 0.1, {} of its {} means lie outside our intervals over {} splits: {} of cross-entropy, "
        "{} of DAM and MIDAM,",
        metrics.outside_by_kind,
    ),
    Claim(
        _FINDINGS,
        "At the paper's margin, over {} splits, ahead in {} of {} cases by at most {}, in none after Holm's correction"
        "; at margin 1 they differ by at most {}.",
        metrics.ahead_at_both_margins,
    ),
    Claim(
        _FINDINGS,
        "Over {} splits MIDAM and training on whole bags differ by at most {} in mean AUROC",
        metrics.largest_difference,
    ),
    Claim(
        _FINDINGS,
        "At one, two and four instances per step, seven tasks: {}; with the default, attention at B = 8: {}.",
        metrics.remembering,
    ),
    Claim(
        _FINDINGS,
        "In bags of 5000 digits MIDAM is ahead of mini-batches by {} at B = 1 to 4, in bags of 200 by {}. On MUSK2 and "
        "intensive care it makes no difference",
        metrics.remembering_by_size,
    ),
    Claim(_FINDINGS, "At B = 1 to 4 the relative one is ahead by {}.", metrics.relative_minus_printed),
    Claim(
        _FINDINGS,
        "with smoothed-max MIDAM has {}, mini-batches {}. With one in 500 both are at chance (",
        metrics.needle,
    ),
    Claim(_FINDINGS, "rank as well as ten trainings,** {} and {}, at {} times the cost of one", metrics.ten_labels),
    Claim(_FINDINGS, "MIDAM with smoothed-max is within {} of the best possible ranking", metrics.survival),
    Claim(_FINDINGS, "the default, which finds {} of the positive bags at a specificity of 95%", metrics.screening),
    Claim(
        _FINDINGS,
        "where one instance decides:** {} against {} of trees, on synthetic bags",
        scores.one_instance_decides,
    ),
    Claim(_FINDINGS, "alone has a mean AUROC of {}, extra trees {}.", scores.alone_and_trees, "tabular"),
    Claim(_README, "`midam fit` has a mean AUROC of {}, about as high as the better", scores.auto, "tabular"),
    Claim(
        _FINDINGS,
        "the default of `midam fit`, has {}, about as much as the better of MIDAM and trees: {} (",
        scores.auto_minus_better,
        "tabular",
    ),
    Claim(_FINDINGS, "On volumes MIDAM has {}, mini-batches {}. As the", scores.trained_on, scores.VOLUMES),
    Claim(_FINDINGS, "on colon and {} against", scores.auto_on_vectors_of_volumes, scores.VOLUMES),
]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
