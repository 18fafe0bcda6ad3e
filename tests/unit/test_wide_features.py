"""Wide features: what a network takes is said before it is made, and standardizing takes little beside the data."""

import subprocess
import sys
from typing import Literal

import numpy as np
import pytest
import torch

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.nn import standardizer
from midam.nn.standardizer import Standardizer
from midam.settings import Settings
from midam.train.members import build_members

LABELS = np.arange(16) % 2


def wide_bags(width: int) -> Bags:
    return Bags(np.broadcast_to(np.float32(0), (16, width)), sizes=np.ones(16, dtype=int), labels=LABELS)


def test_a_network_that_does_not_fit_is_refused_before_it_is_made() -> None:
    with pytest.raises(ConfigError, match=r"networks .* 10000000 x 512.*`hidden=\[128\]`"):
        build_members(Settings(), wide_bags(10_000_000), device=torch.device("cpu"))


def test_parts_of_wide_features_are_standardized_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 70, generator=torch.Generator().manual_seed(0))
    x[:, ::3] = (x[:, ::3] > 1).float()
    fitted = Standardizer((70,), clip=3.0, scaling="auto").fit(x)
    whole = fitted(x)
    monkeypatch.setattr(standardizer, "_VALUES_AT_A_TIME", 200)
    assert torch.equal(fitted(x), whole)


@pytest.mark.long
def test_wide_features_take_little_more_memory_than_they_are() -> None:
    code = (
        "import resource, torch\n"
        "from midam.nn.standardizer import Standardizer\n"
        "x = torch.randn(400, 20_000)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "Standardizer((20_000,), clip=3.0, scaling='blend').fit(x)(x)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 10 * 400 * 20_000 * 4


@pytest.mark.parametrize("scaling", ["auto", "blend"])
def test_each_distinct_number_is_ranked_once_to_the_same_bits(
    scaling: Literal["auto", "blend"], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(rng.normal(size=60), rng.uniform(0.1, 3, 60), (9000, 60)).astype(np.float16)
    x[:, :30] = np.maximum(x[:, :30], 0)  # as vectors of a network: many are 0
    x[:, 30], x[:, 31] = 2, np.where(rng.random(9000) < 0.5, -0.0, 0.0)
    x[:, 32] = 1000 + rng.integers(0, 2, 9000)
    x[:4, 33] = np.finfo(np.float16).max
    x[:, 34] *= np.float16(6e-8)
    rows, found, winsorize = torch.from_numpy(x), [], standardizer._winsorize
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(standardizer, "_distinct", lambda x: (x, lambda found: found))
            monkeypatch.setattr(standardizer, "_ordered", lambda x: x.sort(dim=0).values)
            monkeypatch.setattr(standardizer, "_winsorize", lambda x, _: winsorize(x, None))
        fitted = Standardizer((60,), clip=10.0, scaling=scaling).fit(rows[:8800])
        # A part of the columns is not blended with "auto", and the bits of a zero's sign mean nothing.
        found.append([value.numpy() + 0 for value in (*fitted.state_dict().values(), fitted(rows))])
    assert len(found[0]) == 7
    for one, other in zip(*found):
        assert one.tobytes() == other.tobytes()
