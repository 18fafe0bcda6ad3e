"""Explain the score of a bag: rank, draw and export its instances."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.explain.annotations import label_by_masks as label_by_masks
    from midam.explain.calls import why as why
    from midam.explain.explanation import Explanation as Explanation
    from midam.explain.explanation import TellingFeature as TellingFeature
    from midam.explain.explanation import explain_bag as explain_bag
    from midam.explain.picture import draw_explanation as draw_explanation
    from midam.explain.run import ExplainOptions as ExplainOptions
    from midam.explain.run import explain_bags as explain_bags

__all__, __getattr__, __dir__ = exports(__name__)
