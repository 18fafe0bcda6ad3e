"""The benchmarks of large bags measure what they say: on small files, in real processes."""

import json
import os
import time
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import io_formats, large_bags, large_bags_training, memory, memory_members
from benchmarks.shared import AnonymousPeak, forget, resident_share, sparse_store
from sklearn.datasets import load_digits
from tests.row_files import row_file

from midam.data.on_disk import RowFile
from midam.data.store import open_store
from midam.settings import Settings
from studies.regime.bags import Counts, split_images

pytestmark = pytest.mark.drawn

MIB = 1 << 20


def test_sparse_store_opens_and_takes_no_room(tmp_path: Path) -> None:
    folder = sparse_store(tmp_path / "store", bags=4, size=10_000, width=256)
    bags = open_store(folder)
    assert bags.sizes.tolist() == [10_000] * 4
    assert bags.require_labels().tolist() == [0, 1, 0, 1]
    assert not np.asarray(bags[3]).any()
    assert sum(file.stat().st_blocks for file in folder.iterdir()) * 512 < MIB < bags.instances.nbytes


def test_forgotten_files_leave_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with path.open("wb") as file:
        file.write(np.random.default_rng(0).bytes(4 * MIB))
        file.flush()
        os.fsync(file.fileno())  # What is not yet on the disk cannot be dropped.
    path.read_bytes()
    before = resident_share([path])
    forget([path])
    assert before > 0.9
    assert resident_share([path]) < 0.1


def test_rows_on_the_disk_are_asked_for_before_they_are_read(tmp_path: Path) -> None:
    rows = row_file(tmp_path / "rows", np.arange(2**22, dtype=np.float32).reshape(-1, 1024), reads="pread")
    positions = np.arange(0, len(rows), 2)
    file = FileIO(rows.path)
    os.fsync(file.fileno())
    forget(rows.paths)
    rows._announce(file, positions)
    deadline = time.monotonic() + 20
    while resident_share(rows.paths) < 0.5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert resident_share(rows.paths) >= 0.5
    file.close()
    for reads in ("pread", "mmap"):
        forget(rows.paths)
        found = RowFile(rows.path, shape=rows.shape, dtype=rows.dtype, reads=reads).gather(positions)
        assert np.array_equal(found[:, 0], positions * 1024.0)


def test_anonymous_peak_sees_what_was_given_back() -> None:
    with AnonymousPeak() as idle:
        pass
    with AnonymousPeak() as peak:
        held = np.ones(64 * MIB, dtype=np.uint8)
        time.sleep(0.05)
        del held
        time.sleep(0.05)
    assert peak.mib > idle.mib + 50


@pytest.mark.long
def test_memory_counts_what_a_process_takes_and_stops_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory_members.make_files(tmp_path / "store", "store", 200)
    row = memory.measure("train", "midam", 200, store)
    assert "failed" not in row
    assert 5 < row["anon_mib"] < row["peak_mib"] + 5 < 500
    monkeypatch.setattr(memory, "LIMIT_MIB", 1)
    stopped = memory.measure("train", "midam", 200, store)
    assert (stopped["anon_mib"], stopped["failed"]) == (None, "passed 1 MiB")


def test_memory_says_what_is_flat() -> None:
    rows = [
        {"case": "score", "who": "midam", "bag_size": size, "anon_mib": anon, "peak_mib": 20.0}
        for size, anon in ((100, 1.0), (1000, 10.0), (10_000, 11.0))
    ]
    assert memory.flatness(rows, "score", "midam", "anon_mib") == pytest.approx(1.1)
    assert memory.flatness(rows[:2], "score", "midam", "anon_mib") is None
    anonymous, peak = memory.verdicts(rows)
    assert anonymous.endswith("Missed.")
    assert peak.endswith("Met.")


def test_all_formats_give_the_same_rows(tmp_path: Path) -> None:
    shape = io_formats.Shape(bags=16, rows=80, width=8)
    places, draws = io_formats.make_files(tmp_path, shape), io_formats.draw(shape, epochs=2)
    bags, slots = draws[1]
    want = np.stack([np.asarray(open_store(places["store"])[int(bag)])[own] for bag, own in zip(bags, slots)])
    for who, kind in io_formats.FORMATS.items():
        for cold in (False, True):
            batches = kind(places[who], draws, cold=cold)
            assert np.array_equal(batches[1].numpy(), want.reshape(-1, 8)), who
    for cold in (False, True):
        seen: list[torch.Tensor] = []
        run = io_formats.store_run(places["store"], draws, reads="pread", cold=cold, workers=2, on_batch=seen.append)
        run(3)
        assert len(seen) == 3
        assert np.array_equal(seen[1].numpy(), want.reshape(-1, 8))


def test_digit_bags_hold_their_witnesses_and_share_no_image(tmp_path: Path) -> None:
    plan = large_bags_training.Plan(Counts(train=6, val=0, test=4), size=1000, repeats=1, marks=(1.0,))
    bags = large_bags_training.make_store(tmp_path, plan, 3)
    digits = load_digits()
    parts = split_images(3)
    own = digits.data[np.concatenate(parts["train"])]
    scaled = ((digits.data - own.mean()) / own.std()).astype(np.float16)
    looks = {name: {scaled[i].tobytes() for part in parts[name] for i in part} for name in ("train", "test")}
    nines = {scaled[i].tobytes() for i in np.flatnonzero(digits.target == 9)}
    for name in ("train", "test"):
        for number in bags.where_split(name):
            rows = [row.tobytes() for row in np.asarray(bags[int(number)])]
            assert set(rows) <= looks[name]
            assert sum(row in nines for row in rows) == 2 * bags.require_labels()[number]


def test_timed_training_goes_on_from_mark_to_mark(tmp_path: Path) -> None:
    plan = large_bags_training.Plan(Counts(train=16, val=0, test=2), size=100, repeats=1, marks=(1.0,))
    bags = large_bags_training.make_store(tmp_path, plan, 0)
    train = bags.subset(bags.where_split("train"))
    config = Settings(members=1, standardize=False, accelerator="cpu")
    training = large_bags_training.TimedTraining(config, train)
    training.train_until(1e-9)  # Too short for a step.
    assert training.steps == 0
    seconds, steps = training.seconds, training.steps
    training.train_until(seconds + 0.05)
    assert training.steps > steps
    assert training.seconds >= seconds + 0.05
    steps = training.steps
    training.train_until(steps=steps + 3)
    assert training.steps == steps + 3
    assert 0 <= training.auroc(bags.subset(bags.where_split("test"))) <= 1


def test_a_schedule_is_foretold_and_its_pass_begins_the_second_half(tmp_path: Path) -> None:
    plan = large_bags_training.Plan(Counts(train=16, val=0, test=2), size=400)
    bags = large_bags_training.make_store(tmp_path, plan, 0)
    train = bags.subset(bags.where_split("train"))
    config = large_bags_training.settings("smoothed-max", large_bags_training.METHODS["top, chosen lr"], 0)
    assert config.training.lr == large_bags_training.CHOSEN["smoothed-max"]
    config = config.replace(**large_bags_training.schedule(config, train, 1.0))
    half = config.training.epochs // 4
    assert config.method.anneal * config.training.epochs == half
    training = large_bags_training.TimedTraining(config, train)
    memory = training.member.sampler.draw.memory
    training.train_until(steps=half)  # A step an epoch
    assert memory.passes == 0
    training.train_until(steps=half + 1)
    assert memory.passes == 1
    training.train_until(steps=2 * half - 1)
    assert memory.passes == 1


def test_all_methods_are_trained_and_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = large_bags_training.Plan(Counts(train=16, val=0, test=4), size=100, repeats=2, marks=(0.02, 0.04))
    found = large_bags.measure(plan, "smoothed-max", tmp_path)
    assert not list(tmp_path.iterdir())
    rows = found["rows"]
    assert len(rows) == 2 * 2 * len(large_bags_training.METHODS)
    assert all(row["seconds"] >= row["mark"] for row in rows)
    methods = list(large_bags_training.METHODS)
    for aim, word, other in ((0.0, "Met", "Missed"), (1.1, "Missed", "Met")):
        monkeypatch.setattr(large_bags, "AIM", aim)
        said = "\n".join(large_bags.verdicts(rows, plan, 1.0))
        assert f"{word}: `vrsp` " in said
        assert f"{other}: none." in said
    assert "`vrsp, chosen lr` minus `minibatch, chosen lr` " in said
    page = large_bags.page(rows, plan, 1.0, "command")
    assert all(f"| {method} | " in page for method in methods)
    large_bags.draw(rows, plan, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_the_rate_with_the_highest_area_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(large_bags_training, "CANDIDATES", (0.05, 0.1))
    choice = large_bags_training.Choice(Counts(train=16, val=4, test=0), size=100, steps=2)
    chosen = large_bags_training.choose_rates(tmp_path, choice)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for pooling in large_bags_training.POOLINGS:
        own = [row for row in rows if row["pooling"] == pooling]
        assert chosen[pooling] == max(own, key=lambda row: row["auroc"])["lr"]


def test_paired_differences_stand_in_the_order_of_the_repeats() -> None:
    rows = [
        {"method": method, "mark": 1.0, "repeat": repeat, "auroc": base + 0.1 * repeat}
        for method, base in (("vrsp", 0.6), ("minibatch", 0.5))
        for repeat in (1, 0)
    ]
    difference = large_bags.column(rows, "vrsp", 1.0) - large_bags.column(rows, "minibatch", 1.0)
    assert difference == pytest.approx([0.1, 0.1])
    mean, half = large_bags.interval(np.array([0.0, 1.0]))
    assert (mean, half) == pytest.approx((0.5, 12.706 / 2), abs=1e-3)
