"""The study of the order in a bag: its bags, and what its page says of differences."""

import numpy as np

from midam.data.bags import Bags
from studies.registry import find_study
from studies.tabular.order import body, with_order


def test_bags_in_an_order_keep_their_labels_and_lose_their_time() -> None:
    rng = np.random.default_rng(0)
    arrays = [np.column_stack([np.arange(n), rng.normal(size=(n, 2))]).astype(np.float32) for n in (3, 1, 4)]
    made = with_order(Bags.from_list(arrays, [1, 0, 1], ids=["b", "a", "c"]))
    assert (made.ids.tolist(), made.labels.tolist(), made.sizes.tolist()) == (["b", "a", "c"], [1, 0, 1], [3, 1, 4])
    for own, values in zip(arrays, made):
        np.testing.assert_array_equal(values[:, :2], own[:, 1:])
        np.testing.assert_allclose(values[:, 4], own[:, 0])
        np.testing.assert_allclose(values[1:, 5:], np.diff(own[:, 1:], axis=0), rtol=1e-5)


def test_a_verdict_needs_the_whole_interval() -> None:
    assert find_study("order").store == "order"
    plain = np.array([0.70, 0.72, 0.74, 0.71, 0.73])
    shifts = {"up": [0.05, 0.06, 0.05, 0.06, 0.05], "even": [0.01, -0.01, 0.02, -0.02, 0.0]}
    methods = {name: np.stack([plain, plain + shift]) for name, shift in shifts.items()}
    methods["down"] = methods["up"][::-1]
    lines = list(body({"set": methods}, {"set": "AUROC"}, 0.25))
    assert lines[0].endswith("adds something, by the rule fixed before: `up` on set.")
    assert lines[2].endswith("takes something, by the rule fixed before: `down` on set.")
    assert any(
        line.startswith("| set | up | AUROC | 0.720 | 0.774 | +0.054 [") and "| 5 of 5 |" in line for line in lines
    )
