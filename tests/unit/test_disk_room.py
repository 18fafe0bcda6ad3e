import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from midam.data import Bags
from midam.data.store.write import write_store
from midam.errors import StoreError


def test_a_store_that_does_not_fit_is_refused_before_it_is_written(tmp_path, monkeypatch):
    bags = Bags.from_list([np.ones((5, 4), np.float32), np.zeros((3, 4), np.float32)], labels=[0, 1])
    room = SimpleNamespace(free=127)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    with pytest.raises(StoreError, match=r"room for 128 bytes .*, got 127 bytes free"):
        write_store(bags, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
    room.free = 128
    assert write_store(bags, tmp_path / "store").is_dir()
