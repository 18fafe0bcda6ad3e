"""Attention: the instances' weights are learned (eq. attpoolf, attpool)."""

import torch
from torch import Tensor, nn

from midam.nn.pooling.base import Pooling, upcast


class AttentionPooling(Pooling):
    """Attention pooling (eq. attpool): h = sigmoid(w_c . E), E the softmax(g)-weighted mean encoding.

    The linear classifier is moved inside the mean (the second line of eq. attpool), so the value of an instance is the
    single number delta = w_c . e and the tracked state of a bag is two numbers.

    Parameters
    ----------
    hidden : int, optional
        Width m of the attention network g = w_a . tanh(V e); default D.
    gated : bool
        Multiply tanh(V e) by sigmoid(U e) (Ilse et al. 2018).
    """

    name = "attention"
    weighted = True
    anneals = True
    value_size = 1

    def __init__(self, in_features: int, *, hidden: int | None = None, gated: bool = False) -> None:
        super().__init__(in_features)
        hidden = hidden or in_features
        self.hidden = nn.Linear(in_features, hidden)
        self.gate = nn.Linear(in_features, hidden) if gated else None
        self.attention = nn.Linear(hidden, 1)
        self._build_values()

    def _build_values(self) -> None:
        self.scorer = nn.Linear(self.in_features, 1)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        return self.attention_logit(e), upcast(self.scorer(e))

    def attention_logit(self, e: Tensor) -> Tensor:
        """Attention logits g [M]."""
        hidden = torch.tanh(self.hidden(e))
        if self.gate is not None:
            hidden = hidden * torch.sigmoid(self.gate(e))
        logit = upcast(self.attention(hidden)).squeeze(-1)
        return logit if self.weight_power == 1 else logit * self.weight_power

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Bag scores [K]."""
        return torch.sigmoid(self.logit(l, r, n))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K]."""
        return r.squeeze(-1)


class GatedAttentionPooling(AttentionPooling):
    """Attention pooling with the gated attention network of Ilse et al. (2018)."""

    name = "gated-attention"

    def __init__(self, in_features: int, *, hidden: int | None = None) -> None:
        super().__init__(in_features, hidden=hidden, gated=True)


class EmbeddingAttentionPooling(AttentionPooling):
    """Attention pooling of whole encodings, scored by a network that need not be linear (eq. attpoolf): V = D.

    Parameters
    ----------
    hidden, gated
        As of `AttentionPooling`.
    head_hidden : int, optional
        Width of the head's hidden layer (ReLU); default D. 0 makes the head linear.
    """

    name = "embedding-attention"

    def __init__(
        self, in_features: int, *, hidden: int | None = None, gated: bool = False, head_hidden: int | None = None
    ) -> None:
        self._head_hidden = in_features if head_hidden is None else head_hidden
        super().__init__(in_features, hidden=hidden, gated=gated)

    def _build_values(self) -> None:
        d, width = self.in_features, self._head_hidden
        self.value_size = d
        if width:
            self.head: nn.Module = nn.Sequential(nn.Linear(d, width), nn.ReLU(), nn.Linear(width, 1))
        else:
            self.head = nn.Linear(d, 1)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        return self.attention_logit(e), upcast(e)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K]."""
        # f2 stays in full precision: autocast would round the bag's logit.
        with torch.autocast(r.device.type, enabled=False):
            out: Tensor = self.head(r)
        return out.squeeze(-1)
