"""The model beside its baseline: a table, the verdict, and a box where the baseline is ahead."""

from collections.abc import Mapping
from typing import Any

from midam.evaluate.proportions import Estimate
from midam.report.beside import covariate_verdict, verdict_words
from midam.report.html.markup import Cell, Column, Html, box, estimate, join, paragraph, table
from midam.report.html.study import NAMES, Report, Study

_SAYS = (
    "The baseline is plain: a few statistics of each bag in 500 trees, trained on the same training bags, with nothing "
    "tuned. The interval is that of the difference on the same bags, which knows nothing of other splits and seeds"
)


def beside_baseline(study: Report) -> Html:
    """AUROC of the model and of the baseline on the same bags, and their difference; nothing on other data."""
    baseline = study.baseline
    if baseline is None:
        return Html("")
    found = baseline.found
    if found is None:
        why = baseline.note or "this run was trained with `--no-baseline`"
        return paragraph(f"No baseline stands beside the model: {why}.", note=True)
    part, name = NAMES[found["part"]], found["method"]
    bags, rests = len(study.parts[found["part"]]), "groups" if "groups" in found["difference_method"] else "bags"
    area = estimate(_figure(found, "auroc", bags), key="baseline.auroc")
    gap = estimate(_figure(found, "difference", bags), form="+.3f", key="baseline.difference")
    model = estimate(_figure(baseline.model, "auroc", bags))
    rows: list[list[Cell]] = [["this model", model, None], [f"baseline: {name}", area, gap]]
    heads = [Column("method"), Column("AUROC", True), Column("model minus baseline", True)]
    words = f"{_sentence(verdict_words(found))} {_SAYS}; its independent units are {rests}."
    hidden = "" if baseline.caution is None else f" {_sentence(baseline.caution)}"
    body = [table(f"Beside a plain baseline, on the same {bags} {part} bags", heads, rows)]
    body.append(paragraph(words + hidden, note=True))
    if baseline.advice is not None:
        body.append(box("The baseline is better", paragraph(_sentence(baseline.advice)), warn=True))
    return join(body)


def beside_covariates(study: Study) -> Html:
    """AUROC of the model and of its covariates alone on the same bags; nothing of a run without covariates."""
    found = study.covariates
    if found is None:
        return Html("")
    names = ", ".join(found["names"])
    alone = found["alone"]
    if alone is None:
        return paragraph(f"The score takes the covariates {names}, which were not tested alone.", note=True)
    part, bags = NAMES[alone["part"]], alone["bags"]
    area = estimate(_figure(alone, "auroc", bags), key="covariates.alone.auroc")
    gap = estimate(_figure(alone, "difference", bags), form="+.3f", key="covariates.alone.difference")
    heads = [Column("method"), Column("AUROC", True), Column("this model minus it", True)]
    rows: list[list[Cell]] = [[f"{names} alone: {alone['method']}", area, gap]]
    words = (
        f"The score takes {names} beside the instances. On these bags, {covariate_verdict(alone)}. The interval is "
        "that of the difference on the same bags."
    )
    title = f"What the instances add to the covariates, on the same {bags} {part} bags"
    return join([table(title, heads, rows), paragraph(words, note=True)])


def _figure(found: Mapping[str, Any], name: str, bags: int) -> Estimate:
    low, high = found[f"{name}_ci95"]
    return Estimate(found[name], low, high, bags)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
