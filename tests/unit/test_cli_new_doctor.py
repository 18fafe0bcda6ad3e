"""`midam new` and `midam doctor`: a settings file that trains, and what a machine lacks."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from midam.cli import doctor, main
from midam.settings.settings import read_yaml


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


def test_new_finds_columns_by_usual_names_and_its_file_trains(visits, tmp_path, capsys):
    out = tmp_path / "visits.yaml"
    words = ["new", str(visits), "--bag-column", "person", "--out", str(out)]
    assert main(words) == 2
    assert "the column 'label' of --label-column, got none" in capsys.readouterr().err
    assert not out.exists()
    visits.write_text(visits.read_text().replace("died", "Outcome", 1))
    assert main(words) == 0
    assert "30 bags, 120 instances" in capsys.readouterr().out
    wanted = {"data": str(visits), "bag_column": "person", "label_column": "Outcome", "impute": "median"}
    assert read_yaml(out) == wanted
    run = ["fit", "--config", str(out), "--method", "bag-statistics-logistic", "--out", str(tmp_path / "run")]
    assert main(run) == 0
    assert json.loads((tmp_path / "run/summary.json").read_text())["data"]["bags"] == 30


def test_new_leaves_the_column_of_the_groups_to_them(tmp_path):
    rows = [f"s{slide},{slide % 4 // 2},p{slide // 2},{slide}.{row}" for slide in range(16) for row in range(3)]
    (tmp_path / "slides.csv").write_text("\n".join(["slide,label,patient,area", *rows]) + "\n")
    out = tmp_path / "slides.yaml"
    assert main(["new", str(tmp_path / "slides.csv"), "--groups", "patient", "--out", str(out)]) == 0
    assert read_yaml(out) == {"data": str(tmp_path / "slides.csv"), "bag_column": "slide", "groups": "patient"}


@pytest.mark.parametrize("name", ["slide_id", "Slide ID", "scan", "image", "case"])
def test_new_takes_the_finer_unit_for_the_bag_and_patients_for_groups(name, tmp_path):
    rows = [f"p{slide // 2},s{slide},{slide % 4 // 2},{slide}.{row}" for slide in range(16) for row in range(3)]
    table, out = tmp_path / "slides.csv", tmp_path / "slides.yaml"
    table.write_text("\n".join([f"Patient ID,{name},label,area", *rows]) + "\n")
    assert main(["new", str(table), "--out", str(out)]) == 0
    assert read_yaml(out) == {"data": str(table), "bag_column": name, "groups": "Patient ID"}
    out.unlink()
    assert main(["new", str(table), "--bag-column", name, "--ignore", "Patient ID", "--out", str(out)]) == 0
    assert read_yaml(out) == {"data": str(table), "bag_column": name, "ignore": ["Patient ID"]}


def test_an_error_of_new_names_the_column_that_was_taken_for_the_bag(tmp_path, capsys):
    rows = [f"p{slide // 2},s{slide},{slide % 2},{slide}.{row}" for slide in range(16) for row in range(3)]
    table, out = tmp_path / "slides.csv", tmp_path / "slides.yaml"
    table.write_text("\n".join(["patient,tissue,label,area", *rows]) + "\n")
    words = ["new", str(table), "--out", str(out)]
    assert main(words) == 2
    taken = "The column 'patient' is taken for the bag, by its name: --bag-column names another."
    assert taken in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--bag-column", "tissue"]) == 0
    assert read_yaml(out) == {"data": str(table), "bag_column": "tissue", "groups": "patient"}
    out.unlink()
    assert main([*words, "--bag-column", "patient"]) == 2
    assert "taken" not in capsys.readouterr().err


def test_new_shows_settings_with_their_defaults(tmp_path):
    out = tmp_path / "digits.yaml"
    assert main(["new", "digits", "--out", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert {"#threshold: youden", "#epochs: 100"} <= {*lines}
    # All that is commented out is what the parser of the settings takes.
    text = "\n".join(line[1:] if line[:1] == "#" != line[1:2] != " " else "" for line in lines)
    (tmp_path / "all.yaml").write_text(text)
    assert read_yaml(tmp_path / "all.yaml").keys() >= {"groups", "pooling", "seed"}
    assert main(["new", "digits", "--out", str(out)]) == 2


def test_doctor_says_what_is_there_and_what_is_missing(capsys, monkeypatch):
    whole = doctor.version

    def version(package):
        if package == "nibabel":
            raise PackageNotFoundError(package)
        return whole(package)

    monkeypatch.setattr(doctor, "version", version)
    assert main(["--json", "doctor"]) == 0
    facts = json.loads(capsys.readouterr().out)["found"]
    assert "midam[medical]" in facts["extra medical"]
    assert "extra images" not in facts
    assert facts["torch"] == whole("torch")
    assert main(["doctor"]) == 0
    assert "midam[medical]" in capsys.readouterr().out


def test_new_takes_a_folder_of_images_and_the_digits(tmp_path, capsys):
    assert main(["new", "digits", "--out", str(tmp_path / "digits.yaml")]) == 0
    assert "next: midam fit --config" in capsys.readouterr().out
    assert read_yaml(tmp_path / "digits.yaml") == {"data": "digits"}


def test_new_fills_the_missing_values_of_an_archive(tmp_path):
    np.savez(tmp_path / "b.npz", X=[[1.0], [np.nan], [2.0]], bag=[0, 1, 1], y=[0, 1])
    assert main(["new", str(tmp_path / "b.npz"), "--out", str(tmp_path / "b.yaml")]) == 0
    assert read_yaml(tmp_path / "b.yaml")["impute"] == "median"


def test_new_takes_all_settings_of_the_data(tmp_path, capsys):
    rows = [f"b{bag},{'sick' if bag % 2 else 'well'},{bag}.{row},x{row}" for bag in range(6) for row in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(["bag,label,area,note", *rows]) + "\n")
    words = ["new", str(tmp_path / "t.csv"), "--out", str(tmp_path / "t.yaml")]
    assert main(words) == 2
    assert "such as --positive sick" in capsys.readouterr().err
    assert main([*words, "--positive", "sick", "--ignore", "note"]) == 0
    taken = {"positive": "sick", "ignore": ["note"]}
    assert read_yaml(tmp_path / "t.yaml") == {"data": str(tmp_path / "t.csv"), **taken}


def test_a_call_without_its_arguments_names_each(tmp_path, capsys):
    assert main(["predict", str(tmp_path)]) == 2
    assert "arguments are required: data" in capsys.readouterr().err
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
    assert facts["facts"]["bags"]
    folder = tmp_path / "compared"
    compared = result(
        *("compare", visits, *columns, "--methods", "bag-statistics-logistic,bag-statistics-extratrees"),
        *("--cv", "1x3", "--out", folder),
    )
    assert [row["method"] for row in compared["methods"]] == ["bag-statistics-logistic", "bag-statistics-extratrees"]
    assert "no_such" in result("fit", "no_such.csv", code=2)["error"]
    assert "usage" in result("fit", "--help")["text"]
