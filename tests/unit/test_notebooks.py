"""What a notebook shows of bags."""

import numpy as np

import midam


def test_bags_are_shown_with_their_counts_and_sizes():
    rng = np.random.default_rng(0)
    bags = midam.Bags.from_list([rng.random((n, 2)) for n in (3, 3, 40)], [0, 1, 1], ids=["a", "b", "<c>"])
    text = bags.replace(source="<script>")._repr_html_()
    assert "<th>positive bags</th><td>2</td>" in text
    assert "<th>instances</th><td>46 of (2,)</td>" in text
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<th>instances of a bag</th><td>3 to 40</td>" in text


def test_bags_without_labels_and_of_one_size_are_shown():
    bags = midam.Bags.from_list([np.zeros((2, 3))])
    text = bags._repr_html_()
    assert "positive" not in text
