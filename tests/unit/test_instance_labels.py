"""Instance labels: read from tables, archives and torchmil, kept with their instances, and never used in training."""

import numpy as np
import pandas as pd
import pytest
import torch

from midam.data import open_store, read_bags, write_store
from midam.data.bags import Bags
from midam.data.instance_labels import label_counts, labels_of
from midam.errors import BagDataError, ConfigError
from midam.settings import Settings
from midam.train.trainer import Trainer
from studies.sets.npz import write_npz
from studies.sets.torchmil import from_torchmil


def make_bags(number=24, *, largest=40, labeled=True):
    """Bags whose last instance decides."""
    rng = np.random.default_rng(2)
    labels = np.arange(number) % 2
    parts = [rng.normal(size=(int(rng.integers(2, largest)), 4)).astype(np.float32) for _ in labels]
    of_instances = []
    for bag, label in zip(parts, labels, strict=True):
        bag[-1] += 3 * label
        of_instances += [0] * (len(bag) - 1) + [int(label)]
    bags = Bags.from_list(parts, labels)
    return bags.replace(instance_labels=of_instances) if labeled else bags


def known(labels):
    """Labels as a list, None if unknown."""
    return [None if np.isnan(label) else int(label) for label in labels]


def test_instance_labels_are_checked_and_stay_with_their_instances():
    X = np.arange(5.0)[:, None]
    bags = Bags.from_arrays(X, [1, 0, 1, 0, 1], [0, 1], instance_labels=[0, 1, np.nan, 0, True])
    assert known(bags.instance_labels) == [1, 0, 0, None, 1], "in bag order"
    assert bags.instance_labels.dtype == np.float32
    assert known(labels_of(bags.subset([1, 0]))) == [0, None, 1, 1, 0]
    assert label_counts(bags).tolist() == [[1, 1, 0], [1, 1, 1]], "positive, negative, unknown"
    assert label_counts(bags.replace(instance_labels=None)).tolist() == [[0, 0, 2], [0, 0, 3]]
    assert labels_of(bags.replace(instance_labels=[np.nan] * 5)) is None
    assert bags.fingerprint() == bags.replace(instance_labels=None).fingerprint(), "the same data for a resumed run"
    for wrong, message in (
        ([0, 1], r"instance labels \[5\], got shape \(2,\)"),
        ([0, 1, 2, 0, 0], "got 2 at instance 2"),
        (list("abcde"), "got 'a' at instance 0"),
    ):
        with pytest.raises(BagDataError, match=message):
            Bags.from_arrays(X, [0, 0, 0, 1, 1], [0, 1], instance_labels=wrong)


def test_a_column_of_a_table_is_no_feature_and_may_have_gaps(tmp_path):
    frame = pd.DataFrame({"bag": list("aabbb"), "label": [1, 1, 0, 0, 0], "x": np.arange(5.0)})
    frame["truth"] = ["1", "false", "", "NA", "0.0"]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    bags = read_bags(tmp_path / "rows.csv", instance_label="truth")
    assert bags.feature_names == ("x",)
    assert known(bags.instance_labels) == [1, 0, None, None, 0]
    frame["truth"] = pd.array([1, 0, None, None, 0], dtype="Int64")
    frame.to_parquet(tmp_path / "rows.parquet")
    assert known(read_bags(tmp_path / "rows.parquet", instance_label="truth").instance_labels) == [1, 0, None, None, 0]
    assert known(Bags.from_dataframe(frame, instance_label="truth").instance_labels) == [1, 0, None, None, 0]
    plain = read_bags(tmp_path / "rows.csv", instance_label="none", require_labels=False, ignore=["truth"])
    assert plain.instance_labels is None, "prediction needs no such column"
    for values, message in (([1, 2, 0, 0, 0], "labels 0 and 1 of instances, got '2'.*line 3"), ([None] * 5, "none")):
        frame.assign(truth=values).to_csv(tmp_path / "wrong.csv", index=False)
        with pytest.raises(BagDataError, match=message):
            read_bags(tmp_path / "wrong.csv", instance_label="truth")
    with pytest.raises(BagDataError, match="'other' of `instance_label`"):
        read_bags(tmp_path / "rows.csv", instance_label="other")
    with pytest.raises(ConfigError, match="'label', which has another use"):
        read_bags(tmp_path / "rows.csv", instance_label="label")


def test_archives_and_stores_keep_instance_labels(tmp_path):
    bags = make_bags(6, largest=9)
    labels = bags.instance_labels.copy()
    labels[[0, 3, 4]] = np.nan
    bags = bags.replace(instance_labels=labels).subset([2, 0, 5])
    write_npz(bags, tmp_path / "bags.npz")
    write_store(bags, tmp_path / "store")
    for again in (read_bags(tmp_path / "bags.npz"), open_store(tmp_path / "store")):
        assert known(again.instance_labels) == known(labels_of(bags))
    np.savez(tmp_path / "near.npz", X=np.ones((2, 1)), bag=[0, 1], y=[0, 1], witness=[0, 1])
    with pytest.raises(BagDataError, match="instance_label"):
        read_bags(tmp_path / "near.npz")


def test_torchmil_datasets_bring_instance_labels():
    first = {"X": torch.ones(2, 3), "Y": torch.tensor(1), "y_inst": torch.tensor([[1], [-1]])}
    bags = from_torchmil([first, {"X": torch.zeros(1, 3), "Y": torch.tensor(0)}])
    assert known(bags.instance_labels) == [1, None, None]
    with pytest.raises(BagDataError, match="2 labels of instances, got 3"):
        from_torchmil([{**first, "y_inst": torch.zeros(3)}])


@pytest.mark.parametrize("estimator", ["minibatch", "vrsp"])
def test_instance_labels_change_no_training(estimator):
    settings = Settings(epochs=4, num_positive=4, num_negative=4, num_instances=4, members=2, estimator=estimator)
    plain, labeled = (Trainer(settings, make_bags(labeled=given)).fit() for given in (False, True))
    pairs = zip(plain.model.state_dict().values(), labeled.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert labeled.history == plain.history
