"""`midam data import | describe | verify` in real processes: killed, stopped, out of room, resumed."""

import json
import multiprocessing
import signal

import numpy as np
import pytest
from tests.integration.commands import Moment, finish, rows, run, start, stop, table

from midam.cli import main
from midam.data.bags import Bags
from midam.data.store import is_store, open_store, verify_store
from midam.data.store import write as store_rows
from studies.sets.catalog import load
from studies.sets.npz import write_npz

BAGS = 60


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Bags in an npz, and the store that an uninterrupted import makes of them."""
    folder = tmp_path_factory.mktemp("source")
    rng = np.random.default_rng(0)
    sizes = rng.integers(50, 150, BAGS)
    values = rng.normal(size=(sizes.sum(), 64)).astype("f4")
    bags = Bags(values, starts=np.cumsum(sizes) - sizes, sizes=sizes, labels=np.arange(BAGS) % 2)
    write_npz(bags, folder / "bags.npz")
    assert main(["data", "import", str(folder / "bags.npz"), "--out", str(folder / "whole")]) == 0
    return folder


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _slowly(arguments, log, wait_at):
    # Each bag is noted as soon as it is written, so that a kill between two bags is no rare thing.
    store_rows._COMMIT_SECONDS = 0.0
    store_rows._LARGE = 1
    run(arguments, log, None, wait_at, {"drawn": False})


def begin(source, out, log, wait_at=None):
    """Start an import that notes each bag."""
    arguments = ("data", "import", str(source / "bags.npz"), "--out", str(out), "--jobs", "2")
    process = multiprocessing.get_context("forkserver").Process(target=_slowly, args=(arguments, str(log), wait_at))
    process.start()
    return process


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_a_killed_import_goes_on(source, tmp_path, seed):
    rng = np.random.default_rng(seed)
    out, journal, log = tmp_path / "out", tmp_path / ".out.journal", tmp_path / "log"
    left = []
    for first in (0, BAGS // 3, 2 * BAGS // 3):
        bags = int(rng.integers(first, first + BAGS // 4))
        moment = Moment(journal, bags, delay=rng.uniform(0, 0.003))
        assert stop(begin(source, out, log, moment), signal.SIGKILL) == -signal.SIGKILL
        assert not out.exists()
        assert not is_store(tmp_path / ".out.part")
        left.append(rows(journal))
    assert left == sorted(left)
    assert left[-1] >= 2 * BAGS // 3
    assert finish(begin(source, out, log)) == 0
    assert content(out) == content(source / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_import_says_how_it_goes_on(source, tmp_path, number):
    out, journal, log = tmp_path / "out", tmp_path / ".out.journal", tmp_path / "log"
    assert stop(begin(source, out, log, Moment(journal, 10)), number) == 130
    text = log.read_text()
    assert "bags are written" in text
    assert "repeat the command to continue" in text
    assert "Traceback" not in text
    assert rows(journal) >= 10
    assert not out.exists()
    assert main(["data", "import", str(source / "bags.npz"), "--out", str(out)]) == 0
    assert content(out) == content(source / "whole")


@pytest.mark.slow
def test_a_full_disk_is_found_at_the_start(source, tmp_path):
    log = tmp_path / "log"
    arguments = ("data", "import", str(source / "bags.npz"), "--out", str(tmp_path / "out"))
    assert finish(start(*arguments, log=log, file_limit=100_000)) == 2
    text = log.read_text()
    assert "File too large (in " in text
    assert "instances.npy" in text
    assert "nothing was written" in text
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_end_keeps_what_was_written(tmp_path):
    # The instances take 4 KB and the journal 38 KB; the table, with ids this long, takes more than 50 KB.
    bags = Bags.from_list([[[1.0]]] * 500, labels=[0, 1] * 250, ids=[f"{number:x>99}" for number in range(500)])
    write_npz(bags, tmp_path / "bags.npz")
    out, log, limit = tmp_path / "out", tmp_path / "log", 50_000
    arguments = ("data", "import", str(tmp_path / "bags.npz"), "--out", str(out))
    assert finish(start(*arguments, log=log, file_limit=limit)) == 2
    text = log.read_text()
    assert "bags.csv); free space and repeat the command" in text
    assert ".out.part" in text
    assert not out.exists()
    assert not is_store(tmp_path / ".out.part")
    assert main(list(arguments)) == 0
    assert verify_store(out) == []
    assert len(open_store(out)) == 500


@pytest.mark.slow
def test_a_store_trains_like_the_data_that_it_was_made_of(here, capsys):
    assert main(["data", "import", "digits", "--out", "store", "--jobs", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0].startswith("store: store (360 bags, 3667 instances, ")
    assert captured.out.splitlines()[1] == "next: midam fit store"
    assert captured.err.splitlines()[-1] == "importing 360/360 bags"
    for data in ("digits", "store"):
        assert main(["fit", data, "--epochs", "2", "--members", "1", "--no-baseline", "--out", f"run-{data}"]) == 0
    one, other = ((here / f"run-{data}" / "predictions.csv").read_bytes() for data in ("digits", "store"))
    assert one == other
    capsys.readouterr()
    assert main(["evaluate", "run-digits", "store"]) == 0
    assert "test bags: AUROC" in capsys.readouterr().out


def test_a_table_keeps_what_it_says(here, capsys):
    data = table("t.csv", site=[f"s{bag // 4}" for bag in range(40)], part=["train"] * 24 + ["val"] * 8 + ["test"] * 8)
    assert main(["data", "import", str(data), "--out", "s", "--groups", "site", "--split", "part"]) == 0
    bags = open_store("s")
    assert bags.groups.tolist() == [f"s{bag // 4}" for bag in range(40)]
    assert bags.splits.tolist() == ["train"] * 24 + ["val"] * 8 + ["test"] * 8
    assert bags.feature_names == ("f0", "f1", "f2", "f3")
    assert json.loads((here / "s" / "store.json").read_text())["source"] == "t.csv"
    capsys.readouterr()
    assert main(["data", "import", str(data), "--out", "s"]) == 2
    assert "which exists" in capsys.readouterr().err


def test_unlabeled_bags_are_imported_on_request(here, capsys):
    write_npz(Bags.from_list([[[1.0]], [[2.0]]]), here / "x.npz")
    assert main(["data", "import", "x.npz", "--out", "s"]) == 2
    assert main(["data", "import", "x.npz", "--out", "s", "--unlabeled"]) == 0
    assert "next: midam predict RUN s" in capsys.readouterr().out
    assert open_store("s").labels is None
    assert main(["data", "describe", "s"]) == 0
    assert "bags: 2 (unlabeled)" in capsys.readouterr().out


def test_verify_names_the_damaged_bags(here, source, capsys):
    assert main(["data", "verify", str(source / "whole")]) == 0
    assert (
        capsys.readouterr().out
        == f"sound: {source / 'whole'} (60 bags, {sum(open_store(source / 'whole').sizes)} instances)\n"
    )
    assert main(["data", "import", str(source / "bags.npz"), "--out", "s"]) == 0
    bags = open_store("s")
    data = bytearray((here / "s" / "instances.npy").read_bytes())
    for number in (7, 41):
        data[bags.instances.offset + int(bags.starts[number]) * bags.instances.row_bytes + 5] ^= 64
    (here / "s" / "instances.npy").write_bytes(data)
    capsys.readouterr()
    assert main(["data", "verify", "s", "--jobs", "2"]) == 1
    lines = capsys.readouterr().err.splitlines()[-3:]
    assert lines[:2] == [f"damaged: bag {number} (in s/instances.npy)" for number in (7, 41)]
    assert lines[2].startswith("2 of 60 bags are damaged")
    (here / "s" / "instances.npy").write_bytes(data[:-1])
    assert main(["data", "verify", "s"]) == 2
    assert "instances.npy" in capsys.readouterr().err


def test_describe_shows_sizes_and_warnings(here, capsys):
    digits = load("digits")
    order = np.argsort(digits.sizes, kind="stable")
    starts, sizes = digits.starts[order], digits.sizes[order]
    write_npz(Bags(digits.instances, starts=starts, sizes=sizes, labels=np.arange(360) // 180), here / "sorted.npz")
    assert main(["data", "describe", "sorted.npz"]) == 0
    out = capsys.readouterr().out
    assert "warning: the bag size predicts the label" in out
    assert "warning: constant features: 3 of 64 (0, 32, 39)" in out
    assert main(["data", "describe", "digits"]) == 0
    assert "bag size predicts" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["verify", "none"], "none"),
        (["verify", "."], "store.json"),
        (["import", "digits"], "--out"),
        (["import", "digits", "--out", "s", "--jobs", "0"], "--jobs"),
        (["import", "digits", "--out", "s", "--epochs", "3"], "'epochs'"),
        (["describe", "none"], "none"),
        ([], "import"),
    ],
)
def test_bad_commands(here, capsys, command, word):
    assert main(["data", *command]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("midam: error: Expected ")
    assert word in line
    assert list(here.iterdir()) == []
