"""Readers are an extension point: an input or a format that was added is found by name and by suffix."""

import pickle

import numpy as np
import pandas as pd
import pytest

from midam.data.bags import Bags
from midam.data.sources import BagReader, bag_readers, read_bags
from midam.data.sources.file_names import FileReader, file_readers
from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.request import Request
from midam.data.store import open_store, write_store
from midam.errors import BagDataError, ConfigError, DataNotFoundError
from midam.registry import READERS

HERE = "tests.unit.test_data_readers"


class WordReader(BagReader):
    """Bags of one number a word: ``a 1 2`` is the bag a."""

    what = "a list of words"
    suffixes = (".words",)
    parameters = ("fold", "split_file", "missing")

    def read(self, request):
        """Read the file."""
        lines = [line.split() for line in request.path.read_text().splitlines()]
        arrays = [np.array(words[1:], dtype=np.float64)[:, None] for words in lines]
        return Bags.from_list(arrays, [0, 1], ids=[words[0] for words in lines], source=str(request.path))


class RawReader(FileReader):
    """One file a bag: float32 numbers, two a row."""

    what = "raw numbers"
    suffixes = (".raw",)

    def open(self, path, options, places=None):
        """Open a file."""
        return OpenFile(np.fromfile(path, dtype="<f4").reshape(-1, 2))


class AnyReader(RawReader):
    """The same, whatever the suffix."""

    suffixes = ()

    def takes(self, path):
        """Whether it is a file."""
        return path.suffix != ".csv"


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "bags.words"
    path.write_text("a 1 2\nb 3\n")
    return path


@pytest.fixture
def folder(tmp_path):
    for name, rows in (("a", 3), ("b", 2)):
        np.arange(2 * rows, dtype="<f4").tofile(tmp_path / f"{name}.raw")
    (tmp_path / "labels.csv").write_text("slide_id,label\na.raw,1\nb,0\n")
    return tmp_path


@pytest.fixture
def added():
    yield READERS.add
    for name in ("words", "raw"):
        if name in READERS.names():
            READERS.remove(name)


def test_an_input_that_was_added_is_found_by_its_suffix(words, added):
    with pytest.raises(
        DataNotFoundError, match=r"file \(\.npz, \.csv, \.tsv, \.csv\.gz, \.tsv\.gz, \.xlsx, \.parquet\)"
    ):
        read_bags(words)
    added("words", WordReader)
    bags = read_bags(words)
    assert bags.ids.tolist() == ["a", "b"]
    assert bags.sizes.tolist() == [2, 1]
    with pytest.raises(ConfigError, match="no `label_column` with a list of words, got 'y'"):
        read_bags(words, label_column="y")
    with pytest.raises(DataNotFoundError, match=r"\.words"):
        read_bags(words.parent / "other.thing")


def test_an_input_is_found_by_name(words, added):
    added("words", WordReader)
    assert len(read_bags(words, reader="words")) == 2
    with pytest.raises(ConfigError, match=r"known reader, got 'wrods'; did you mean 'words'"):
        read_bags(words, reader="wrods")
    with pytest.raises(ConfigError, match=r"known reader, got 'collections\.OrderedDict'; known are"):
        read_bags(words, reader="collections.OrderedDict")


@pytest.mark.parametrize("how", ["added", "any suffix"])
def test_a_format_that_was_added_is_read_from_a_folder_and_a_manifest(folder, added, how):
    options = {} if how == "added" else {"reader": "raw"}
    if how == "added":
        with pytest.raises(BagDataError, match="Expected feature files"):
            read_bags(folder, labels=folder / "labels.csv")
    added("raw", RawReader if how == "added" else AnyReader)
    bags = read_bags(folder, labels=folder / "labels.csv", **options)
    assert bags.labels.tolist() == [1, 0]
    np.testing.assert_array_equal(bags[0], np.arange(6).reshape(3, 2))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(bags.instances))[3:], [[0, 1], [2, 3]])
    store = open_store(write_store(bags, folder / "store"))
    np.testing.assert_array_equal(store[1], bags[1])
    (folder / "manifest.csv").write_text("bag,path,label\np,a.raw,1\np,b.raw,1\n")
    assert read_bags(folder / "manifest.csv", **options).sizes.tolist() == [5]


def test_every_reader_says_what_it_is():
    for reader in (*bag_readers(), *file_readers()):
        assert reader.what
        assert type(reader).__doc__


def test_a_data_frame_is_pointed_to_what_takes_it():
    with pytest.raises(BagDataError, match=r"got a DataFrame; .*`Bags.from_dataframe`"):
        read_bags(pd.DataFrame({"bag": [0], "x": [1.0]}))
    with pytest.raises(BagDataError, match="got a list; "):
        read_bags([np.zeros((2, 2))])


def test_messages_name_the_table_of_the_labels_or_the_data():
    request = Request("a.csv")
    assert request.where == "a.csv"
    assert request.changed(target="binary").where == "a.csv"
    assert request.changed(labels="b.csv").where == "b.csv"
    assert request.changed(path_or_name="c.csv").where == "c.csv"
    assert request.changed(named="a.csv, row 3").changed(fold=1).where == "a.csv, row 3"
