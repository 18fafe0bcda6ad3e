"""Why a bag got its score: its instances ranked, drawn, exported, and the ranking tested."""

from midam.explain.faithful import Faithfulness
from midam.explain.scores import Explanation, explain_bag

__all__ = ["Explanation", "Faithfulness", "explain_bag"]
