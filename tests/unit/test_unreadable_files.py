"""A file that another program holds is not called damaged, and `sep=;` is read."""

import errno
import gzip
import subprocess
import sys

import h5py
import numpy as np
import pytest

from midam import read_bags
from midam.data.covariates import Covariates
from midam.data.sources.formats.open_file import sound
from midam.errors import BagDataError

TABLE = "bag;label;a;b\nb0;no;1,5;2\nb0;no;2;3\nb1;yes;4;1\n"


def test_an_h5_that_another_program_writes_is_not_called_damaged(tmp_path):
    (tmp_path / "f").mkdir()
    for name in "abcd":
        with h5py.File(tmp_path / "f" / f"{name}.h5", "w") as file:
            file["features"] = np.ones((3, 2), np.float32)
    (tmp_path / "labels.csv").write_text("slide,label\na,0\nb,1\nc,0\nd,1\n")
    held = f"import h5py; f = h5py.File({str(tmp_path / 'f' / 'd.h5')!r}, 'a'); print(1, flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        with pytest.raises(BagDataError, match=r"can be read, got.* lock.*d\.h5\); close it in other programs"):
            read_bags(tmp_path / "f", labels=tmp_path / "labels.csv")
    finally:
        holder.communicate(b"\n")
    assert len(read_bags(tmp_path / "f", labels=tmp_path / "labels.csv")) == 4


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EACCES, "Permission denied"), "can be read, got.*Permission denied.*grant access"),
        (OSError(errno.EMFILE, "Too many open files"), "can be read, got.*Too many open files.*raise `ulimit -n`"),
        (OSError(errno.ESTALE, "Stale file handle"), "can be read, got.*Stale file handle.*try again"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "can be read, got.*No such file"),
        (OSError("truncated file: eof = 12, sblock->base_addr = 0"), "Expected a book, got: truncated file"),
        (ValueError("bad magic"), "Expected a book, got: bad magic .*copy or write the file again"),
    ],
)
def test_what_the_system_refuses_is_told_from_damage(error, words, tmp_path):
    with pytest.raises(BagDataError, match=words), sound("a book", tmp_path / "x"):
        raise error


@pytest.mark.parametrize("head", ["sep=;\n", "sep=;\r\n", "\ufeffsep=;\n", '"sep=;"\n'])
@pytest.mark.parametrize("packed", [False, True])
def test_the_line_of_excel_that_names_the_separator_is_read_as_such(head, packed, tmp_path):
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress((head + TABLE).encode()) if packed else (head + TABLE).encode())
    with pytest.warns(UserWarning, match="is positive|decimal points"):
        bags = read_bags(path)
    assert bags.feature_names == ("a", "b")
    assert bags.instances.tolist() == [[1.5, 2], [2, 3], [4, 1]]


def test_lines_are_counted_with_the_line_that_names_the_separator(tmp_path):
    (tmp_path / "t.csv").write_text("sep=;\nbag;label;a\nb0;0;1\nb1;1;u\n")
    with pytest.raises(BagDataError, match=r"got 'u' .*line 4"):
        read_bags(tmp_path / "t.csv")


def test_a_label_table_may_name_its_separator(tmp_path):
    (tmp_path / "f").mkdir()
    for name in "ab":
        np.save(tmp_path / "f" / f"{name}.npy", np.ones((2, 2), np.float32))
    (tmp_path / "labels.csv").write_text("sep=;\nslide;label\na;0\nb;1\n")
    assert read_bags(tmp_path / "f", labels=tmp_path / "labels.csv").labels.tolist() == [0, 1]


@pytest.mark.parametrize("value", [1e300, -1e300, np.inf, "1e300"])
def test_a_covariate_beyond_float32_is_refused_at_the_door(value):
    with pytest.raises(BagDataError, match=r"Expected .* in the covariate 'age', got"):
        Covariates.of({"age": [1, 2, value]}, source="t.csv")
