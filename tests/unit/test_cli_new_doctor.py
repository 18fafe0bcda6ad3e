"""`midam new` and `midam doctor`: a settings file that trains, and what a machine lacks."""

import json
from pathlib import Path

import numpy as np
import pytest

from midam.cli import doctor, main, new
from midam.settings.settings import describe_settings, read_yaml


@pytest.fixture
def visits(tmp_path):
    """A table with columns under names of their own, text and a gap; `site` repeats too, and has no label."""
    rng = np.random.default_rng(0)
    lines = ["visit_id,person,site,pressure,ward,died"]
    for row in range(120):
        person = row % 30
        pressure = "" if row == 7 else f"{rng.normal() + person % 2:.3f}"
        ward, died = "ab"[int(rng.integers(2))], "yes" if person % 2 else "no"
        lines.append(f"v{row},p{person},s{row % 4},{pressure},{ward},{died}")
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_new_finds_the_columns_and_its_file_trains(visits, tmp_path, capsys):
    out = tmp_path / "visits.yaml"
    assert main(["new", str(visits), "--out", str(out)]) == 0
    assert "30 bags (15 positive), 120 instances" in capsys.readouterr().out
    assert read_yaml(out) == {
        "data": str(visits),
        "bag_column": "person",
        "label_column": "died",
        "impute": "median",
    }
    run = ["fit", "--config", str(out), "--method", "bag-statistics-logistic", "--out", str(tmp_path / "run")]
    assert main(run) == 0
    assert json.loads((tmp_path / "run/summary.json").read_text())["data"]["bags"] == 30


def test_new_takes_the_column_of_the_patients(tmp_path, capsys):
    """A column of names that repeat is no feature, nor the bag, though its name is a usual one of bags."""
    rows = [f"s{slide},{slide % 4 // 2},p{slide // 2},{slide}.{row}" for slide in range(16) for row in range(3)]
    (tmp_path / "slides.csv").write_text("\n".join(["slide,label,patient,area", *rows]) + "\n")
    out = tmp_path / "slides.yaml"
    assert main(["new", str(tmp_path / "slides.csv"), "--groups", "patient", "--out", str(out)]) == 0
    assert "16 bags (8 positive), 48 instances" in capsys.readouterr().out
    assert read_yaml(out) == {"data": str(tmp_path / "slides.csv"), "bag_column": "slide", "groups": "patient"}


def test_new_shows_each_setting_with_its_default(visits, tmp_path):
    out = tmp_path / "visits.yaml"
    main(["new", str(visits), "--out", str(out)])
    lines = out.read_text().splitlines()
    assert "#threshold: youden" in lines
    assert "#epochs: 100" in lines
    # All that is commented out is what the parser of the settings takes.
    (tmp_path / "all.yaml").write_text(
        "\n".join(line[1:] if line[:1] == "#" != line[1:2] != " " else "" for line in lines)
    )
    assert read_yaml(tmp_path / "all.yaml").keys() >= {"groups", "pooling", "seed"}


def test_each_setting_that_a_kind_of_data_shows_is_one():
    known = {setting.name for setting in describe_settings()}
    assert {name for names in new.SHOWN.values() for name in names} <= known


def test_new_refuses_what_fits_no_column_and_a_file_that_is_there(visits, tmp_path):
    out = tmp_path / "there.yaml"
    out.write_text("seed: 1\n")
    assert main(["new", str(visits), "--out", str(out)]) == 2
    assert out.read_text() == "seed: 1\n"
    table = tmp_path / "flat.csv"
    table.write_text("a,b\n1,2\n2,3\n4,5\n")
    assert main(["new", str(table), "--out", str(tmp_path / "new.yaml")]) == 2
    assert not (tmp_path / "new.yaml").exists()


def test_new_asks_where_two_columns_may_be_the_label(visits, tmp_path, capsys):
    text = visits.read_text().replace("died", "died,old").replace(",yes", ",yes,1").replace(",no", ",no,0")
    visits.write_text(text)
    assert main(["new", str(visits), "--out", str(tmp_path / "a.yaml")]) == 2
    assert "got died, old" in capsys.readouterr().err
    assert main(["new", str(visits), "--label-column", "died", "--out", str(tmp_path / "a.yaml")]) == 0
    assert read_yaml(tmp_path / "a.yaml")["label_column"] == "died"


def test_new_takes_a_folder_of_images_and_the_catalog(tmp_path, capsys):
    assert main(["new", "digits", "--out", str(tmp_path / "digits.yaml")]) == 0
    assert "next: midam fit --config" in capsys.readouterr().out
    assert read_yaml(tmp_path / "digits.yaml") == {"data": "digits"}


def test_new_fills_the_missing_values_of_an_archive(tmp_path):
    np.savez(tmp_path / "b.npz", X=[[1.0], [np.nan], [2.0]], bag=[0, 1, 1], y=[0, 1])
    assert main(["new", str(tmp_path / "b.npz"), "--out", str(tmp_path / "b.yaml")]) == 0
    assert read_yaml(tmp_path / "b.yaml")["impute"] == "median"


def test_doctor_tells_what_is_there_and_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda package: None if package == "nibabel" else "1.0")
    monkeypatch.setenv("MIDAM_DATA", "/no/such/folder")
    assert main(["--json", "doctor"]) == 0
    found = {entry["name"].partition(":")[0]: entry for entry in json.loads(capsys.readouterr().out)["found"]}
    assert "midam[medical]" in found["medical"]["advice"]
    assert "nibabel" in found["medical"]["found"]
    assert found["images"] == {"part": "extras", "name": f"images: {doctor.EXTRAS['images']}"} | {
        "found": "installed",
        "advice": "",
    }
    assert found["MIDAM_DATA"]["advice"]
    assert float(found["training, resnet20"]["found"].split()[0]) > 0
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "midam[medical]" in text
    assert "to look at:" in text


def test_each_extra_of_the_package_has_a_purpose():
    from importlib.metadata import metadata

    extras = set(metadata("midam").get_all("Provides-Extra"))
    assert set(doctor.EXTRAS) == extras - {"dev", "docs"}


@pytest.mark.parametrize(
    ("words", "change", "text"),
    [
        ([], ("b1,1,p1,1.1", "b1,0,p1,1.1"), "one label in a bag, got 1 and 0"),
        (["--groups", "patient"], (",1,p", ",0,p"), "positive and negative bags, got 0 positive and 6 negative"),
        (["--label-column", "lable"], ("", ""), "the column 'lable' of --label-column, got none"),
        (["--bag-column", "Bag"], ("", ""), "the column 'Bag' of --bag-column, got none"),
    ],
)
def test_new_says_what_is_wrong_with_the_columns_that_are_there(words, change, text, tmp_path, capsys):
    rows = [f"b{bag},{bag % 2},p{bag},{bag}.{row}".replace(*change) for bag in range(6) for row in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(["bag,label,patient,area", *rows]) + "\n")
    assert main(["new", str(tmp_path / "t.csv"), *words, "--out", str(tmp_path / "t.yaml")]) == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "t.yaml").exists()


def test_new_names_the_columns_it_takes_and_another_that_may_be_the_bag(tmp_path, capsys):
    rows = [f"{bag},{bag // 2 % 2},p{bag // 2},{bag}.{row}" for bag in range(12) for row in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(["order_id,fraud,patient,area", *rows]) + "\n")
    assert main(["new", str(tmp_path / "t.csv"), "--out", str(tmp_path / "t.yaml")]) == 0
    printed = capsys.readouterr()
    assert f"{tmp_path / 't.yaml'}: bag_column patient, label_column fraud" in printed.out
    assert "if order_id does, give --bag-column order_id" in printed.err
    assert "--bag-column order_id" in printed.err


def test_new_takes_all_settings_of_the_data(tmp_path, capsys):
    rows = [f"b{bag},{'sick' if bag % 2 else 'well'},{bag}.{row},x{row}" for bag in range(6) for row in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(["bag,label,area,note", *rows]) + "\n")
    words = ["new", str(tmp_path / "t.csv"), "--out", str(tmp_path / "t.yaml")]
    assert main(words) == 2
    assert "such as --positive sick" in capsys.readouterr().err
    assert main([*words, "--positive", "sick", "--ignore", "note"]) == 0
    taken = {"positive": "sick", "ignore": ["note"]}
    assert read_yaml(tmp_path / "t.yaml") == {"data": str(tmp_path / "t.csv"), **taken}


def test_new_reads_survival_several_labels_and_a_column_of_splits(tmp_path, capsys):
    split = ("train", "train", "Test")
    rows = [f"b{n},{n % 2},{n % 4 // 2},{split[n % 3]},{n + 1},{n}.{row}" for n in range(12) for row in range(3)]
    for name, header in (("time", "bag,event,x,split,time,area"), ("labels", "bag,er,pr,split,size,area")):
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    assert main(["new", str(tmp_path / "time.csv"), "--out", str(tmp_path / "time.yaml")]) == 0
    assert "the target is survival" in capsys.readouterr().err
    assert read_yaml(tmp_path / "time.yaml") == {"data": str(tmp_path / "time.csv"), "split": "split"}
    words = ["new", str(tmp_path / "labels.csv"), "--label-column", "er,pr", "--out", str(tmp_path / "labels.yaml")]
    assert main(words) == 0
    assert read_yaml(tmp_path / "labels.yaml")["label_column"] == "er,pr"
    assert main(["fit", str(tmp_path / "time.csv")]) == 2
    assert "name it with --split split" in capsys.readouterr().err


def test_a_call_without_its_arguments_names_each(tmp_path, capsys):
    assert main(["predict", str(tmp_path)]) == 2
    assert "Expected data, --out, got nothing" in capsys.readouterr().err
    (tmp_path / "new.csv").write_text("bag,a\nb,1\n")
    assert main(["predict", str(tmp_path / "new.csv"), "runs/one", "--out", str(tmp_path / "s.csv")]) == 2
    assert "name the folder of the run, then the data" in capsys.readouterr().err


def test_json_prints_the_result_of_each_command_alone(visits, tmp_path, capsys):
    def result(*words, code=0):
        assert main(["--json", *map(str, words)]) == code
        found = json.loads(capsys.readouterr().out)
        assert found.pop("exit_code") == code
        return found

    run, columns = tmp_path / "run", ("--bag-column", "person", "--label-column", "died", "--impute", "median")
    trained = result("fit", visits, *columns, "--method", "bag-statistics-logistic", "--out", run)
    assert trained == {"run": str(run), "summary": json.loads((run / "summary.json").read_text())}
    scores = tmp_path / "scores.csv"
    assert result("predict", run, visits, "--out", scores) == {"scores": [str(scores)], "bags": 30}
    assert len(scores.read_text().splitlines()) == 31
    for out in (["--out", "/dev/stdout"], ["--out=/dev/fd/1"]) if Path("/dev/stdout").exists() else ():
        refused = result("predict", run, visits, *out, code=2)
        assert "--json" in refused["error"]
        assert out[-1] in refused["error"]
    figures = result("evaluate", run, visits, "--out", tmp_path / "e.json")
    assert figures.pop("report").endswith(".html")
    assert figures == json.loads((tmp_path / "e.json").read_text())
    facts = result("data", "describe", visits, *columns)
    assert {one["feature"] for one in facts["features"]} >= {"pressure"}
    assert [one["name"] for one in result("data", "list")["sets"]].count("musk1") == 1
    assert "complete" in result("completion", "bash")["script"]
    folder = tmp_path / "compared"
    compared = result(
        *("compare", visits, *columns, "--methods", "bag-statistics-logistic,bag-statistics-extratrees"),
        *("--cv", "1x3", "--out", folder),
    )
    assert [row["method"] for row in compared["methods"]] == ["bag-statistics-logistic", "bag-statistics-extratrees"]
    assert "no_such" in result("fit", "no_such.csv", code=2)["error"]
    assert "usage" in result("fit", "--help")["text"]


def test_new_says_which_column_it_takes_for_the_label_and_asks_where_another_is_likely(visits, tmp_path, capsys):
    assert main(["new", str(visits), "--out", str(tmp_path / "visits.yaml")]) == 0
    assert "column died is taken for the label" in capsys.readouterr().err
    rows = [f"p{bag},{'fm'[bag % 2]},{bag % 3},{bag}.{row}" for bag in range(12) for row in range(3)]
    for name, column, words in (
        ("grade", "grade", "may be the label of a bag (patient), got sex, grade"),
        ("size", "size", "column sex is taken for the label (in"),
    ):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join([f"patient,sex,{column},area", *rows]) + "\n")
        main(["new", str(path), "--out", str(tmp_path / f"{name}.yaml")])
        text = capsys.readouterr().err
        assert words in text
        assert "--label-column" in text
    # A column with gaps is no label to guess: the error would ask to fill it in.
    path.write_text(path.read_text().replace("p3,m", "p3,"))
    assert main(["new", str(path), "--out", str(tmp_path / "gap.yaml")]) == 2
    text = capsys.readouterr().err
    assert "fill it in" not in text
    assert "name them with --bag-column and --label-column" in text


def test_groups_that_are_the_bags_are_named(tmp_path, capsys):
    rows = [f"p{bag},{bag % 2},{bag}.{row}" for bag in range(12) for row in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(["patient,fraud,area", *rows]) + "\n")
    words = ["new", str(tmp_path / "t.csv"), "--groups", "patient", "--out", str(tmp_path / "t.yaml")]
    assert main(words) == 2
    assert "got patient, which seems to name the bags" in capsys.readouterr().err
    assert main([*words, "--bag-column", "patient", "--label-column", "fraud"]) == 0
    assert "the groups are the bags themselves, column patient" in capsys.readouterr().err
