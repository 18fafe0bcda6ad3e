"""The bags of digits: which images they hold, and where the nines stand."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from midam.errors import ConfigError
from studies.regime.bags import Counts, draw_rows, is_nine, nine_bags, split_images

SMALL = Counts(train=8, val=4, test=6)


def test_positive_bags_hold_their_nines_and_negative_ones_none():
    rows = draw_rows(200, positive=3, repeat=5, counts=SMALL)
    nines = (load_digits().target[rows] == 9).sum(axis=1)
    assert rows.shape == (18, 200)
    np.testing.assert_array_equal(nines, np.tile([0, 3], 9))


def test_witnesses_stand_anywhere_in_a_bag():
    rows = draw_rows(30, positive=1, repeat=0, counts=Counts())[1::2]
    assert len(set((load_digits().target[rows] == 9).argmax(axis=1))) > 15


def test_splits_share_no_image():
    rows = draw_rows(3000, positive=300, repeat=1, counts=SMALL)
    parts = [set(rows[SMALL.positions(split)].flatten()) for split in ("train", "val", "test")]
    assert len(set.union(*parts)) == sum(len(part) for part in parts)
    assert sum(len(np.concatenate(part)) for part in split_images(1).values()) == 1797
    assert set(split_images(1)["train"][0]) != set(split_images(2)["train"][0])


def test_bags_are_a_pure_function_of_their_numbers():
    one = nine_bags(20, sets=[(2, 3), (1, 4)], counts=SMALL)
    other = nine_bags(20, sets=[(1, 4)], counts=SMALL)
    np.testing.assert_array_equal(one.instances[18 * 20 :], other.instances)
    assert one.require_labels().tolist() == [0, 1] * 18
    np.testing.assert_array_equal(SMALL.positions("test", place=1), np.arange(30, 36))


def test_bags_are_scaled_images_of_the_training_set():
    rows = draw_rows(20, positive=2, repeat=3, counts=SMALL)
    images = load_digits().data
    own = images[np.concatenate(split_images(3)["train"])]
    bags = nine_bags(20, sets=[(2, 3)], counts=SMALL)
    np.testing.assert_allclose(bags[7], (images[rows[7]] - own.mean()) / own.std(), rtol=1e-3)


def test_more_witnesses_than_instances_are_refused():
    with pytest.raises(ConfigError, match="1 to 5 witnesses"):
        nine_bags(5, sets=[(6, 0)])


def test_witnesses_are_known():
    rows = draw_rows(200, positive=3, repeat=5, counts=SMALL)
    np.testing.assert_array_equal(is_nine(rows).sum(axis=1), np.tile([0, 3], 9))
