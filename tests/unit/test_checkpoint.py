import io
import os
import pickle
import random
import re
import resource
import signal
import zipfile

import numpy as np
import pytest
import torch

from midam import MIDAMClassifier
from midam.errors import CheckpointError, ConfigError
from midam.train.checkpoint import FORMAT, TrainerContent, fitting, load_checkpoint, save_checkpoint

CONTENT = {"weights": torch.arange(2000, dtype=torch.float32), "epoch": 3, "name": "run", "rows": [{"a": None}]}


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "deep" / "c.pt"
    save_checkpoint(file, CONTENT)
    return file


def test_what_is_saved_is_loaded(path):
    loaded = load_checkpoint(path)
    assert torch.equal(loaded["weights"], CONTENT["weights"])
    assert loaded["rows"] == [{"a": None}]
    assert loaded["format"] == FORMAT
    assert [file.name for file in path.parent.iterdir()] == ["c.pt"]


def test_a_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match=r"got nothing at .*none\.pt"):
        load_checkpoint(tmp_path / "none.pt")
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path)


def test_no_damage_passes_for_a_checkpoint(path):
    # A flipped bit in a weight is the worst: torch.load reads it without a word.
    raw, rng = path.read_bytes(), random.Random(0)
    refused = 0
    for round_ in range(150):
        damaged = bytearray(raw)
        place = rng.randrange(len(damaged))
        if round_ % 3 == 0:
            damaged[place] ^= 1 << rng.randrange(8)
        elif round_ % 3 == 1:
            damaged = damaged[:place]
        else:
            damaged = bytearray(rng.randbytes(rng.randrange(400)))
        path.write_bytes(damaged)
        if _is_refused(path):
            refused += 1
        else:
            # The bit belonged to no content, such as the padding between two records.
            loaded = load_checkpoint(path)
            assert torch.equal(loaded["weights"], CONTENT["weights"])
            assert loaded["epoch"] == 3
    assert refused > 140


def _is_refused(path):
    try:
        load_checkpoint(path)
    except CheckpointError as error:
        return str(path) in str(error) and "\n" not in str(error)
    return False


@pytest.mark.parametrize("wrap", ["torch", "torch-legacy", "pickle"])
def test_a_pickle_with_code_does_not_run(wrap, tmp_path):
    made, path = tmp_path / "made", tmp_path / "c.pt"
    content = {"format": FORMAT, "weights": Bomb(made)}
    if wrap == "pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=wrap == "torch")
    with pytest.raises(CheckpointError, match=r"c\.pt"):
        load_checkpoint(path)
    assert not made.exists()
    with zipfile.ZipFile(path) if wrap == "torch" else io.BytesIO():
        torch.load(path, weights_only=False) if wrap != "pickle" else pickle.loads(path.read_bytes())
    assert made.exists(), "the file must have been dangerous for this test to mean anything"


def test_foreign_and_incomplete_files_are_told_apart(tmp_path):
    path = tmp_path / "c.pt"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(CheckpointError, match="of midam, got something else"):
        load_checkpoint(path)
    torch.save([1, 2], path)
    with pytest.raises(CheckpointError, match="of midam"):
        load_checkpoint(path)
    torch.save({"format": FORMAT + 1}, path)
    with pytest.raises(CheckpointError, match="format 3, got 4"):
        load_checkpoint(path)
    save_checkpoint(path, {"model": {}})
    with pytest.raises(CheckpointError, match="of midam"):
        load_checkpoint(path, TrainerContent)


def test_a_failed_write_keeps_the_old_file_and_names_it(path):
    before = path.read_bytes()
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        with pytest.raises(OSError) as caught:
            save_checkpoint(path, {"epoch": 4})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_scale_of_a_constant_feature_may_be_infinite_and_no_other_weight(tmp_path):
    bags = [np.array([[i, 5.0], [-i, 5.0]], dtype=float) for i in range(20)]
    MIDAMClassifier(epochs=1, members=1).fit(bags, np.arange(20) % 2).save(tmp_path / "run")
    file, scale = tmp_path / "run" / "model.pt", "members.0.standardizer.scale"
    content = torch.load(file, weights_only=True)
    assert torch.isinf(content["model"][scale]).tolist() == [False, True]
    MIDAMClassifier.load(tmp_path / "run")
    for name, wrong in ((scale, torch.nan), ("members.0.standardizer.center", torch.inf)):
        weights = content["model"] | {name: torch.full_like(content["model"][name], wrong)}
        torch.save(content | {"model": weights}, file)
        with pytest.raises(CheckpointError, match=name):
            MIDAMClassifier.load(tmp_path / "run")


@pytest.mark.parametrize("error", [ConfigError("Expected A, got B; fit again."), ValueError("no such shape")])
def test_an_error_of_a_state_names_the_file(error, tmp_path):
    with (
        pytest.raises(CheckpointError, match=re.escape(f"(in {tmp_path / 'model.pt'})")),
        fitting(tmp_path / "model.pt"),
    ):
        raise error
