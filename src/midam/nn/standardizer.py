"""The standardizer: fitted on training instances only, stored in the model."""

import math
import warnings
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from midam.errors import BagDataError, ConfigError, Note, listed, require_choice

Scaling = Literal["linear", "blend", "auto"]

_TAIL = 0.01
_KNOTS = 200
_MAX_NORMAL_SCORE = 3.0
_HEAP = 0.25
_LONG = 16.0  # norm of the means: 13 for 230 sparse features of the benchmark tables, 49 for 1280 of a network
_SAME = 1e-5
_VALUES_AT_A_TIME = 2**19  # in a fit, which makes several float64 copies of them
_MANY = 2**13  # rows from which the distinct numbers of a column are used
_WIDE = (torch.float64, torch.int32, torch.int64)  # hold numbers that float32 does not
# Relative differences that rounding may cause in a computed column of equal numbers; float16 is stored, not computed.
_ROUNDING = {torch.float16: 0.0, torch.bfloat16: 0.0, torch.float32: 2**-21, torch.float64: 2**-46}
_NEAR = 1e-3
_FAR = 2.0**30
DEPTHS = (1, 2, 4, 8, 10, 12, 14, 16, 32, 64)  # bits of a pixel that cameras and files have
_LEAST, _MOST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


class Standardizer(nn.Module):
    """Clipped standardization ``u = clip((x - center) / scale)``; until fitted, a cast to the dtype of the weights.

    Feature vectors [D] are standardized robustly, feature by feature: by mean and standard deviation of the values
    winsorized at the 1st and 99th percentile (from five instances on, at least one value on each side). If the
    winsorized values are all equal, the plain standard deviation is used. Images and volumes [C, ...] use the mean and
    standard deviation of each channel. A feature that was constant in training, or varied only by rounding, gets the
    scale inf: it becomes 0, whatever its value.

    With ``scaling="blend"`` a feature becomes (u + g(u)) / 2, where g(u) is its normal score: the standard normal
    quantile, within +-3, of its rank among the training instances. The rank spreads heavy tails and the rare values of
    a sparse feature; u keeps the distances. "auto" blends only features in which at least a quarter of the training
    instances share one value. Because g maps the least value to -3, many features that are often 0, such as those of a
    pretrained network, would all shift in one direction. Therefore the vector of the means of the blended features is
    subtracted if its norm is above 16.

    Parameters
    ----------
    instance_shape : tuple of int
        Shape of one instance: [D] or [C, ...].
    clip : float
        Bound on the magnitude of u, in (scaled) deviations; inf for no bound.
    scaling : {"linear", "blend", "auto"}
        "linear" gives u. Images and volumes always take u.

    Examples
    --------
    >>> s = Standardizer((1,), clip=10.0, scaling="linear").fit(torch.tensor([[0.0], [1.0], [2.0]]))
    >>> s(torch.tensor([[1.0], [1e9]])).flatten().tolist()
    [0.0, 10.0]
    """

    center: Tensor
    center_low: Tensor
    scale: Tensor
    knots: Tensor
    blended: Tensor
    offset: Tensor

    def __init__(self, instance_shape: tuple[int, ...], *, clip: float, scaling: Scaling) -> None:
        super().__init__()
        require_choice(get_args(Scaling), scaling=scaling)
        if not isinstance(clip, Real) or not clip > 0:  # infinite: nothing is clipped
            raise ConfigError(f"Expected `clip` above 0, got {clip}; give another, such as 10.")
        self.clip: float = clip
        self.scaling: Scaling = scaling if len(instance_shape) == 1 else "linear"
        shape = (instance_shape[0], *(1 for _ in instance_shape[1:])) if instance_shape else (1,)
        self.register_buffer("center", torch.zeros(shape))
        # Digits of the center that float32 loses, which float64 features with a large offset need.
        self.register_buffer("center_low", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))
        if self.scaling != "linear":
            # Training values of u at equal steps of rank, the features that are blended, and their means.
            self.register_buffer("knots", torch.zeros(instance_shape[0], _KNOTS))
            self.register_buffer("blended", torch.zeros(instance_shape[0], dtype=torch.bool))
            self.register_buffer("offset", torch.zeros(instance_shape[0]))

    @torch.no_grad()
    def fit(self, x: Tensor, *, names: Sequence[str] | None = None, source: str = "memory") -> "Standardizer":
        """Set the statistics from instances x [M, ...], M >= 1; messages call the features by `names`.

        A warning names features that vary only by rounding.

        Raises
        ------
        BagDataError
            If a feature varies by less than its type can resolve at its magnitude, by less than 1.2e-38, or by more
            than 3.4e38.
        """
        kind = "feature" if x.ndim == 2 else "channel"
        called = range(x.shape[1]) if names is None or kind == "channel" else names
        if x.ndim > 2:
            x = x.transpose(0, 1).flatten(1).T
        # Multiples of 16, so that torch sums a column in the same order whatever the number of columns.
        width = max(_VALUES_AT_A_TIME // len(x) // 16, 1) * 16 if kind == "feature" else x.shape[1]
        noise = list[str]()
        for low in range(0, x.shape[1], width):
            part, columns = slice(low, low + width), x[:, low : low + width].to("cpu")
            ordered = None if self.scaling == "linear" else _ordered(columns)
            center, scale, alike = _moments(columns, ordered, kind=kind, names=called[part], source=source)
            self._set_moments(part, center, scale)
            if ordered is not None:
                self._set_ranks(part, ordered.to(self.center.device))
            noise += [f"{kind} {called[low + at]}" for at in alike.nonzero().flatten().tolist()]
        if self.scaling != "linear" and self.offset.norm() <= _LONG:
            self.offset.zero_()
        if noise:
            message = f"{listed(noise, most=3)}: values that differ only by rounding count as constant (in {source})"
            warnings.warn(message, Note, stacklevel=3)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return standardized instances in the shape of x [M, ...]."""
        if self.scaling == "linear" or torch.compiler.is_compiling() or x.numel() <= _VALUES_AT_A_TIME:
            u = self._linear(x)
            return u if self.scaling == "linear" else self._blend(u, slice(None))
        # Ranks need about ten copies of the numbers: process a few columns at a time, on the CPU only blended ones.
        standardized = x.new_empty(x.shape, dtype=self.center.dtype)
        width = max(_VALUES_AT_A_TIME // len(x), 1)
        for low in range(0, x.shape[1], width):
            part = slice(low, low + width)
            if x.is_cuda or bool(self.blended[part].any()):
                values, spread = _distinct(x[:, part])
                standardized[:, part] = spread(self._blend(self._linear(values, part), part))
            else:
                standardized[:, part] = self._linear(x[:, part], part)
        return standardized

    def _blend(self, u: Tensor, part: slice) -> Tensor:
        knots, blended, offset = self.knots[part], self.blended[part], self.offset[part]
        if u.is_cuda or torch.compiler.is_compiling():  # a look at `blended` would synchronize, or break the graph
            return torch.where(blended, 0.5 * (u + _normal_scores(u, knots)) - offset, u)
        at = blended.nonzero().flatten()
        if len(at) == 0:
            return u
        return u.index_copy(1, at, 0.5 * (u[:, at] + _normal_scores(u[:, at], knots[at])) - offset[at])

    def _set_moments(self, part: slice, center: Tensor, scale: Tensor) -> None:
        """Set center and scale of some columns, from float64 [D]."""
        center, scale = (x.view(self.center[part].shape).to(self.center.device) for x in (center, scale))
        low = center - center.to(self.center.dtype).double()
        # Two float32 numbers hold 48 bits of the center, which is too few for some columns.
        if ((low - low.to(self.center.dtype).double()).abs() > _NEAR * scale).any():
            self.center_low = self.center_low.double()
        self.center[part], self.center_low[part], self.scale[part] = center, low, scale

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        low = state_dict.get(f"{prefix}center_low")
        if isinstance(low, Tensor) and low.dtype == torch.float64:
            self.center_low = self.center_low.double()
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _set_ranks(self, part: slice, x: Tensor) -> None:
        """Set the knots and the blended columns from sorted columns x [M, D]."""
        values, spread = _distinct(x)
        u = self._linear(values.double(), part)
        ordered = spread(u)
        ranks = torch.linspace(0, len(ordered) - 1, _KNOTS, dtype=torch.float64).round().long()
        self.knots[part] = ordered[ranks.to(ordered.device)].T
        self.blended[part] = _piled_up(ordered) | (self.scaling == "blend")
        self.offset[part] = 0.0
        means = spread(self._blend(u, part)).mean(dim=0, dtype=torch.float64)
        self.offset[part] = torch.where(self.blended[part], means, 0.0).to(self.offset.dtype)

    def _linear(self, x: Tensor, part: slice | None = None) -> Tensor:
        center, low, scale = self.center, self.center_low, self.scale
        if part is not None:
            center, low, scale = center[part], low[part], scale[part]
        if x.dtype in _WIDE and center.dtype != torch.float64:
            x = x.double() - center.double() - low.double()
            return (x / scale).clamp(-self.clip, self.clip).to(center.dtype)
        return ((x.to(center.dtype) - center) / scale).clamp(-self.clip, self.clip)


class Intensities(Standardizer):
    """Intensities from 0 to 1, for networks that were trained on photographs: ``clip((x - low) / span)``.

    In 8-bit images 0 and 255 become 0 and 1, or the largest number of the `bits_of` their brightest pixel; otherwise
    the percentiles 0.5 and 99.5 of the training instances do. Results are clipped to [-1, 1].

    Examples
    --------
    >>> fitted = Intensities((1, 1, 2)).fit(torch.tensor([[[[7, 9]]]], dtype=torch.uint8))
    >>> fitted(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).flatten().tolist()
    [0.0, 1.0]
    """

    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        super().__init__(instance_shape, clip=1.0, scaling="linear")

    @torch.no_grad()
    def fit(self, x: Tensor, *, names: Sequence[str] | None = None, source: str = "memory") -> "Intensities":  # noqa: ARG002
        """Set the intensities that become 0 and 1 from instances x [M, ...], M >= 1."""
        if x.dtype == torch.uint8:
            low, high = 0.0, 2.0 ** bits_of(int(x.max())) - 1
        else:
            low, high = (float(percentile) for percentile in np.percentile(x.float().numpy(), [0.5, 99.5]))
            low, high = (low, high) if high > low else (float(x.min()), float(x.max()))
        self.center.fill_(low)
        self.scale.fill_(high - low if high > low else 1.0)
        return self


def bits_of(brightest: int) -> int:
    """Return the bits of a pixel, one of `DEPTHS`, that hold the brightest one.

    Examples
    --------
    >>> bits_of(1), bits_of(200), bits_of(3071), bits_of(65535)
    (1, 8, 12, 16)
    """
    return next(bits for bits in DEPTHS if brightest < 2**bits)


def standardized_alike(one: nn.Module | None, other: nn.Module | None) -> bool:
    """Return whether two standardizers, such as those of the members of one run, are known to be equal."""
    if one is other:
        return True
    if type(one) is not Standardizer or type(other) is not Standardizer:
        return False
    held, others = one.state_dict(), other.state_dict()
    same = (one.clip, one.scaling, held.keys()) == (other.clip, other.scaling, others.keys())
    return same and all(torch.equal(value, others[name]) for name, value in held.items())


def _moments(
    x: Tensor, ordered: Tensor | None, *, kind: str, names: Sequence[object], source: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return center and scale of columns [M, D] in float64, and which vary only by rounding, each [D].

    `ordered` are the sorted columns, if known. A column that cannot be scaled is refused by its name.
    """
    columns, ends = x.double(), x if ordered is None else ordered[[0, -1]]
    low, high = ends.amin(dim=0), ends.amax(dim=0)
    constant, low, high = low == high, low.double(), high.double()
    dtype = x.dtype if x.is_floating_point() else torch.float64
    width, largest = high - low, torch.maximum(low.abs(), high.abs())
    rounding = largest * _ROUNDING[dtype]  # the difference that it can explain
    base, far = torch.zeros_like(width), ~constant & (largest > _FAR * width)
    if far.any():  # sums of such numbers would lose their differences
        base = torch.where(far, low, base)
        columns, ordered = columns - base, None
    kept = _winsorize(columns, ordered) if kind == "feature" else columns
    center, scale = kept.mean(dim=0) + base, kept.std(dim=0, correction=0)
    alike = ~constant & (width <= rounding)
    # Whole numbers do not vary by rounding: up to a magnitude they are exact, above it their differences are lost.
    whole = alike & (columns + base == (columns + base).round()).all(dim=0) if alike.any() else alike
    noise, lost = alike & ~whole, whole & (largest > 2 / torch.finfo(dtype).eps)
    least, most = kept.amin(dim=0), kept.amax(dim=0)
    size = torch.maximum((least + base).abs(), (most + base).abs())  # one value beyond them must not hide differences
    flat = ~(scale >= _LEAST) | (~whole & ((most - least) * largest <= size * rounding))
    if flat.any():
        scale = torch.where(flat, columns.std(dim=0, correction=0), scale)
    none = constant | noise
    for at in (~none & (lost | (width > _MOST) | (scale < _LEAST))).nonzero().flatten().tolist():
        digits, place = 17 if lost[at] else 3, f"(in {source}, {kind} {names[at]})"
        got = f"got {low[at]:.{digits}g} to {high[at]:.{digits}g} {place}"
        if lost[at]:
            kept_apart = f"whole numbers that stay distinct in {str(dtype).removeprefix('torch.')}"
            raise BagDataError(f"Expected {kept_apart}, {got}; subtract their common offset first.")
        wanted = "at most 3.4e38" if width[at] > _MOST else "at least 1.2e-38"
        raise BagDataError(f"Expected values that differ by {wanted}, {got}; scale, or leave them out.")
    center = torch.where(none, torch.zeros_like(center), center)
    return center, torch.where(none, torch.full_like(scale, math.inf), scale), noise


def _piled_up(ordered: Tensor) -> Tensor:
    """Return, for each column of sorted values [M, D], whether at least a quarter of the rows share one value."""
    width = max(math.ceil(_HEAP * len(ordered)), 2)
    if len(ordered) < width:
        return torch.zeros(ordered.shape[1], dtype=torch.bool, device=ordered.device)
    return (ordered[width - 1 :] == ordered[: len(ordered) - width + 1]).any(dim=0)


def _as_keys(x: Tensor) -> Tensor:
    """Return the bits of float16 [...] as whole numbers in the order of the floats; the function is its inverse."""
    bits = x.view(torch.int16)
    return bits ^ ((bits >> 15) & 0x7FFF)


def _ordered(x: Tensor) -> Tensor:
    """Return the columns [M, D], each sorted; float16 is sorted as 16-bit integers, which is fastest."""
    if x.dtype != torch.float16:
        return x.sort(dim=0).values
    keys = np.sort(_as_keys(x.T.contiguous()).numpy(), axis=1, kind="stable")
    return _as_keys(torch.from_numpy(keys)).view(x.dtype).T


def _distinct(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the distinct numbers [K, D] of columns x [M, D], and a function that spreads their results to all rows.

    float16 columns, such as embeddings of a network, have few; for other types all numbers are returned unchanged.
    """
    if x.dtype != torch.float16 or x.is_cuda or len(x) < _MANY:
        return x, lambda results: results
    keys = _as_keys(x.T.contiguous()).long()
    least = int(keys.min())
    keys -= least
    shape = (len(keys), int(keys.max()) + 1)
    column, key = torch.zeros(shape, dtype=torch.bool).scatter_(1, keys, value=True).nonzero(as_tuple=True)
    counts = column.bincount(minlength=len(keys))
    place = torch.arange(len(column)) - (counts.cumsum(0) - counts)[column]
    values = torch.zeros(len(keys), int(counts.max()), dtype=torch.int16)
    values[column, place] = (key + least).to(values.dtype)

    def spread(results: Tensor) -> Tensor:
        table = results.new_empty(shape)
        table[column, key] = results.T[column, place]
        return table.gather(1, keys).T.contiguous()

    return _as_keys(values).view(x.dtype).T, spread


def _normal_scores(u: Tensor, knots: Tensor) -> Tensor:
    """Return the normal scores [M, D] of u [M, D] among ascending knots [D, K]; 0 for a constant feature.

    Values between two knots are interpolated, equal knots share the middle of their ranks, values beyond take the ends.
    """
    last = knots.shape[1] - 1
    columns = u.T.contiguous()
    # A value may be float32 in one file and float64 in another; both must match the same knot.
    low = torch.searchsorted(knots, columns - _SAME)
    high = torch.searchsorted(knots, columns + _SAME, right=True)
    upper = high.clamp(1, last)
    left, right = knots.gather(1, upper - 1), knots.gather(1, upper)
    between = upper - 1 + ((columns - left) / (right - left).clamp(min=torch.finfo(u.dtype).tiny)).clamp(0, 1)
    rank = torch.where(high > low, 0.5 * (low + high - 1).to(u.dtype), between)
    first, end = knots[:, :1], knots[:, -1:]
    rank = torch.where(columns >= end - _SAME, torch.full_like(rank, last), rank)
    rank = torch.where(columns <= first + _SAME, torch.zeros_like(rank), rank)
    score = torch.special.ndtri((rank / last).double()).clamp(-_MAX_NORMAL_SCORE, _MAX_NORMAL_SCORE).to(u.dtype)
    return torch.where(first == end, torch.zeros_like(score), score).T


def _winsorize(x: Tensor, ordered: Tensor | None) -> Tensor:
    last = x.shape[0] - 1
    cut = max(math.floor(_TAIL * last), 1 if last >= 4 else 0)
    ends = cut, last - cut
    # Only two ranks of each column are needed, so a partition suffices.
    parted = torch.from_numpy(np.partition(x.numpy(), ends, axis=0)) if ordered is None else ordered
    return x.clamp(*(parted[end].double() for end in ends))
