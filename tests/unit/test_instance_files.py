"""Instance scores on disk: the layout, the numbers, the chunks, and what must not be written over."""

import errno
import multiprocessing
import os
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.row_files import row_file
from tests.trainings import make_scorers

from midam.data.bags import Bags
from midam.errors import MidamError, RunExistsError
from midam.evaluate.pooled import instance_scores
from midam.evaluate.predict import predict
from midam.files import is_left
from midam.runs.instance_files import file_name, write_instance_scores

h5py = pytest.importorskip("h5py")

POOLINGS = ["attention", "embedding-attention", "smoothed-max", "mean", "max", "noisy-and", "generalized-mean"]
IDS = ["slide/1", "slide 2", ".x", "ü" * 90]


def make_bags(*, ids=IDS, tmp_path=None):
    rng = np.random.default_rng(0)
    sizes = np.array([1500, 1, 700, 30])
    x = rng.normal(size=(sizes.sum(), 4)).astype(np.float32)
    rows = x if tmp_path is None else row_file(tmp_path / "rows", x, reads="pread")
    coords = rng.integers(0, 10_000, size=(len(x), 2)).astype(np.int32)
    return Bags(rows, starts=np.cumsum(sizes) - sizes, sizes=sizes, ids=ids, coords=coords)


def read(path):
    with h5py.File(path) as file:
        found = {}
        file.visititems(lambda name, node: found.update({name: node[:]}) if isinstance(node, h5py.Dataset) else None)
        return found, dict(file.attrs)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("members", [1, 3])
def test_a_file_holds_what_instance_scores_gives(pooling, members, tmp_path):
    model, bags = make_scorers(pooling, members), make_bags(tmp_path=tmp_path)
    scores = write_instance_scores(model, bags, tmp_path / "out", chunk_size=256)
    np.testing.assert_allclose(scores, predict(model, bags), rtol=0, atol=1e-6)
    assert len(list((tmp_path / "out").iterdir())) == 4
    for i, bag in enumerate(bags.ids):
        found, attributes = read(tmp_path / "out" / f"{file_name(str(bag))}.h5")
        expected = instance_scores(model, bags, i, chunk_size=256)
        assert found["attention_scores"].shape == (bags.sizes[i], 1)
        assert found["attention_scores"].dtype == found["score"].dtype == found["weight"].dtype == np.float32
        np.testing.assert_array_equal(found["coords"], bags.places(i))
        for name, array in (("score", expected.score), ("weight", expected.weight)):
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(found["attention_scores"][:, 0], expected.attention, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["weight"].sum(dtype=np.float64), 1, rtol=1e-5)
        assert (attributes["bag"], attributes["members"], attributes["pooling"]) == (bag, members, pooling)
        assert attributes["bag_score"] == scores[i] == np.mean(attributes["member_scores"])
        assert ("members/score" in found) == (members > 1)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(("members", "attention"), [(1, "per-class"), (2, "shared")])
def test_a_file_of_several_columns_holds_all_of_them(pooling, members, attention, tmp_path):
    more = {"attention": attention} if "attention" in pooling else {}
    model = make_scorers(pooling, members, columns=3, **more)
    with torch.no_grad():
        for number, weights in enumerate(model.parameters()):
            weights.add_(torch.linspace(-0.4, 0.4, weights.numel()).view(weights.shape) * (1 + number % 2))
    bags = make_bags()
    scores = write_instance_scores(model, bags, tmp_path, columns=["a", "b", "c"], chunk_size=256)
    np.testing.assert_allclose(scores, predict(model, bags), rtol=0, atol=1e-6)
    assert np.ptp(scores, axis=1).min() > 0
    for i, bag in enumerate(bags.ids):
        found, attributes = read(tmp_path / f"{file_name(str(bag))}.h5")
        expected = [instance_scores(model, bags, i, column=c, chunk_size=256) for c in range(3)]
        for name, key in (("score", "score"), ("weight", "weight"), ("attention_scores", "attention")):
            assert found[name].shape == (bags.sizes[i], 3)
            wanted = np.stack([getattr(own, key) for own in expected], axis=1)
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)
            if members == 1:
                assert f"members/{name}" not in found
                continue
            own = [np.stack([getattr(one, key) for one in column.members], axis=1) for column in expected]
            np.testing.assert_allclose(found[f"members/{name}"], np.stack(own, axis=2), rtol=1e-5, atol=1e-6)
        assert attributes["columns"].tolist() == ["a", "b", "c"]
        assert np.array_equal(attributes["bag_score"], scores[i])
        np.testing.assert_allclose(attributes["member_scores"].mean(axis=0), scores[i], rtol=1e-12)


def test_a_file_system_that_reserves_no_room_is_written_to_all_the_same(tmp_path, monkeypatch):
    def unsupported(handle, start, size):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    model, bags = make_scorers("mean"), make_bags()
    scores = write_instance_scores(model, bags, tmp_path / "out")
    np.testing.assert_allclose(scores, predict(model, bags), rtol=0, atol=1e-6)
    assert len(list((tmp_path / "out").iterdir())) == 4


def pooled(pooling, score, z, weight):
    """Score of a bag from what is in its file, by the definition of the pooling."""
    score, z, weight = (x.astype(np.float64) for x in (score, z, weight))
    if pooling == "attention":
        return 1 / (1 + np.exp(-(weight * (np.log(score) - np.log1p(-score))).sum()))
    if pooling == "mean":
        return (weight * score).sum()
    if pooling == "max":
        return score[weight == 1].item()
    level = np.logaddexp.reduce(z) - np.log(len(z))
    return 0.1 * level if pooling == "smoothed-max" else np.exp(level / 4)


@pytest.mark.parametrize("pooling", ["attention", "mean", "max", "smoothed-max", "generalized-mean"])
def test_the_instances_of_each_member_pool_to_its_score(pooling, tmp_path):
    bags = make_bags()
    write_instance_scores(make_scorers(pooling, 2), bags, tmp_path, chunk_size=100)
    for bag in bags.ids:
        found, attributes = read(tmp_path / f"{file_name(str(bag))}.h5")
        columns = zip(*(found[f"members/{name}"].T for name in ("score", "attention_scores", "weight")), strict=True)
        np.testing.assert_allclose(
            [pooled(pooling, *column) for column in columns], attributes["member_scores"], rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("pooling", POOLINGS)
def test_chunks_do_not_matter(pooling, tmp_path):
    model, bags = make_scorers(pooling, 2), make_bags()
    found = []
    for chunk_size in (100, 1000, 10**6):
        write_instance_scores(model, bags, tmp_path / str(chunk_size), chunk_size=chunk_size)
        found.append([read(tmp_path / str(chunk_size) / f"{file_name(str(bag))}.h5") for bag in bags.ids])
    for other in found[1:]:
        for (mine, score), (its, its_score) in zip(found[0], other, strict=True):
            assert list(mine) == list(its)
            for name in mine:
                np.testing.assert_allclose(mine[name], its[name], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(score["bag_score"], its_score["bag_score"], rtol=0, atol=1e-6)


def test_a_file_that_is_there_is_kept_and_nothing_is_written(tmp_path):
    bags, kept = make_bags(), tmp_path / f"{file_name('slide 2')}.h5"
    kept.write_text("mine")
    with pytest.raises(RunExistsError, match=r"got 1 of them .*slide 2\.h5"):
        write_instance_scores(make_scorers("mean"), bags, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert kept.read_text() == "mine"


def test_a_file_appears_once_it_is_whole(tmp_path):
    model, seen = make_scorers("attention"), []
    model.members[0].encoder.register_forward_hook(lambda *_: seen.append({p.name for p in tmp_path.iterdir()}))
    write_instance_scores(model, make_bags().subset([0]), tmp_path, chunk_size=1000)
    name = f"{file_name(IDS[0])}.h5"
    assert len(seen) == 2
    assert all(is_left(Path(*found)) for found in seen)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_error_leaves_no_half_file(tmp_path):
    model = make_scorers("attention")

    def stop(*_):
        if any(tmp_path.glob("*.h5")):
            raise KeyboardInterrupt

    model.members[0].encoder.register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        write_instance_scores(model, make_bags(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{file_name(IDS[0])}.h5"]


def write_to_the_limit(folder, queue):
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try:
        write_instance_scores(make_scorers("attention", 2), make_bags(), folder)
    except MidamError as error:
        queue.put(str(error))


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(tmp_path):
    # A process of its own has the limit.
    context = multiprocessing.get_context("forkserver")
    queue = context.SimpleQueue()
    process = context.Process(target=write_to_the_limit, args=(tmp_path, queue))
    process.start()
    message = queue.get()
    process.join()
    assert process.exitcode == 0
    assert f"Expected to write {tmp_path / file_name(IDS[0])}.h5" in message
    assert message.endswith("free space or grant access, and repeat.")
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MidamError, match=r"midam\[hdf5\]"):
        write_instance_scores(make_scorers("mean"), make_bags(), tmp_path)


def test_names_of_files_are_safe_and_differ():
    names = ["a/b", "a%2Fb", "..", ".", "a\\b", "a:b", "ä", "a\n", "x" * 200, "x" * 201, "patient 7 (left)"]
    made = [file_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert all(not set(name) & set('/\\:*?"<>|\n\0') and name[0] != "." and len(name) < 200 for name in made)
    assert made[-1] == "patient 7 (left)"
