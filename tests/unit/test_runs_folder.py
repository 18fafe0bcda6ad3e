import numpy as np
import pandas as pd
import pytest

from midam.compare.trials import safe_frame
from midam.errors import RunExistsError
from midam.reading import file_digest, read_table
from midam.runs.folder import RunFolder, csv_text, free_folder


def test_a_free_folder_is_missing_or_empty(tmp_path):
    RunFolder(tmp_path / "none").require_free()
    RunFolder(tmp_path).require_free()
    (tmp_path / "file").write_text("")
    for used in (tmp_path, tmp_path / "file"):
        with pytest.raises(RunExistsError, match=f"{used}, which holds files; choose another"):
            RunFolder(used).require_free()


def test_folders_are_numbered(tmp_path):
    assert free_folder(tmp_path, "run").root == tmp_path / "run"
    (tmp_path / "run").mkdir()
    (tmp_path / "run-2").write_text("")
    assert free_folder(tmp_path, "run").root == tmp_path / "run-3"


def test_csv_tells_any_two_float32_apart():
    rng = np.random.default_rng(0)
    values = rng.random(200, dtype=np.float32)
    values = np.concatenate([values, np.nextafter(values, np.float32(2))])
    text = csv_text(["bag", "score"], [{"bag": 'a,"b"', "score": float(v)} for v in values])
    back = np.array([line.rpartition(",")[2] for line in text.splitlines()[1:]], dtype=np.float64).astype(np.float32)
    assert np.array_equal(back, values)
    assert text.splitlines()[1].startswith('"a,""b""",')


def test_csv_leaves_unknown_values_empty():
    assert csv_text(["a", "b", "c"], [{"a": 1, "b": None, "c": 0.5}, {"a": 2}]) == "a,b,c\n1,,0.5\n2,,\n"


def test_a_header_shows_control_characters_and_is_read_again(tmp_path):
    score = "score_b\x1b[2J"
    (tmp_path / "x.csv").write_text(csv_text(["bag", score], [{"bag": "a", score: 0.5}]))
    assert (tmp_path / "x.csv").read_text() == "bag,score_b\\x1b[2J\na,0.5\n"
    table = read_table(tmp_path / "x.csv", file_digest(tmp_path / "x.csv"), names=[score])
    assert table[score].tolist() == ["0.5"]
    assert safe_frame(pd.DataFrame({score: [0.5]})).columns.tolist() == [r"score_b\x1b[2J"]
