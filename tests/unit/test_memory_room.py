"""Instances that do not fit into memory are refused where somebody asked for them."""

import numpy as np
import pytest
import torch
from tests.row_files import row_file

from midam.cli import main
from midam.data import on_disk
from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.sources import read_bags, table_files
from midam.data.store import write_store
from midam.errors import BagDataError, ConfigError


@pytest.fixture
def little(monkeypatch):
    """Memory of which a hundred bytes are free."""
    monkeypatch.setattr(on_disk, "free_memory", lambda device=None: 100)


def bags_on_disk(tmp_path):
    rows = row_file(tmp_path / "rows", np.ones((40, 4), np.float16), reads="pread")
    return Bags(rows, sizes=[10] * 4, labels=[0, 1, 0, 1])


def test_resident_instances_that_do_not_fit_are_refused(tmp_path, little, monkeypatch):
    bags = bags_on_disk(tmp_path)
    with pytest.raises(ConfigError, match=r"320 bytes of free memory on the device cpu, .*, got 100 bytes .*leave out"):
        InstanceReader(bags, resident=True)
    assert InstanceReader(bags).all is None
    few = bags.subset([1])  # 80 bytes
    assert InstanceReader(few, resident=True).all.shape == (10, 4)
    with pytest.raises(ConfigError, match="Expected 160 bytes"):
        InstanceReader(few, resident=True, transform=lambda x: x.float())
    monkeypatch.setattr(on_disk, "free_memory", lambda device=None: 320)
    assert InstanceReader(bags, resident=True).all.shape == (40, 4)


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_files_that_do_not_fit_are_refused(suffix, tmp_path, little, monkeypatch):
    monkeypatch.setattr(table_files, "_SMALL", 100)
    path = tmp_path / f"bags{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, X=np.zeros((100, 2)), bag=np.repeat(np.arange(4), 25), y=[0, 1, 0, 1])
    else:
        path.write_text("bag,label,a\n" + "".join(f"b{n % 4},{n % 2},1.5\n" for n in range(40)))
    with pytest.raises(BagDataError, match=r"fits into the 100 bytes of free memory.*midam data import"):
        read_bags(path)


def test_the_command_says_what_to_leave_out(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(5, 3)) for _ in range(40)], labels=[0, 1] * 20)
    write_store(bags, tmp_path / "store")
    monkeypatch.setattr(on_disk, "free_memory", lambda device=None: 100)
    words = ["fit", str(tmp_path / "store"), "--epochs", "1", "--members", "1", "--no-baseline", "--out"]
    assert main([*words, str(tmp_path / "run"), "--resident", "true"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "got 100 bytes" in said
    assert "leave out --resident" in said
    assert not (tmp_path / "run" / "config.yaml").exists()
    assert main([*words, str(tmp_path / "run")]) == 0


def test_the_memory_of_this_machine_holds_a_little(tmp_path):
    assert InstanceReader(bags_on_disk(tmp_path), resident=True, device=torch.device("cpu")).all is not None
