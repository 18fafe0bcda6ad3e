"""Estimators that were saved, reports on them, and files of tensors as torch and others write them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import midam
from midam.cli.app import main
from midam.data.bags import Bags
from midam.errors import CheckpointError, RunExistsError
from midam.runs import load_run

COUNT = 24


def frame_of(*, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    bags = np.repeat(np.arange(COUNT), 3)
    frame = pd.DataFrame(rng.normal(size=(len(bags), 2)) + (bags % 2)[:, None], columns=["a", "b"])
    frame.insert(0, "bag", [f"b{bag:02}" for bag in bags])
    frame.insert(1, "label", bags % 2)
    return frame


def fitted(*, seed: int = 0) -> midam.MIDAMClassifier:
    return midam.MIDAMClassifier(epochs=1, members=1, seed=seed).fit(Bags.from_dataframe(frame_of()))


@pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")
def test_an_estimator_is_saved_over_one_that_was_saved(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    with pytest.raises(RunExistsError, match="pass overwrite=True"):
        fitted(seed=1).save(tmp_path / "model")
    other = fitted(seed=1)
    other.save(tmp_path / "model", overwrite=True)
    bags = Bags.from_dataframe(frame_of(seed=2))
    loaded = midam.MIDAMClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.bag_scores(bags), other.bag_scores(bags))
    other.save(tmp_path / "new", overwrite=True)
    (tmp_path / "model" / "mine.txt").write_text("mine")
    with pytest.raises(RunExistsError, match=r"got .*model, which holds files; choose another folder"):
        other.save(tmp_path / "model", overwrite=True)
    with pytest.raises(CheckpointError, match=r"the folder of a run, got the file .*model.pt; name the folder"):
        midam.MIDAMClassifier.load(tmp_path / "model" / "model.pt")


def test_a_saved_estimator_has_a_report_on_labeled_bags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted().save(tmp_path / "model")
    frame_of(seed=5).to_csv(tmp_path / "new.csv", index=False)
    assert main(["report", str(tmp_path / "model")]) != 0
    assert f"`midam report {tmp_path / 'model'} DATA`" in " ".join(capsys.readouterr().err.split())
    assert main(["report", str(tmp_path / "model"), str(tmp_path / "new.csv")]) == 0
    assert (tmp_path / "model" / "report-new.csv.html").exists() or list((tmp_path / "model").glob("report-*.html"))


def strange_tensors(x: np.ndarray) -> dict[str, object]:
    """The same numbers in tensors whose bits say that they are negated, views, and containers."""
    negated = torch.complex(torch.zeros(x.shape), -torch.from_numpy(x)).conj().imag
    assert negated.is_neg()
    return {
        "plain": torch.from_numpy(x),
        "negated": negated,
        "turned": torch.from_numpy(x.T.copy()).T,
        "grad": torch.from_numpy(x).requires_grad_(),
        "dictionary": {"features": negated},
        "batch": negated[None],
    }


def test_tensors_with_any_bits_are_read_as_their_numbers(tmp_path: Path) -> None:
    x = np.random.default_rng(3).normal(size=(5, 3)).astype("f4")
    tensors = strange_tensors(x)
    for name, tensor in tensors.items():
        torch.save(tensor, tmp_path / f"{name}.pt")
    read = midam.read_bags(tmp_path, require_labels=False)
    assert len(read) == len(tensors)
    for number in range(len(read)):
        np.testing.assert_array_equal(np.asarray(read[number]), x)
    own = Bags.from_list([tensors["plain"], tensors["negated"], tensors["grad"]])
    np.testing.assert_array_equal(own.instances, np.concatenate([x] * 3))
    assert np.array_equal(Bags.from_arrays(tensors["negated"], [0] * len(x)).instances, x)


def test_complex_tensors_are_refused(tmp_path: Path) -> None:
    torch.save(torch.ones(3, 3, dtype=torch.complex64).conj(), tmp_path / "c.pt")
    with pytest.raises(midam.MidamError, match="complex64"):
        midam.read_bags(tmp_path, require_labels=False)


@pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": 1000}, "the settings have 1000 members, the weights 1"),
        ({"hidden": [4000, 4000]}, "encoder.layers"),
    ],
)
def test_settings_are_compared_with_the_weights_before_a_model_is_built(
    change: dict[str, object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted().save(tmp_path / "model")
    path = tmp_path / "model" / "model.pt"
    content = torch.load(path, weights_only=True)
    torch.save({**content, "config": {**content["config"], **change}}, path)
    monkeypatch.setattr("midam.train.build.BagEnsemble", None)
    with pytest.raises(CheckpointError, match=words):
        load_run(tmp_path / "model")
