"""What gives the label away is said by fit, compare and describe, for every kind of target."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from midam.cli.app import main
from midam.data import Bags, read_bags
from midam.data.target_labels import TargetLabels
from midam.report import describe_bags
from midam.report.leaks import feature_warnings, overlap_warnings

COUNT = 120
OUTCOMES = {
    "binary": lambda y: {"labels": (y > 0.5).astype(int)},
    "multiclass": lambda y: {"outcome": TargetLabels.of("multiclass", np.floor(y * 3), names=["a", "b", "c"])},
    "multilabel": lambda y: {
        "outcome": TargetLabels.of(
            "multilabel", np.stack([y > 0.5, np.random.default_rng(5).random(COUNT) > 0.5], axis=1), names=["u", "v"]
        )
    },
    "ordinal": lambda y: {"outcome": TargetLabels.of("ordinal", np.floor(y * 3), names=["low", "mid", "high"])},
    "continuous": lambda y: {"outcome": TargetLabels.of("continuous", y, names=["size"])},
    "survival": lambda y: {
        "outcome": TargetLabels.of(
            "survival",
            np.stack([2 - y, (np.random.default_rng(6).random(COUNT) > 0.3) * 1.0], axis=1),
            names=("time", "event"),
        )
    },
}


@pytest.mark.parametrize(("second", "said"), [("other", True), ("scaled", True), ("shifted", False), ("one", False)])
def test_vectors_of_two_networks_are_warned_of(second, said):
    """Two networks of one width give vectors around other means; classes, or a bag far from all, do not."""
    rng = np.random.default_rng(0)
    means, bags = rng.normal(size=(2, 96)), []
    for number in range(24):
        x = means[0] + 0.3 * rng.normal(size=96) + rng.normal(size=(40, 96))
        if number % 4 == 1 and second in ("other", "scaled"):
            x = x - means[0] + means[1] if second == "other" else np.abs(x) / 20
        x += 2 * (number % 2) * (second == "shifted")
        bags.append(x + 9 * (number == 5) * (second == "one"))
    made = Bags.from_list(bags, np.arange(24) % 2, ids=[f"s{number}" for number in range(24)])
    lines = [line for line in describe_bags("x", made).warnings if "if two networks" in line]
    assert (
        lines
        == [
            "the features of 18 bags, such as s0, are far from those of 6, such as s1: if two networks or "
            "normalizations made them, extract all alike"
        ]
        * said
    )


def bags_of(target, *, leak=None, covariate=None, width=6):
    """Return bags of a target; feature 2 holds the label plus noise by a statistic, or a covariate does."""
    rng = np.random.default_rng(0)
    y = rng.permutation((np.arange(COUNT) + 0.5) / COUNT)
    sizes = rng.integers(3, 9, COUNT)
    x = rng.normal(size=(sizes.sum(), width)).astype(np.float32)
    ends = np.cumsum(sizes)
    says = np.floor(y * 3) if target in ("ordinal", "multiclass") else y
    says = (y > 0.5) * 1.0 if target in ("binary", "multilabel") else says
    for end, size, own in zip(ends, sizes, says, strict=True):
        rows = slice(end - size, end)
        if leak == "mean":
            x[rows, 2] = own + 0.002 * x[rows, 2]
        elif leak == "max":
            x[rows, 2] = -5 + 0.1 * x[rows, 2]
            x[end - 1, 2] = own + 0.002 * x[end - 1, 2]
        elif leak == "min":
            x[rows, 2] = 5 + 0.1 * x[rows, 2]
            x[end - 1, 2] = -own + 0.002 * x[end - 1, 2]
    known = {} if covariate is None else {"covariates": {"age": rng.normal(size=COUNT), "code": covariate(says)}}
    return Bags(x, sizes=sizes, feature_names=[f"f{n}" for n in range(width)], **OUTCOMES[target](y), **known)


@pytest.mark.parametrize("target", OUTCOMES)
@pytest.mark.parametrize("statistic", ["mean", "max", "min"])
def test_a_feature_that_is_the_label_plus_noise_is_named(target, statistic):
    (said,) = feature_warnings(bags_of(target, leak=statistic))
    assert "f2 (" in said
    assert "`ignore=['f2']`" in said
    assert ("C-index" in said) == (target in ("ordinal", "continuous", "survival"))


@pytest.mark.parametrize("target", OUTCOMES)
def test_honest_features_are_not_named(target):
    assert list(feature_warnings(bags_of(target))) == []
    assert list(feature_warnings(bags_of(target, covariate=lambda says: np.zeros(len(says))))) == []


@pytest.mark.parametrize("target", OUTCOMES)
def test_a_covariate_that_is_the_label_is_named(target):
    (said,) = feature_warnings(bags_of(target, covariate=lambda says: says + 0.001))
    assert "single covariates" in said
    assert "code (" in said
    assert "age" not in said


@pytest.mark.parametrize("target", ["binary", "multiclass", "multilabel", "ordinal"])
def test_a_category_that_is_the_label_is_named(target):
    (said,) = feature_warnings(bags_of(target, covariate=lambda says: [f"level {one:g}" for one in says]))
    assert "code (" in said


@pytest.mark.parametrize("target", ["binary", "multilabel"])
@pytest.mark.parametrize("missing", [np.nan, ""])
def test_a_covariate_whose_gaps_are_the_label_is_named(target, missing):
    def code(says):
        kept = [str(n % 3) if missing == "" else float(n % 7) for n in range(len(says))]
        return [one if said else missing for one, said in zip(kept, says)]

    (said,) = feature_warnings(bags_of(target, covariate=code))
    assert "code (1.000 by whether it is missing)" in said


def test_a_feature_that_is_one_value_a_bag_of_one_class_is_named():
    bags = bags_of("binary")
    x = bags.instances.copy()
    own = np.repeat(np.random.default_rng(1).normal(size=len(bags)), bags.sizes)
    x[:, 2] = np.where(np.repeat(bags.labels == 1, bags.sizes), own, x[:, 2])
    (said,) = feature_warnings(bags.replace(instances=x))
    assert "f2 (1.000 by its range)" in said


@pytest.mark.parametrize("size", [1, 4, None])
@pytest.mark.parametrize("sign", ["of the bag", "of the instance"])
@pytest.mark.parametrize("base", [0.0, 5.0])
def test_a_feature_whose_distance_from_the_usual_value_is_the_label_is_named(size, sign, base):
    rng = np.random.default_rng(0)
    labels = np.arange(100) % 2
    sizes = rng.integers(1, 6, 100) if size is None else np.full(100, size)
    x = rng.normal(size=(sizes.sum(), 3))
    own = rng.choice([-1, 1], 100)[np.repeat(np.arange(100), sizes)]
    own = own if sign == "of the bag" else rng.choice([-1, 1], len(x))
    x[:, 1] = base + own * np.repeat(labels, sizes)
    (said,) = feature_warnings(Bags(x, sizes=sizes, labels=labels))
    assert "feature 1 (1.000 by its distance from the median)" in said


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("command", ["fit", "describe", "in python"])
def test_a_feature_whose_gaps_are_the_label_is_named(tmp_path, command, capsys):
    """Some values are missing in bags of one class, none in the others; the values themselves tell nothing."""
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(60), 4)
    frame = pd.DataFrame(rng.normal(size=(240, 3)), columns=["a", "b", "c"]).assign(bag=bag, label=bag % 2)
    frame.loc[(bag % 2 == 1) & (np.arange(240) % 4 < 2), "b"] = np.nan
    frame.loc[rng.random(240) < 0.1, "c"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    if command == "in python":
        said = next(feature_warnings(read_bags(tmp_path / "t.csv", impute=True)))
    else:
        fit = ["fit", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run"), "--method", "bag-statistics-logistic"]
        words = fit if command == "fit" else ["data", "describe", str(tmp_path / "t.csv")]
        assert main([*words, "--impute", "mean"]) == 0
        printed = capsys.readouterr()
        said = " ".join((printed.out + printed.err).split())
    assert "0.98: b (1.000 by whether it is missing); if" in said


@pytest.mark.parametrize("target", ["binary", "continuous"])
def test_features_are_not_named_for_the_size_of_the_bags(target):
    rng = np.random.default_rng(0)
    says = np.arange(60) % 2 if target == "binary" else np.arange(60)
    sizes = 3 + 100 * says if target == "binary" else 2 + 2 ** (says // 6)
    known = {"labels": says} if target == "binary" else {"outcome": TargetLabels.of(target, says * 1.0, names=["size"])}
    bags = Bags(rng.normal(size=(sizes.sum(), 6)), sizes=sizes, **known)
    assert list(feature_warnings(bags)) == []


def test_of_feature_files_nobody_can_leave_out_a_column():
    (said,) = feature_warnings(bags_of("binary", leak="mean").replace(feature_names=None))
    assert "feature 2 (1.000 by its mean)" in said
    assert said.endswith("write the features again without it")


def test_few_bags_with_many_features_name_none_by_chance():
    rng = np.random.default_rng(1)
    for count in (4, 6, 10, 16):
        bags = Bags(rng.normal(size=(count * 3, 3000)), sizes=[3] * count, labels=np.arange(count) % 2)
        assert list(feature_warnings(bags)) == []


def test_whole_numbers_and_large_offsets_are_ranked_too():
    bags = bags_of("binary", leak="mean")
    moved = (bags.instances.astype(np.float64) * 1000).astype(np.int64) + 1_700_000_000
    assert "f2" in next(feature_warnings(bags.replace(instances=moved)))


def table(path, *, copies=0, leak=True, sizes=False):
    """Write a table of 60 bags; the column `proxy` is the label plus noise."""
    rng, rows = np.random.default_rng(0), []
    for bag in range(60):
        label = bag % 2
        for number in range(3 + (5 * label if sizes else bag // 2 % 3)):
            proxy = label + 0.05 * rng.normal() if leak else rng.normal()
            rows.append([f"b{bag}", label, proxy, *rng.normal(size=2)])
            if copies and bag % 10 == 9 and number < 3:
                rows[-1][2:] = [7.0, 1.0 * number, 2.0]
        if copies and bag % 10 == 9:
            rows = [row for place, row in enumerate(rows) if row[0] != f"b{bag}" or row[2] == 7.0]
    pd.DataFrame(rows, columns=["bag", "label", "proxy", "x", "y"]).to_csv(path, index=False)
    return str(path)


METHODS = [["--epochs", "1", "--members", "1", "--no-baseline"], ["--method", "bag-statistics-logistic"]]


@pytest.mark.parametrize("method", METHODS, ids=["trained", "at once"])
def test_fit_names_the_leak_on_the_console_in_the_log_the_summary_and_the_report(method, tmp_path, capsys):
    data, run = table(tmp_path / "t.csv"), tmp_path / "run"
    assert main(["fit", data, *method, "--out", str(run)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: single features")]
    assert len(lines) == 1
    assert "proxy (1.000 by its mean)" in lines[0]
    assert "--ignore proxy" in lines[0]
    (note,) = [note for note in json.loads((run / "summary.json").read_text())["data"]["notes"] if "proxy" in note]
    assert "AUROC above 0.98" in note
    assert "single features rank the bags alone" in (run / "report.html").read_text()


def test_fit_says_what_it_finds_in_three_lines_at_most(tmp_path, capsys):
    data = table(tmp_path / "t.csv", copies=True, sizes=True)
    assert main(["fit", data, *METHODS[0], "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    found = [line for line in said.splitlines() if any(word in line for word in ("single", "bag size", "duplicate"))]
    assert len(found) == 3
    assert "proxy" in found[0]
    assert "the bag size predicts the label" in found[1]
    assert "duplicate bags: 6 bags have the content of another" in found[2]
    copies = "warning: duplicate bags: 6 bags have the content of another, such as"
    assert main(["--json", "evaluate", str(tmp_path / "run"), data]) == 0
    said = capsys.readouterr()
    assert copies in said.err
    assert [note for note in json.loads(said.out)["notes"] if note.startswith("duplicate bags: 6 bags")]
    methods = ["--methods", "bag-statistics-logistic,mean-map-svm", "--cv", "1x2", "--jobs", "1"]
    assert main(["compare", data, *methods, "--out", str(tmp_path / "c")]) == 0
    assert copies in capsys.readouterr().err


def test_fit_says_nothing_of_an_honest_table(tmp_path, capsys):
    data, held_out = table(tmp_path / "t.csv", leak=False), ["--test-fraction", "0.2"]
    assert main(["fit", data, *METHODS[0], *held_out, "--out", str(tmp_path / "run")]) == 0
    assert "warning" not in capsys.readouterr().err


def visits(path):
    """Write a bag for each of three visits of 24 patients, which holds the rows of the earlier visits too."""
    rows, rng = [], np.random.default_rng(0)
    for patient in range(24):
        values = rng.normal(size=(12, 2)).tolist()
        rows += [[f"p{patient}v{visit}", patient % 2, patient, *x] for visit in (1, 2, 3) for x in values[: 4 * visit]]
    pd.DataFrame(rows, columns=["bag", "label", "patient", "x", "y"]).to_csv(path, index=False)
    return str(path)


def test_bags_that_share_instances_are_named_unless_they_are_of_one_group(tmp_path, capsys):
    """A model that has seen the earlier visits of a patient is not tested by a later one."""
    data, shared = visits(tmp_path / "t.csv"), "warning: bags that share instances: 48 have half of theirs or more"
    assert main(["fit", data, "--ignore", "patient", *METHODS[1], "--out", str(tmp_path / "run")]) == 0
    assert f"{shared} in common with another, such as p0v" in capsys.readouterr().err
    assert main(["data", "describe", data, "--ignore", "patient"]) == 0
    assert shared.removeprefix("warning: ") in capsys.readouterr().out
    assert list(overlap_warnings(read_bags(data, groups="patient"))) == []
    bags = read_bags(data, ignore=["patient"])
    assert list(overlap_warnings(bags.replace(splits=np.repeat(["train", "val", "test"], 24)))) == []


@pytest.mark.parametrize("values", [3, 12, 60, 500])
def test_instances_of_few_values_are_not_shared(values):
    rng = np.random.default_rng(values)
    sizes = rng.integers(2, 9, 300)
    bags = Bags(rng.integers(0, values, (sizes.sum(), 2)).astype(float), sizes=sizes)
    assert list(overlap_warnings(bags)) == []


@pytest.mark.long
def test_describe_and_compare_name_the_leak_too(tmp_path, capsys):
    data = table(tmp_path / "t.csv")
    assert main(["data", "describe", data]) == 0
    assert "proxy (1.000 by its mean)" in capsys.readouterr().out
    command = [
        "compare",
        data,
        "--methods",
        "bag-statistics-logistic,bag-statistics-extratrees",
        "--cv",
        "1x2",
        "--jobs",
        "1",
    ]
    assert main([*command, "--jobs", "1", "--out", str(tmp_path / "c")]) == 0
    said = capsys.readouterr()
    assert "proxy (1.000 by its mean)" in said.err
    assert "proxy" in (tmp_path / "c" / "report.html").read_text() + (tmp_path / "c" / "summary.md").read_text()


def test_only_training_bags_are_looked_at(tmp_path, capsys):
    frame = pd.read_csv(table(tmp_path / "t.csv"))
    number = frame["bag"].str[1:].astype(int)
    frame["split"] = np.where(number < 40, "train", np.where(number < 50, "val", "test"))
    frame.loc[frame["split"] == "train", "proxy"] = np.random.default_rng(3).normal(size=(number < 40).sum())
    frame.to_csv(tmp_path / "s.csv", index=False)
    options = ["--split", "split", *METHODS[0], "--out", str(tmp_path / "run")]
    assert main(["fit", str(tmp_path / "s.csv"), *options]) == 0
    assert "single features" not in capsys.readouterr().err
    bags = read_bags(tmp_path / "s.csv", split="split")
    assert not [line for line in describe_bags("s.csv", bags).warnings if "single features" in line]


def test_a_store_is_looked_at_in_a_sample(tmp_path, capsys):
    data, store = table(tmp_path / "t.csv"), tmp_path / "store"
    assert main(["data", "import", data, "--out", str(store)]) == 0
    assert main(["fit", str(store), *METHODS[0], "--out", str(tmp_path / "run")]) == 0
    assert "proxy" in capsys.readouterr().err


def test_images_have_no_single_features():
    images = np.random.default_rng(0).random((40, 3, 8, 8))
    with warnings.catch_warnings(action="error"):
        assert list(feature_warnings(Bags(images, sizes=[1] * 40, labels=np.arange(40) % 2))) == []


def test_the_advice_on_a_feature_that_is_the_label_holds_without_a_table():
    x = np.arange(60.0)[:, None] // 30
    bags = Bags.from_arrays(x, np.arange(60), np.arange(60) // 30, feature_names=["known"])
    (text,) = [line for line in describe_bags("bags.npz", bags).warnings if line.startswith("single features")]
    assert "write the features again without it, or leave it out of a table with `ignore=['known']`" in text
