"""Features are found by name, and missing values filled, whichever way bags come to a trained model."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
import zarr
from tests.pairs import each

import midam
from midam.cli.app import main
from midam.data.bags import Bags
from midam.data.missing import align_features
from midam.data.sources import read_bags
from midam.data.store import open_store, write_store
from midam.data.store.format import _checksum
from midam.errors import BagDataError, Note
from midam.evaluate.pooled import instance_scores
from midam.explain.explanation import explain_bag
from midam.runs import evaluate_bags, load_run, predict_run, write_instance_scores
from midam.runs.typical import ordinary_values, warn_of_units
from midam.train.trainer import Trainer
from studies.sets.npz import write_npz

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
    options = [
        "--epochs",
        "2",
        "--members",
        "1",
        "--no-baseline",
        "--test-fraction",
        "0.2",
        "--out",
        str(folder / "run"),
    ]
    assert main(["fit", str(folder / "bags.csv"), *options, *(["--impute", "median"] if request.param else [])]) == 0
    return folder / "run", frame


def bags_of(frame: pd.DataFrame) -> Bags:
    return Bags.from_dataframe(frame, impute=True)


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


def by_explanations(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    bags, model = bags_of(frame), load_run(run).model
    return np.array([explain_bag(model, bags, i).score for i in range(len(bags))])


def by_instance_files(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    return write_instance_scores(load_run(run).model, bags_of(frame), folder / "instances")


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


def by_slices(run: Path, frame: pd.DataFrame, folder: Path) -> np.ndarray:
    frame.to_csv(folder / "other.csv", index=False)
    for number, part in enumerate((":2", "2:")):
        out = ["--out", str(folder / f"s{number}.csv"), "--bags", part]
        assert main(["predict", str(run), str(folder / "other.csv"), *out]) == 0
    return pd.concat([pd.read_csv(folder / f"s{number}.csv") for number in (0, 1)])["score"].to_numpy(dtype=float)


WAYS: list[Callable[[Path, pd.DataFrame, Path], Any]] = [
    by_predict_run,
    by_predict,
    by_subsets,
    by_explanations,
    by_instance_files,
    by_estimator,
    by_frame,
    by_frames,
    by_saved_estimator,
    by_command,
    by_slices,
]
_ALONE = (by_command, by_slices)  # commands, which print what others raise


@pytest.mark.parametrize(("way", "change"), each(WAYS, [shuffled, wider]), ids=lambda one: one.__name__)
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


def test_features_beside_are_noted(trained: tuple[Path, pd.DataFrame]) -> None:
    run, frame = trained
    with pytest.warns(Note, match="did not use: noise"):
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
    found = evaluate_bags(load_run(run), bags_of(shuffled(frame))).result
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
    with pytest.raises(BagDataError, match=r"rename the columns: did you mean 'Area'\?"):
        align_features(bags, FEATURES, reference="the run")
    with pytest.raises(BagDataError, match=r"rename the columns: there are none\."):
        align_features(Bags.from_dataframe(table().drop(columns="area")), FEATURES, reference="the run")


FORMS = ["csv", "npz", "h5", "h5 attribute", "zarr", "pt"]


def write_file(folder: Path, bag: str, part: pd.DataFrame, form: str, *, named: bool = True) -> None:
    """One file of a bag, which says the names of its features, or not."""
    kind, _, how = form.partition(" ")
    path, names = folder / f"{bag}.{kind}", list(part.columns)
    if kind == "csv":
        part.to_csv(path, index=False, header=named)
    elif kind == "npz":
        np.savez(path, features=part.to_numpy(), **({"feature_names": names} if named else {}))
    elif kind == "pt":
        torch.save({"features": torch.tensor(part.to_numpy()), **({"feature_names": names} if named else {})}, path)
    else:
        file = h5py.File(path, "w") if kind == "h5" else zarr.open_group(str(path), mode="w")
        if kind == "h5":
            file["features"] = part.to_numpy()
        else:
            file.create_array("features", data=part.to_numpy())
        if named and kind == "h5" and not how:
            file["feature_names"] = names
        elif named:
            file["features"].attrs["feature_names"] = names
        if kind == "h5":
            file.close()


def write_files(folder: Path, form: str, change: Callable[[int, pd.DataFrame], pd.DataFrame], **how: bool) -> Path:
    """A folder of a file a bag, of the features that `change` makes of those of a bag and its number."""
    folder.mkdir()
    for number, (bag, part) in enumerate(table().groupby("bag")):
        write_file(folder, str(bag), change(number, part[FEATURES]), form, **how)
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_files_of_bags_have_features_by_name(tmp_path: Path, form: str) -> None:
    turned = ["länge", "area", "depth"]
    plain = read_bags(write_files(tmp_path / "a", form, lambda _, part: part), require_labels=False)
    mixed = read_bags(
        write_files(tmp_path / "b", form, lambda n, part: part[turned] if n % 2 else part), require_labels=False
    )
    assert plain.feature_names == mixed.feature_names == tuple(FEATURES)
    rows = np.arange(plain.num_instances)
    np.testing.assert_array_equal(mixed.gather(rows), plain.gather(rows))
    np.testing.assert_array_equal(mixed.instances[3:9], plain.instances[3:9])
    again = pickle.loads(pickle.dumps(mixed))
    np.testing.assert_array_equal(again.gather(rows[::-3]), plain.gather(rows[::-3]))


@pytest.mark.parametrize("form", FORMS)
def test_files_of_other_features_are_refused_by_name(tmp_path: Path, form: str) -> None:
    other = write_files(
        tmp_path / "a", form, lambda n, part: part.set_axis(["area", "depth", "size"], axis=1) if n == 5 else part
    )
    with pytest.raises(BagDataError, match=r"features of most files, got no 'länge' .*b05"):
        read_bags(other, require_labels=False)
    with pytest.warns(UserWarning, match=r"b05.*features of most files, got no"):
        assert len(read_bags(other, require_labels=False, missing="skip")) == COUNT - 1
    twice = write_files(tmp_path / "b", form, lambda n, part: part.set_axis(["a", "b", "a "], axis=1))
    with pytest.raises(BagDataError, match="'a'"):
        read_bags(twice, require_labels=False)


@pytest.mark.parametrize("form", FORMS)
def test_files_that_do_not_name_their_features_are_noted(tmp_path: Path, form: str) -> None:
    named = write_files(tmp_path / "a", form, lambda _, part: part)
    for path in list(named.iterdir())[:3]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_file(named, path.stem, table()[table()["bag"] == path.stem][FEATURES], form, named=False)
    with pytest.warns(Note, match="3 of 24 files do not name their features"):
        read_bags(named, require_labels=False)


def test_a_csv_of_a_bag_with_row_numbers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    table()[FEATURES].to_csv(tmp_path / "files" / "a.csv")
    with pytest.raises(BagDataError, match="got none for column 1"):
        read_bags(tmp_path / "files", require_labels=False)


def test_an_npz_file_of_all_bags_names_its_features(tmp_path: Path) -> None:
    bags = bags_of(table())
    write_npz(bags, tmp_path / "a.npz")
    assert read_bags(tmp_path / "a.npz").feature_names == tuple(FEATURES)
    arrays = dict(np.load(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz", **{"columns" if key == "feature_names" else key: own for key, own in arrays.items()})
    with pytest.raises(BagDataError, match="Expected the key 'feature_names', got 'columns'"):
        read_bags(tmp_path / "b.npz")


def test_training_and_validation_have_features_by_name() -> None:
    bags, other = bags_of(table()), bags_of(shuffled(table()))
    found = []
    for val in (bags, other):
        trainer = Trainer(midam.Settings(epochs=1, members=1).resolve((3,)), bags, val)
        found.append(trainer.train_epoch()["val_auroc"])
        model = trainer.model
        np.testing.assert_array_equal(midam.predict(model, other), midam.predict(model, bags))
        np.testing.assert_array_equal(trainer.scores(other, trainer.reader(other)), midam.predict(model, bags))
    assert found[0] == found[1]


def test_names_on_one_side_alone_are_noted(trained: tuple[Path, pd.DataFrame]) -> None:
    run, frame = trained
    loaded, bags = load_run(run), bags_of(frame)
    with pytest.warns(Note, match="have no names: they are read in the order of .*: area, depth"):
        predict_run(loaded, bags.replace(feature_names=None))
    with pytest.warns(Note, match="keep their order: the run has no names: area"):
        assert align_features(bags, None, reference="the run").feature_names is None


def shifted(folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame], *, rows: slice = slice(None)) -> Path:
    frame = table(seed=1)
    frame[FEATURES] = change(frame[FEATURES])
    frame[rows].to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda x: x * 1000, "area, depth, länge"),
        (lambda x: x.assign(depth=x.depth + 900), "depth"),
        (lambda x: x.assign(länge=x.länge / 1000), "länge"),
    ],
    ids=["times 1000", "one apart", "one narrow"],
)
def test_features_in_other_units_are_named_at_each_door(trained, tmp_path, capsys, change, named):
    run, new = load_run(trained[0]), shifted(tmp_path, change)
    text = f"values of {named} are far from those of the training of"
    for command in ("predict", "evaluate"):
        assert main([command, str(trained[0]), str(new), "--out", str(tmp_path / f"{command}.json")]) == 0
        assert capsys.readouterr().err.replace("\n", " ").count(text) == 1
    assert text in (tmp_path / "report-new.html").read_text()
    with pytest.warns(UserWarning, match=text):
        predict_run(run, read_bags(new))
    with pytest.warns(UserWarning, match=text):
        midam.MIDAMClassifier.load(trained[0]).predict(read_bags(new))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        lambda x: x + 2 * x.std(),
        lambda x: x * 2,
        lambda x: x.mul(np.where(x.index % 3 == 1, 1e6, 1), axis=0).assign(area=1.0),
    ],
    ids=["same", "two deviations", "twice", "outliers, constant"],
)
def test_honest_shifts_are_no_other_units(trained, tmp_path, capsys, change):
    for rows in (slice(None), slice(4)):
        new = shifted(tmp_path, change, rows=rows)
        assert main(["predict", str(trained[0]), str(new), "--out", str(tmp_path / "s.csv")]) == 0
        assert "far from" not in capsys.readouterr().err


def test_few_instances_in_other_units_need_several_features(trained, tmp_path):
    run = load_run(trained[0])
    wide = Bags.from_list(np.random.default_rng(0).normal(size=(40, 5, 50)), [0, 1] * 20)
    known = ordinary_values(wide)
    one = np.zeros((1, 3, 50))
    one[..., 7] = 1000
    warn_of_units(Bags.from_list(one), known, run="run")
    many = Bags.from_list(one.repeat(7, axis=1))
    with pytest.warns(UserWarning, match=r"values of 7 are far .* run: 7 1000 to 1000, not -1\.\d+ to 1\.\d+"):
        warn_of_units(many, known, run="run")
    with pytest.warns(UserWarning, match="values of area, depth, länge are far"):
        predict_run(run, read_bags(shifted(tmp_path, lambda x: x * 1e4, rows=slice(4))))


def test_times_of_one_bag_are_not_too_narrow():
    x = [np.arange(30.0)[:, None] + 1000 * bag for bag in range(40)]
    bags = Bags.from_list(x, [0, 1] * 20)
    known = ordinary_values(bags)
    for bag in (0, 20, 39):
        warn_of_units(bags.subset([bag]), known, run="run")
    with pytest.warns(UserWarning, match="values of 0 are far"):
        warn_of_units(Bags.from_list([part / 1000 for part in x]), known, run="run")


def test_sparse_features_and_images_have_no_units():
    x = np.zeros((40, 5, 2))
    x[::4, 0] = 0.001
    known = ordinary_values(Bags.from_list(x, [0, 1] * 20))
    warn_of_units(Bags.from_list(x * 1e6), known, run="run")
    assert ordinary_values(Bags.from_list(np.zeros((2, 1, 3, 4, 4)), [0, 1]))["extent"] is None
