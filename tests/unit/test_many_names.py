"""Names, digests and groups of bags."""

import numpy as np
import pytest

from midam.data.bags import Bags
from midam.data.digests import bag_digests
from midam.data.store import open_store, write_store
from midam.errors import BagDataError
from midam.evaluate import predict

NAMES = ["b", "", "long name", "c", "dd", "a", "eee"]


def bags_named(names):
    return Bags(np.arange(2.0 * len(names)).reshape(-1, 2), sizes=np.ones(len(names), int), ids=names)


@pytest.mark.parametrize("letter", ["a", "é"])
def test_names_of_a_store_come_back(letter, tmp_path):
    names = [f"{name}{letter}" for name in NAMES]
    groups = [f"{letter}{number // 2}" for number in range(len(names))]
    bags = bags_named(names).replace(groups=groups)
    found = open_store(write_store(bags, tmp_path / "store"))
    assert found.ids.tolist() == names
    assert found.groups.tolist() == groups
    assert found.ids.dtype == bags.ids.dtype


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "b", "c", "d", "b"], "got 2 bags of one id .*bag b"),
        (["a", "b", "b", "c"], "got 2 bags of one id"),
        (["a", "b", "c", "d", "b "], "got 2 bags of one id .*bag b"),
        (["a", "b", "c", " "], "got an empty one"),
        (["", "b", "c"], "got an empty one"),
    ],
)
def test_names_that_are_no_names_are_refused_wherever_they_stand(names, said):
    with pytest.raises(BagDataError, match=said):
        bags_named(names)


def test_digests_are_bytes():
    bags = bags_named(["a", "b"])
    known = bag_digests(bags)
    assert bag_digests(bags.replace(digests=bags.digests.copy())) == known
    assert bag_digests(bags.subset([1])) == known[1:]
    for wrong in (known, [1, 2], np.zeros((2, 31), np.uint8), bags.digests[:1]):
        with pytest.raises(BagDataError, match="digest"):
            bags.replace(digests=wrong)


def test_groups_of_many_bags_are_those_of_few(monkeypatch):
    sizes = np.random.default_rng(0).integers(1, 40, 300)
    whole = list(predict.bag_groups(sizes, chunk_size=8))
    assert [group.start for group in whole[1:]] == [group.stop for group in whole[:-1]]
    assert whole[-1].stop == 300
    assert max(int(sizes[group.start : group.stop].sum()) for group in whole) <= 128
    monkeypatch.setattr(predict, "_BAGS_AT_A_TIME", 3)
    assert max(map(len, predict.bag_groups(sizes, chunk_size=8))) == 3
