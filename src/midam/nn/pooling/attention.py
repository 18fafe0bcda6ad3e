"""Attention: poolings with learned weights of the instances (eq. attpoolf, attpool)."""

from typing import Literal, Self, cast, get_args

import torch
from torch import Tensor, nn

from midam.errors import require_choice
from midam.nn.pooling.base import Pooling, upcast

Weights = Literal["shared", "per-class"]


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
    columns : int
        C.
    attention : {"shared", "per-class"}
        Whether all columns share one set of weights (V = C), or each has a separate w_a on the shared hidden layer, as
        the attention branches of CLAM (Lu et al. 2021). With one column both are the same.

    Examples
    --------
    The weights of the instances of a bag, which sum to 1, and the resulting score:

    >>> from midam.nn import BagScorer
    >>> pooling, e = AttentionPooling(8), torch.randn(5, 8)
    >>> z, v = pooling(e)
    >>> weights = z.softmax(0)
    >>> score = BagScorer(nn.Identity(), pooling)(e, torch.tensor([5])).score
    >>> torch.allclose(score, torch.sigmoid(weights @ v))
    True
    """

    name = "attention"
    weighted = True
    anneals = True

    def __init__(
        self,
        in_features: int,
        *,
        hidden: int | None = None,
        gated: bool = False,
        columns: int = 1,
        attention: Weights = "per-class",
    ) -> None:
        super().__init__(in_features, columns=columns)
        require_choice(get_args(Weights), attention=attention)
        self.branches = columns if attention == "per-class" else 1
        hidden = hidden or in_features
        self.hidden = nn.Linear(in_features, hidden)
        self.gate = nn.Linear(in_features, hidden) if gated else None
        self.attention = nn.Linear(hidden, self.branches)
        self._build_values()

    def _build_values(self) -> None:
        self.value_size = self.columns // self.branches
        self.scorer = nn.Linear(self.in_features, self.columns)

    def without_layers(self) -> Self:
        """Drop all layers: instances are then given as logits and values."""
        if not hasattr(self, "scorer"):  # whole encodings are pooled
            return super().without_layers()
        del self.hidden, self.gate, self.attention, self.scorer
        return self

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M] and values v [M, V] of encodings e [M, D]; of several branches [M, G] and [M, G, V]."""
        z, v = self.attention_logit(e), upcast(self.scorer(e))
        return z, v if self.branches == 1 else v.unsqueeze(-1)

    def attention_logit(self, e: Tensor) -> Tensor:
        """Return the attention logits g [M] or [M, G]."""
        hidden = torch.tanh(self.hidden(e))
        if self.gate is not None:
            hidden = hidden * torch.sigmoid(self.gate(e))
        logit = upcast(self.attention(hidden)).squeeze(-1)
        return logit if self.weight_power == 1 else logit * self.weight_power

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the logits of the bag scores [K] or [K, C]."""
        return r.squeeze(-1)


class GatedAttentionPooling(AttentionPooling):
    """Attention pooling with the gated attention network of Ilse et al. (2018).

    Examples
    --------
    >>> from midam.nn import MLP, BagScorer
    >>> model = BagScorer(MLP(8), GatedAttentionPooling(8, hidden=4))
    >>> model(torch.randn(5, 8), torch.tensor([2, 3])).score.shape
    torch.Size([2])

    Three classes, each with separate attention weights:

    >>> z, v = GatedAttentionPooling(8, columns=3)(torch.randn(5, 8))
    >>> z.shape
    torch.Size([5, 3])
    """

    name = "gated-attention"

    def __init__(
        self, in_features: int, *, hidden: int | None = None, columns: int = 1, attention: Weights = "per-class"
    ) -> None:
        super().__init__(in_features, hidden=hidden, gated=True, columns=columns, attention=attention)


class EmbeddingAttentionPooling(AttentionPooling):
    """Attention pooling of whole encodings, scored by a network that may be nonlinear (eq. attpoolf): V = D.

    Parameters
    ----------
    hidden, gated, columns, attention
        As in `AttentionPooling`. The columns share the hidden layer of the head.
    head_hidden : int, optional
        Width of the head's hidden layer (ReLU); default D. 0 makes the head linear.

    Examples
    --------
    `BagOutput.r` is the encoding of each bag, which the head scores:

    >>> from midam.nn import MLP, BagScorer
    >>> model = BagScorer(MLP(8), EmbeddingAttentionPooling(8, head_hidden=16))
    >>> output = model(torch.randn(5, 8), torch.tensor([2, 3]))
    >>> output.r.shape, output.score.shape
    (torch.Size([2, 8]), torch.Size([2]))
    """

    name = "embedding-attention"

    def __init__(
        self,
        in_features: int,
        *,
        hidden: int | None = None,
        gated: bool = False,
        head_hidden: int | None = None,
        columns: int = 1,
        attention: Weights = "per-class",
    ) -> None:
        self._head_hidden = in_features if head_hidden is None else head_hidden
        super().__init__(in_features, hidden=hidden, gated=gated, columns=columns, attention=attention)

    def _build_values(self) -> None:
        d, width = self.in_features, self._head_hidden
        self.value_size = d
        if width:
            self.head: nn.Module = nn.Sequential(nn.Linear(d, width), nn.ReLU(), nn.Linear(width, self.columns))
        else:
            self.head = nn.Linear(d, self.columns)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M] and values v [M, V] of encodings e [M, D]; of several branches [M, G] and [M, G, V]."""
        z, v = self.attention_logit(e), upcast(e)
        return z, v if self.branches == 1 else v.unsqueeze(1).expand(-1, self.branches, -1)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the logits of the bag scores [K] or [K, C]."""
        # f2 stays in full precision: autocast would round the bag's logit.
        with torch.autocast(r.device.type, enabled=False):
            if self.branches > 1:
                return self._branch_outputs(r)
            out: Tensor = self.head(r)
        return out.squeeze(-1)

    def _branch_outputs(self, r: Tensor) -> Tensor:
        """Return [K, C]: output c of the head for the encoding of branch c, from encodings r [K, C, D]."""
        last = cast(nn.Linear, self.head)
        if isinstance(self.head, nn.Sequential):
            r, last = self.head[:-1](r), cast(nn.Linear, self.head[-1])
        return (r * last.weight).sum(dim=-1) + last.bias
