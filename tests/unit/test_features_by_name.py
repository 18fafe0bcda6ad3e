"""Features are found by name, and missing values filled, whichever way bags come to a trained model."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import midam
from midam.cli.app import main
from midam.data.bags import Bags
from midam.data.features import align_features
from midam.data.store import open_store, write_store
from midam.data.store.format import _checksum
from midam.errors import BagDataError, Note
from midam.evaluate.predict import instance_scores
from midam.explain.explanation import explain_bag
from midam.runs import evaluate_run, load_run, predict_run
from midam.runs.scoring import Scoring, score_together

pytestmark = pytest.mark.filterwarnings("ignore::midam.errors.Note")
FEATURES = ["area", "depth", "länge"]
COUNT = 24


def table(*, seed: int = 0, gaps: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(COUNT), 4)
    frame = pd.DataFrame(rng.normal(size=(len(codes), 3)) * [1, 10, 100], columns=FEATURES)
    frame.loc[codes % 2 == 1, "area"] += 2
    if gaps:
        frame.loc[::7, "depth"] = np.nan
    frame.insert(0, "bag", [f"b{code:02}" for code in codes])
    frame.insert(1, "label", codes % 2)
    return frame


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "gaps"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    folder, frame = tmp_path_factory.mktemp("run"), table(gaps=request.param)
    frame.to_csv(folder / "bags.csv", index=False)
    options = ["--epochs", "2", "--members", "1", "--no-baseline", "--out", str(folder / "run")]
    assert main(["fit", str(folder / "bags.csv"), *options, *(["--impute", "median"] if request.param else [])]) == 0
    return folder / "run", frame


def bags_of(frame: pd.DataFrame) -> Bags:
    return Bags.from_dataframe(frame, missing=True)


def own_scores(run: Path) -> np.ndarray:
    return pd.read_csv(run / "predictions.csv").sort_values("bag")["score"].to_numpy()


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["label", "länge", "bag", "area", "depth"]]


def renamed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.rename(columns={"area": "size"})


def wider(frame: pd.DataFrame) -> pd.DataFrame:
    return shuffled(frame).assign(noise=1.0)


def by_predict_run(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    return predict_run(load_run(run), bags_of(frame))[0]


def by_predict(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    return midam.predict(load_run(run).model, bags_of(frame))


def by_subsets(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    bags, loaded = bags_of(frame), load_run(run)
    return np.concatenate([predict_run(loaded, bags.subset([i]))[0] for i in range(len(bags))])


def by_scorings(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    return score_together([Scoring(load_run(run), bags_of(frame), range(COUNT))])[0]


def by_explanations(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    bags, model = bags_of(frame), load_run(run).model
    return np.array([explain_bag(model, bags, i, faithful=False).score for i in range(len(bags))])


def by_instance_files(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    return predict_run(load_run(run), bags_of(frame), instances=folder / "instances")[0]


def by_estimator(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    return midam.MIDAMClassifier.load(run).bag_scores(bags_of(frame))


def by_frame(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    rows = frame.drop(columns="label").set_index(["bag", frame.groupby("bag").cumcount()])
    return midam.MIDAMClassifier.load(run).bag_scores(rows)


def by_frames(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    parts = [part.drop(columns=["bag", "label"]) for _, part in frame.groupby("bag")]
    return midam.MIDAMClassifier.load(run).bag_scores(parts)


def by_saved_estimator(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    midam.MIDAMClassifier.load(run).save(folder / "saved")
    return predict_run(load_run(folder / "saved"), bags_of(frame))[0]


def by_command(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    frame.to_csv(folder / "other.csv", index=False)
    out = folder / "scores.csv"
    assert main(["predict", str(run), str(folder / "other.csv"), "--out", str(out)]) == 0
    return pd.read_csv(out)["score"].to_numpy()


def by_shards(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    frame.to_csv(folder / "other.csv", index=False)
    for shard in ("1/2", "2/2"):
        out = ["--out", str(folder / "s.csv"), "--shard", shard]
        assert main(["predict", str(run), str(folder / "other.csv"), *out]) == 0
    return pd.concat([pd.read_csv(path) for path in sorted(folder.glob("s.shard*.csv"))])["score"].to_numpy(dtype=float)


def by_export(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    if not (folder / "export").exists():
        assert main(["export", str(run), "--out", str(folder / "export"), "--format", "python"]) == 0
    frame.to_csv(folder / "other.csv", index=False)
    command = [sys.executable, str(folder / "export" / "score_bags.py"), str(folder / "other.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BagDataError(done.stderr)
    (folder / "out.csv").write_text(done.stdout)
    return pd.read_csv(folder / "out.csv")["score"].to_numpy()


WAYS: list[Callable[[Path, pd.DataFrame, Path], Any]] = [
    by_predict_run,
    by_predict,
    by_subsets,
    by_scorings,
    by_explanations,
    by_instance_files,
    by_estimator,
    by_frame,
    by_frames,
    by_saved_estimator,
    by_command,
    by_shards,
    by_export,
]
_ALONE = (by_command, by_shards, by_export)  # commands, which print what others raise


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("change", [shuffled, wider])
def test_every_way_finds_features_by_name(
    trained: tuple[Path, pd.DataFrame], tmp_path: Path, way: Any, change: Any
) -> None:
    run, frame = trained
    np.testing.assert_allclose(way(run, change(frame), tmp_path), own_scores(run), rtol=1e-5)


@pytest.mark.parametrize("way", [way for way in WAYS if way not in _ALONE], ids=lambda way: way.__name__)
def test_every_way_names_a_feature_that_is_missing(
    trained: tuple[Path, pd.DataFrame], tmp_path: Path, way: Any
) -> None:
    run, frame = trained
    with pytest.raises(BagDataError, match=r"no 'area' \(1 of 3 missing"):
        way(run, renamed(frame), tmp_path)


def test_commands_name_a_feature_that_is_missing(
    trained: tuple[Path, pd.DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, frame = trained
    renamed(frame).to_csv(tmp_path / "other.csv", index=False)
    for command in ("predict", "evaluate", "explain"):
        out = ["--out", str(tmp_path / f"{command}.json")]
        assert main([command, str(run), str(tmp_path / "other.csv"), *out]) != 0
        assert "'area'" in capsys.readouterr().err
    with pytest.raises(BagDataError, match="area"):
        by_export(run, renamed(frame), tmp_path)


def test_features_beside_are_noted(trained: tuple[Path, pd.DataFrame]) -> None:
    run, frame = trained
    with pytest.warns(Note, match="did not have, left out: noise"):
        predict_run(load_run(run), bags_of(wider(frame)))


def test_a_store_in_another_order_is_read_by_name(trained: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    run, frame = trained
    other = shuffled(frame.fillna(frame.median(numeric_only=True)))
    write_store(Bags.from_dataframe(other), tmp_path / "store")
    loaded, store = load_run(run), open_store(tmp_path / "store")
    wanted = predict_run(loaded, Bags.from_dataframe(other[["bag", "label", *FEATURES]]))[0]
    np.testing.assert_allclose(predict_run(loaded, store)[0], wanted, rtol=1e-6)
    assert main(["predict", str(run), str(tmp_path / "store"), "--out", str(tmp_path / "s.csv")]) == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "s.csv")["score"], wanted, rtol=1e-6)


def test_bags_are_known_by_content_whatever_the_order_of_their_features(trained: tuple[Path, pd.DataFrame]) -> None:
    run, frame = trained
    found = evaluate_run(load_run(run), bags_of(shuffled(frame)))
    assert found["headline"] == "test"


def test_without_names_the_width_decides(trained: tuple[Path, pd.DataFrame]) -> None:
    run, frame = trained
    loaded, bags = load_run(run), bags_of(frame)
    plain = bags.replace(feature_names=None)
    np.testing.assert_array_equal(predict_run(loaded, plain)[0], predict_run(loaded, bags)[0])
    narrow = bags.replace(feature_names=None, instances=bags.instances[:, :2])
    with pytest.raises(BagDataError, match=r"shape \[3\].*got \[2\]"):
        predict_run(loaded, narrow)
    model = midam.MIDAMClassifier(epochs=1, members=1).fit([np.nan_to_num(bags[i]) for i in range(COUNT)], bags.labels)
    with pytest.warns(UserWarning, match="fitted without feature names"):
        model.bag_scores(bags_of(table()))


def test_missing_values_are_refused_where_none_were_in_training(trained: tuple[Path, pd.DataFrame]) -> None:
    run, _ = trained
    loaded, bags = load_run(run), bags_of(table(gaps=True))
    if loaded.data["imputed"] is None:
        with pytest.raises(BagDataError, match="finite numbers, got nan"):
            predict_run(loaded, bags)
    else:
        assert np.isfinite([predict_run(loaded, bags)[0], own_scores(run)]).all()
        assert np.isfinite(instance_scores(loaded.model, bags, 0).score).all()
        with pytest.raises(BagDataError, match="finite numbers, got inf"):
            predict_run(loaded, bags.replace(instances=np.full_like(bags.instances, np.inf)))


@pytest.mark.parametrize(("names", "said"), [(["a"], "3 features, got 1"), (["a", "b", "a "], "'a' twice")])
def test_names_of_features_fit_the_features(tmp_path: Path, names: list[str], said: str) -> None:
    with pytest.raises(BagDataError, match=said):
        Bags.from_arrays(np.eye(3), [0, 1, 1], feature_names=names)
    write_store(Bags.from_arrays(np.eye(3), [0, 1, 1], feature_names=["a", "b", "c"]), tmp_path / "store")
    facts = json.loads((tmp_path / "store" / "store.json").read_text()) | {"feature_names": names}
    facts.pop("checksum")
    (tmp_path / "store" / "store.json").write_text(json.dumps({**facts, "checksum": _checksum(facts)}))
    with pytest.raises(BagDataError, match=said) as caught:
        open_store(tmp_path / "store")
    assert str(tmp_path / "store") in str(caught.value)


def test_a_feature_that_is_called_nearly_so_is_suggested():
    frame = table().rename(columns={"area": "Area"})
    bags = Bags.from_dataframe(frame)
    with pytest.raises(BagDataError, match=r"rename the columns: did you mean 'Area'\? Other columns are Area\."):
        align_features(bags, FEATURES, of="the run")
