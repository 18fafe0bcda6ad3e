"""A file that another program holds is not called damaged, `sep=;` is read, and wrong arguments say what to pass."""

import contextlib
import errno
import gzip
import importlib
import inspect
import re
import subprocess
import sys

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

import midam
from midam import BagDataError, Bags, ConfigError, MidamError, read_bags
from midam.cli import main
from midam.data.covariates import Covariates
from midam.data.sources.formats.open_file import sound

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
        with pytest.raises(BagDataError, match=r"another program holds open .*d\.h5\); wait until it is done"):
            read_bags(tmp_path / "f", labels=tmp_path / "labels.csv")
    finally:
        holder.communicate(b"\n")
    assert len(read_bags(tmp_path / "f", labels=tmp_path / "labels.csv")) == 4


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EACCES, "Permission denied"), "no permission .*grant access"),
        (OSError(errno.EMFILE, "Too many open files"), "too many open files .*ulimit"),
        (OSError(errno.ESTALE, "Stale file handle"), "disk or network .*try again"),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), "got a folder"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "moved or removed meanwhile"),
        (OSError("truncated file: eof = 12, sblock->base_addr = 0"), "cut short .*wait until it is written"),
        (ValueError("bad magic"), "Expected a book, got: bad magic .*copy or write the file again"),
    ],
)
def test_what_the_system_refuses_is_told_from_damage(error, words, tmp_path):
    with pytest.raises(BagDataError, match=words), sound("a book", tmp_path / "x"):
        raise error


def test_the_mark_of_an_open_workbook_is_named(tmp_path):
    (tmp_path / "~$t.xlsx").write_bytes(b"\x05owner")
    with pytest.raises(BagDataError, match=r"Office .*name t\.xlsx"):
        read_bags(tmp_path / "~$t.xlsx")


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


WRONG = {
    "bags": Bags.from_list([[[1.0]], [[2.0]]], labels=[0, 1]),
    "frame": pd.DataFrame({"a": [1, 2]}),
    "words": ["a", "b"],
    "none": None,
    "nan": [0, 1, np.nan, 1],
    "number": 3,
    "nested": [[1], [2, 3]],
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ["split_bags", "stratified_folds"])
def test_wrong_labels_of_a_split_say_what_to_pass(name, wrong):
    with pytest.raises(BagDataError, match=r"`bags\.labels`"):
        getattr(midam, name)(WRONG[wrong])


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ["load_run", "open_store", "verify_store"])
def test_wrong_paths_say_what_to_pass(name, wrong):
    with pytest.raises(ConfigError, match=r"Expected the path of .*pass a string or a Path"):
        getattr(midam, name)(WRONG[wrong])


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ["auroc", "auprc", "auroc_interval", "summarize"])
def test_wrong_labels_and_scores_are_refused_by_midam(name, wrong):
    with pytest.raises(MidamError, match="Expected"):
        getattr(midam, name)(WRONG[wrong], WRONG[wrong])


FIRST = ["Trainer", "build_training", "predict", "InstanceReader", "write_store", "make_pooling", "ResNet20"]


@pytest.mark.parametrize("wrong", ["frame", "words", "none", "nan", "nested"])
@pytest.mark.parametrize("name", [*FIRST, "VarianceReduced"])
def test_wrong_arguments_of_public_functions_say_what_to_pass(name, wrong):
    value = WRONG[wrong]
    with pytest.raises(ConfigError, match=r"Expected `\w+` (of type \w+|as a whole .*), got \w+; .+\."):
        getattr(midam, name)(*[value] * (1 if name in ("InstanceReader", "ResNet20") else 2))


MORE = {
    **WRONG,
    "nothing": [],
    "list of none": [None],
    "empty array": np.array([]),
    "empty tensor": torch.zeros(0),
    "array of words": np.array(["a"]),
    "negative": -1,
    "not a number": np.nan,
    "infinite": np.inf,
    "true": True,
    "empty text": "",
    "bytes": b"x",
    "object": object(),
    "mapping": {},
}
_PARTS = {
    "midam.nn": [
        *("BagEnsemble", "Encoder", "PatchStatistics", "load_weights", "resnet20", "resnet20_3d"),
        *("TrackedPooling", "MinMaxAUCLoss", "PairwiseAUCLoss", "AveragePrecisionLoss", "PartialAUCLoss", "CoxLoss"),
        *("BCELoss", "CrossEntropyLoss"),
    ],
    "midam.train": ["make_fabric", "method_settings", "train_trials"],
    "midam.data": [
        "BagDataset",
        "BalancedBags",
        "StrataSampler",
        "check_disjoint",
        "impute",
        "is_store",
        "missing_counts",
        "read_npz",
    ],
    "midam.evaluate": ["net_benefit_of_all", "operating_point", "proportion"],
}
_HELD = {name: getattr(midam, name) for name in midam.__all__}
_ERRORS = {name for name, value in _HELD.items() if isinstance(value, type) and issubclass(value, Exception)}
PUBLIC = [f"midam.{name}" for name, value in _HELD.items() if callable(value) and name not in _ERRORS]
PUBLIC += [f"{part}.{name}" for part, names in _PARTS.items() for name in names]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PUBLIC)
def test_no_public_name_answers_wrong_arguments_with_an_error_of_another_library(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    part, _, name = name.rpartition(".")
    public = getattr(importlib.import_module(part), name)
    parameters = inspect.signature(public).parameters.values()
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    needed = [one.name for one in named if one.default is one.empty]
    for wrong in MORE.values():
        for given in [needed, *([one.name] for one in named)]:
            values = {**dict.fromkeys(needed, WRONG["bags"]), **dict.fromkeys(given, wrong)}
            words = [values[one.name] for one in named if one.kind is one.POSITIONAL_ONLY]
            others = {one.name: values[one.name] for one in named if one.name in values}
            others = {key: value for key, value in others.items() if key not in {o.name for o in named[: len(words)]}}
            with contextlib.suppress(MidamError):
                public(*words, **others)


def test_counts_that_are_no_whole_numbers_above_0_are_refused(tmp_path):
    bags = midam.Bags.from_list([np.eye(2)] * 16, [0, 1] * 8)
    store = midam.write_store(bags, tmp_path / "store")
    trainer = midam.Trainer(midam.Settings(epochs=1, members=1), bags)
    labels, scores, methods = bags.labels, np.arange(16), ["mean-map-svm", "instance-logistic-max"]
    calls = {
        "jobs": lambda count: midam.write_store(bags, tmp_path / "other", jobs=count),
        "`jobs`": lambda count: midam.verify_store(store, jobs=count),
        "jobs of a comparison": lambda count: midam.compare.run_comparison(bags, methods, [], jobs=count),
        "repeats": lambda count: midam.compare.repeated_folds(bags, repeats=count, folds=2),
        "folds": lambda count: midam.compare.repeated_folds(bags, repeats=1, folds=count),
        "chunk_size": lambda count: midam.predict(trainer.reported, bags, chunk_size=count),
        "epochs": lambda count: trainer.fit(epochs=count or -1),  # 0 is a number of epochs
        "resamples": lambda count: midam.auroc_interval(labels, scores, resamples=count),
        "num_instances": lambda count: midam.MiniBatch(num_instances=count),
    }
    for name, call in calls.items():
        for wrong in (0, -1, 1.5, "2", np.nan, True):
            with pytest.raises(ConfigError, match=rf"Expected `{name.strip('`').split()[0]}` as a whole number"):
                call(wrong)
    assert not (tmp_path / "other").exists()


def test_a_warning_of_a_decoder_names_the_file_that_it_reads(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/cut.tif").write_bytes(b"II*\0\x08\0\0\0\x05\0")  # the directory of five tags is missing
    assert main(["data", "describe", str(tmp_path / "images")]) == 2
    assert re.search(r"warning: Corrupt EXIF data.* \(first in .*cut\.tif\)", capsys.readouterr().err)
