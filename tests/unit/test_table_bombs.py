"""Small files that unpack to more than the memory holds are refused before they are read."""

import gzip
import io
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midam.cli import main
from midam.data.sources import read_bags
from midam.errors import BagDataError

ROWS = 10**7


def parquet(path):
    """One value, said to stand in each of 1e7 rows."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**6, np.int8)), ["b0"])
    table = pa.table({"bag": column, "label": pa.array(np.zeros(10**6, np.int8)), "a": pa.array(np.zeros(10**6))})
    with pq.ParquetWriter(path, table.schema, compression="zstd", use_dictionary=True) as writer:
        for _ in range(ROWS // 10**6):
            writer.write_table(table)


def text(path):
    """Forty megabytes of the same line in some kilobytes."""
    block = b"b0,0,1.5\n" * 2**17
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"bag,label,a\n")
        for _ in range(32):
            file.write(block)


def excel(path, rows):
    """A workbook whose only sheet has these rows of XML."""
    buffer = io.BytesIO()
    pd.DataFrame({"bag": ["b0"], "label": [0], "a": [1.0]}).to_excel(buffer, index=False)
    with zipfile.ZipFile(buffer) as sound, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for member in sound.infolist():
            content = sound.read(member)
            if member.filename.startswith("xl/worksheets/"):
                content = content.replace(b"</sheetData>", rows + b"</sheetData>")
            made.writestr(member.filename, content)


def texts(path):
    """Forty megabytes of shared texts."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made, made.open("xl/sharedStrings.xml", "w") as file:
        for _ in range(40):
            file.write(bytes(2**20))


def npz_header(path):
    """A header that says 2e11 numbers, and none of them."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (2 * 10**11, 1)})
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("X.npy", head.getvalue())


def npz_zeros(path):
    np.savez_compressed(path, X=np.zeros((2**22, 1)), bag=np.zeros(2**22, np.int8), y=[0])


def long_text(path):
    """A text of two megabytes, said to stand in each of 40 rows."""
    note = pa.DictionaryArray.from_arrays(pa.array(np.zeros(40, np.int8)), ["A" * 2 * 10**6])
    columns = {"bag": pa.array(list("ab") * 20), "label": pa.array([0, 1] * 20), "note": note}
    pq.write_table(pa.table(columns | {"a": pa.array(np.zeros(40))}), path, compression="zstd")


BOMBS = {
    "corner.xlsx": lambda path: excel(path, b'<row r="9999"><c r="XFD9999"><v>1</v></c></row>'),
    "rows.parquet": parquet,
    "lines.csv.gz": text,
    "rows.xlsx": lambda path: excel(path, b'<row r="200000000"><c r="A200000000"><v>1</v></c></row>'),
    "columns.xlsx": lambda path: excel(path, b'<row><c r="XFD3"><v>1</v></c></row>' * 10**4),
    "texts.xlsx": texts,
    "header.npz": npz_header,
    "zeros.npz": npz_zeros,
}


@pytest.fixture
def little(monkeypatch):
    """Memory of which 20 megabytes are free."""
    from midam.data import on_disk

    monkeypatch.setattr(on_disk, "free_memory", lambda device=None: 2 * 10**7)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_expanded(tmp_path, name, little, capsys):
    BOMBS[name](tmp_path / name)
    assert (tmp_path / name).stat().st_size < 2 * 10**5
    what = "as the header says" if name == "header.npz" else "fits into the 19.1 MiB of free memory"
    with pytest.raises(BagDataError, match=what):
        read_bags(tmp_path / name, ignore=["path"] if name == "rows.parquet" else [])
    assert main(["data", "describe", str(tmp_path / name)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert what in said
    assert "Traceback" not in said


def test_long_texts_of_parquet_take_no_more_than_in_the_file(tmp_path, little):
    long_text(tmp_path / "t.parquet")
    tracemalloc.start()
    assert len(read_bags(tmp_path / "t.parquet", ignore=["note"])) == 2
    assert tracemalloc.get_traced_memory()[1] < 2 * 10**7
    tracemalloc.stop()


def test_styles_that_grow_beyond_all_measure_are_refused(tmp_path):
    excel(tmp_path / "t.xlsx", b"")
    with zipfile.ZipFile(tmp_path / "t.xlsx", "a", zipfile.ZIP_DEFLATED) as book, book.open("xl/a.xml", "w") as file:
        for _ in range(65):
            file.write(bytes(2**20))
    with pytest.raises(BagDataError, match=r"grows at most 200 times when it is read, got 65\.0 MiB"):
        read_bags(tmp_path / "t.xlsx")


@pytest.mark.parametrize("name", ["lines.csv.gz", "rows.xlsx", "texts.xlsx"])
def test_a_label_table_is_bounded_too(tmp_path, name, little):
    BOMBS[name](tmp_path / name)
    (tmp_path / "files").mkdir()
    np.save(tmp_path / "files" / "b0.npy", np.ones((2, 2)))
    with pytest.raises(BagDataError, match=r"fits into the 19\.1 MiB of free memory"):
        read_bags(tmp_path / "files", labels=tmp_path / name)


def test_a_sheet_of_more_rows_than_excel_has_is_refused(tmp_path, monkeypatch):
    from midam.data.sources import table_files

    monkeypatch.setattr(table_files, "EXCEL_ROWS", 10)
    pd.DataFrame({"bag": list("abcdefghijkl"), "label": 0, "a": 1.0}).to_excel(tmp_path / "t.xlsx", index=False)
    with pytest.raises(BagDataError, match="Expected at most 10 rows"):
        read_bags(tmp_path / "t.xlsx")


def test_sound_tables_are_read_as_before(tmp_path, little):
    table = pd.DataFrame({"bag": [f"b{n // 2}" for n in range(8)], "label": [0, 0, 1, 1] * 2, "a": np.arange(8.0)})
    table.to_csv(tmp_path / "t.csv.gz", index=False)
    table.to_excel(tmp_path / "t.xlsx", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    for suffix in ("csv.gz", "xlsx", "parquet"):
        assert read_bags(tmp_path / f"t.{suffix}").sizes.tolist() == [2] * 4


def test_an_array_with_more_bytes_than_its_header_says_is_read_no_further(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in (("bag", np.arange(2)), ("y", np.arange(2)), ("X", np.ones((2, 1)))):
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(f"{key}.npy", content.getvalue() + (bytes(2**27) if key == "X" else b""))
    tracemalloc.start()
    with pytest.raises(BagDataError, match=r"Expected 16 bytes for shape \[2, 1\], as the header says, got 1342"):
        read_bags(tmp_path / "t.npz")
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
