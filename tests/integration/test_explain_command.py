"""`midam explain`: its files agree with `midam predict`, and what it refuses."""

import errno
import json
import os
import re
import shutil
import signal
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tests import quick
from tests.integration.commands import Moment, fitted, start, stop

from midam.cli import main
from midam.explain.page import instances_csv

h5py = pytest.importorskip("h5py")

ONE_MODEL = ["--epochs", "1", "--members", "1", "--folds", "0", "--no-baseline"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("explain"), "--epochs", "4", "--lr", "0.01", "--test-fraction", "0.2")


@pytest.fixture(scope="module")
def explained(made, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "new"
    with quick.drawing():
        assert main(["explain", *_order(made, out)]) == 0
    return out


def _order(made, out):
    data, run = made
    return [str(run), str(data), "--bags", "b01", "b02", "--out", str(out)]


def logit(p):
    return np.log(p) - np.log1p(-p)


def test_the_instances_pool_to_the_score_of_the_predictions(made, explained):
    scores = pd.read_csv(made[1] / "predictions.csv").set_index("bag")
    entries = json.loads((explained / "explain.json").read_text())["bags"]
    assert [entry["bag"] for entry in entries] == ["b01", "b02"]
    for entry in entries:
        row = scores.loc[entry["bag"]]
        np.testing.assert_allclose(entry["score"], row["score"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(entry["probability"], row["probability"], rtol=0, atol=1e-4)
        assert (entry["label"], entry["split"]) == (str(row["label"]), row["split"])
        table = pd.read_csv(explained / f"{entry['bag']}.csv")
        assert sorted(table["instance"]) == list(range(entry["size"]))
        assert table["rank"].tolist() == list(range(1, entry["size"] + 1))
        assert (np.diff(table["contribution"]) <= 0).all()
        top = table[: len(entry["instances"])]
        assert top["instance"].tolist() == [one["instance"] for one in entry["instances"]]
        np.testing.assert_allclose(top["contribution"], [one["contribution"] for one in entry["instances"]], rtol=1e-6)


def test_predict_writes_the_same_instances(made, explained, tmp_path):
    data, run = made
    assert main(["predict", str(run), str(data), "--out", str(tmp_path / "p.csv"), "--instances", str(tmp_path)]) == 0
    for bag in ("b01", "b02"):
        mine = pd.read_csv(explained / f"{bag}.csv").sort_values("instance")
        with h5py.File(tmp_path / f"{bag}.h5") as its:
            for name in ("score", "weight"):
                np.testing.assert_allclose(mine[name], its[name][:], rtol=1e-5, atol=1e-7)
            members = {name: its[f"members/{name}"][:].astype(float) for name in ("score", "weight")}
            pooled = 1 / (1 + np.exp(-(members["weight"] * logit(members["score"])).sum(axis=0)))
            np.testing.assert_allclose(pooled.mean(), its.attrs["bag_score"], rtol=0, atol=1e-6)


def test_the_page_holds_its_pictures(explained):
    page = (explained / "index.html").read_text()
    assert "writes a report without them. This page and the files next to it keep them." in page
    assert len(re.findall(r'<img [^>]*src="data:image/png;base64,', page)) == 2
    assert not re.search(r'src="(?!data:)', page)
    links = re.findall(r'<a href="(?!#)([^"]+)"', page)
    assert {f"b0{n}.{kind}" for n in (1, 2) for kind in ("png", "csv")} == set(links)
    assert all((explained / link).is_file() for link in links)
    assert len(re.findall(r'<img [^>]*alt="[^"]{20,}"', page)) == page.count("<img")
    assert "How to read this page" in page
    with Image.open(explained / "b01.png") as image:
        assert image.size[0] == 1500


def test_without_names_the_extremes_of_the_test_bags_are_taken(made, tmp_path, capsys):
    data, run = made
    assert main(["explain", str(run), str(data), "--out", str(tmp_path / "o")]) == 0
    scores = pd.read_csv(run / "predictions.csv").query("split == 'test'").set_index("bag")["score"]
    entries = json.loads((tmp_path / "o" / "explain.json").read_text())["bags"]
    assert [entry["bag"] for entry in entries] == [scores.idxmax(), scores.idxmin()]
    told = f"lowest scored of the {len(scores)} test bags of the run; name others"
    text = " ".join(capsys.readouterr().out.split())
    assert told in text
    assert re.search(rf"{scores.idxmax()}: .*, test bag, \d+ instances", text)


def test_the_default_folder_is_a_free_one_in_the_run(made):
    data, run = made
    for name in ("explain", "explain-2"):
        assert main(["explain", str(run), str(data), "--bags", "b03"]) == 0
        assert (run / name / "b03.png").exists()


def test_other_data_without_labels_and_splits(made, tmp_path, capsys):
    frame = pd.read_csv(made[0]).drop(columns="label")
    frame.loc[:, "f0":] += 0.01  # by content, the run's own bags would be known
    frame[frame["bag"] < "b05"].to_csv(tmp_path / "n.csv", index=False)
    assert main(["explain", str(made[1]), str(tmp_path / "n.csv"), "--out", str(tmp_path / "o")]) == 0
    entries = json.loads((tmp_path / "o" / "explain.json").read_text())["bags"]
    assert {(entry["label"], entry["split"]) for entry in entries} == {(None, None)}
    assert re.search(r"lowest scored of the \d+ bags; name others", capsys.readouterr().out)


def test_the_bags_of_the_run_are_known_by_their_content_alone(made, tmp_path, monkeypatch, capsys):
    frame, run = pd.read_csv(made[0]), str(made[1])
    for name, change in (("here", 0.0), ("there", 0.01)):
        (tmp_path / name).mkdir()
        other = frame.copy()
        other.loc[:, "f0":] += change
        other.to_csv(tmp_path / name / "bags.csv", index=False, float_format="%.6f")
    monkeypatch.chdir(tmp_path / "here")
    held_out = ["--test-fraction", "0.2"]
    assert main(["fit", "bags.csv", "--epochs", "1", "--members", "1", *held_out, "--out", "run"]) == 0
    tested = "8 test bags of the run"
    for run in ("../here/run", str(tmp_path / "here" / "run")):
        found = {}
        for name in ("here", "there"):
            monkeypatch.chdir(tmp_path / name)
            for data in ("bags.csv", str(tmp_path / name / "bags.csv")):
                capsys.readouterr()
                out = tmp_path / f"{len(list(tmp_path.iterdir()))}"
                assert main(["explain", run, data, "--out", str(out)]) == 0
                entries = json.loads((out / "explain.json").read_text())["bags"]
                among = re.search("lowest scored of the (.*);", capsys.readouterr().out)[1]
                found.setdefault(name, set()).add((among, *(entry["split"] for entry in entries)))
        assert found == {"here": {(tested, "test", "test")}, "there": {("40 bags", None, None)}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--bags", "b99"], ["'b99'", "one of 40 bags", "known are all, b"]),
        (["--top", "0"], ["--top as a whole number of at least 1, got 0"]),
    ],
)
def test_what_cannot_be_shown_is_refused_before_anything_is_written(options, words, made, tmp_path, capsys):
    data, run = made
    assert main(["explain", str(run), str(data), *options, "--out", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words)
    assert not (tmp_path / "o").exists()


def test_nothing_is_written_over(made, explained, capsys):
    before = {path.name: path.read_bytes() for path in explained.iterdir()}
    assert main(["explain", *_order(made, explained)]) == 2
    assert "Expected an empty folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in explained.iterdir()} == before


def test_the_data_folder_is_not_written_to(made, capsys):
    data, run = made
    assert main(["explain", str(run), str(data), "--bags", "b01", "--out", str(data)]) == 2
    assert "another folder than the data" in capsys.readouterr().err


BAGS = [f"b{number:02d}" for number in range(8)]


def test_a_stop_while_progress_is_printed_is_still_told(made, tmp_path, monkeypatch, capsys):
    def stopped(progress, _bag):
        progress._console._enter_buffer()  # as a signal between two lines of rich leaves it
        raise KeyboardInterrupt

    monkeypatch.setattr("midam.report.terminal.BagProgress.update", stopped)
    call = ["explain", str(made[1]), str(made[0]), "--bags", *BAGS, "--out", str(tmp_path / "out")]
    assert main(call) == 130
    assert f"1 of {len(BAGS)} bags explained" in capsys.readouterr().err


@pytest.mark.parametrize("done", [0, 2])
def test_a_full_disk_leaves_finished_bags_alone(done, made, tmp_path, monkeypatch, capsys):
    tables = []

    def full(*arguments, **options):
        tables.append(arguments)
        if len(tables) > done:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "table")
        return instances_csv(*arguments, **options)

    out, call = tmp_path / "out", ["explain", str(made[1]), str(made[0]), "--bags", *BAGS[:4], "--out"]
    with monkeypatch.context() as patch:
        patch.setattr("midam.explain.run.instances_csv", full)  # after the picture of the bag
        assert main([*call, str(out)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    names = {path.name for path in out.iterdir()} if done else set()
    assert out.exists() == bool(done)
    assert {name for name in names if name[0] == "b"} == {
        f"{bag}.{end}" for bag in BAGS[:done] for end in ("csv", "png")
    }
    assert pictures_on_pages(out) == done
    assert main([*call, str(out)]) == 0
    assert pictures_on_pages(out) == 4
    assert main([*call, str(tmp_path / "whole")]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()
    }


def pictures_on_pages(folder):
    """The number of pictures on all pages of a call."""
    return sum(page.read_text().count("<img") for page in folder.glob("*.html"))


def test_a_stopped_call_shows_what_is_done_and_goes_on(made, tmp_path, capsys):
    run = shutil.copytree(made[1], tmp_path / "run", ignore=shutil.ignore_patterns("explain*"))
    call = ["explain", str(run), str(made[0]), "--bags", *BAGS]
    process = start(*call, log=tmp_path / "log", wait_at=Moment(run / "explain" / "b01.csv", 1))
    assert stop(process, signal.SIGINT) == 130
    said = json.loads((run / "explain" / "explain.json").read_text())
    done = [entry["bag"] for entry in said["bags"]]
    assert done == BAGS[: len(done)]
    assert 1 <= len(done) < len(BAGS)
    assert not said["finished"]
    page = (run / "explain" / "index.html").read_text()
    assert pictures_on_pages(run / "explain") == len(done)
    assert f"Unfinished: {len(BAGS) - len(done)} more bags" in page
    assert f"{len(done)} of {len(BAGS)} bags explained" in (tmp_path / "log").read_text()
    assert main([*call[:3], "--bags", "b09"]) == 0, "another call has a folder of its own"
    assert json.loads((run / "explain-2" / "explain.json").read_text())["finished"]
    assert main([*call, "--top", "3", "--out", str(run / "explain")]) == 2
    assert "Expected an empty folder" in capsys.readouterr().err
    changed = pd.read_csv(made[0])
    changed.loc[0, "f0"] += 1.0
    changed.to_csv(tmp_path / "changed.csv", index=False)
    assert main(["explain", str(run), str(tmp_path / "changed.csv"), *call[3:], "--out", str(run / "explain")]) == 2
    assert "explanations of the same instances by the same call" in capsys.readouterr().err
    relabeled = pd.read_csv(made[0])
    relabeled.loc[relabeled.bag == done[0], "label"] = 1 - relabeled.label[relabeled.bag == done[0]]
    relabeled.to_csv(tmp_path / "relabeled.csv", index=False)
    assert main(["explain", str(run), str(tmp_path / "relabeled.csv"), *call[3:], "--out", str(run / "explain")]) == 2
    assert "by the same call that was stopped" in capsys.readouterr().err
    files = [path for bag in done for path in (run / "explain").glob(f"{bag}.*") if path.suffix != ".html"]
    before = {path: path.stat().st_mtime_ns for path in files}
    assert main(call) == 0
    assert f"{len(BAGS)} bags explained" in capsys.readouterr().out
    assert not (run / "explain-3").exists()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    said = json.loads((run / "explain" / "explain.json").read_text())
    assert [entry["bag"] for entry in said["bags"]] == BAGS
    assert said["finished"]
    page = (run / "explain" / "index.html").read_text()
    assert pictures_on_pages(run / "explain") == len(BAGS)
    assert "Unfinished" not in page
    assert main([*call, "--out", str(run / "explain")]) == 2, "it is finished"


def test_a_killed_call_goes_on(made, tmp_path):
    out = tmp_path / "o"
    bags = BAGS[:6]
    call = ["explain", str(made[1]), str(made[0]), "--bags", *bags, "--out", str(out)]
    process = start(*call, log=tmp_path / "log", wait_at=Moment(out / "b01.csv", 1))
    assert stop(process, signal.SIGKILL) == -signal.SIGKILL
    done = [entry["bag"] for entry in json.loads((out / "explain.json").read_text())["bags"]]
    before = {path: path.stat().st_mtime_ns for bag in done for path in out.glob(f"{bag}.*")}
    assert before
    assert main(call) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [entry["bag"] for entry in json.loads((out / "explain.json").read_text())["bags"]] == bags
    assert not list(out.glob("*.part*"))


def feature_files(folder, count=20):
    """Slides of patch features with places, as CLAM writes them."""
    rng = np.random.default_rng(7)
    labels = []
    for slide in range(count):
        x = rng.normal(size=(12, 4)).astype(np.float32)
        x[0] += 2.0 * (slide % 2)
        with h5py.File(folder / f"s{slide:02d}.h5", "w") as file:
            file["features"] = x
            file["coords"] = np.stack([np.arange(12) % 4, np.arange(12) // 4], axis=1) * 512
            file["coords"].attrs.update({"patch_size": 256, "patch_size_level0": 512})
        labels.append(f"s{slide:02d},{slide % 2}\n")
    (folder.parent / "labels.csv").write_text("slide_id,label\n" + "".join(labels))


def days(table, bag, instances):
    """Which of the three days the instances of a bag have."""
    in_order = table.loc[table["bag"] == bag, "day"].str[-2:].astype(int).tolist()
    return [(1, 9, 17).index(in_order[i]) for i in instances]


@pytest.mark.parametrize(("suffix", "unit", "first"), [("csv", "line", 2), ("parquet", "row", 1)])
def test_instances_of_a_table_have_their_line_and_time(suffix, unit, first, tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [[f"b{bag}", bag % 2, f"2024-01-{day:02d}", *rng.normal(size=2)] for bag in range(40) for day in (1, 9, 17)]
    table = pd.DataFrame(rows, columns=["bag", "label", "day", "f0", "f1"]).sample(frac=1, random_state=0)
    data, run, out = tmp_path / f"t.{suffix}", tmp_path / "run", tmp_path / "why"
    getattr(table, f"to_{suffix}")(data, index=False)
    fit = ["--method", "midam", "--epochs", "1", "--members", "1", "--no-baseline"]
    assert main(["fit", str(data), *fit, "--out", str(run)]) == 0
    assert main(["explain", str(run), str(data), "--bags", "b3", "b4", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for bag in ("b3", "b4"):
        top = pd.read_csv(out / f"{bag}.csv")
        in_file = top.sort_values("instance")[unit] - first
        assert in_file.tolist() == np.flatnonzero(table["bag"] == bag).tolist()
        best = top.iloc[0]
        assert top["time"].tolist() == [f"2024-01-{(1, 9, 17)[i]:02d}" for i in days(table, bag, top["instance"])]
        assert f"#{best['instance']}, {unit} {best[unit]}, {best['time']}: adds" in printed
    page = (out / "index.html").read_text()
    assert f'>{unit}</th><th scope="col">time</th><th scope="col" class="n">adds</th>' in page
    assert f">#{best['instance']}, {unit} {best[unit]}, {best['time']}</td>" in page  # in the list of bags


def test_slides_get_polygons_of_their_patches(tmp_path, capsys):
    (tmp_path / "slides").mkdir()
    feature_files(tmp_path / "slides")
    data = [str(tmp_path / "slides"), "--labels", str(tmp_path / "labels.csv")]
    assert main(["fit", *data, *ONE_MODEL, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "run"), *data, "--bags", "s01", "--out", str(tmp_path / "o")]) == 0
    features = json.loads((tmp_path / "o" / "s01.geojson").read_text())["features"]
    table = pd.read_csv(tmp_path / "o" / "s01.csv")
    assert [one["properties"]["instance"] for one in features] == table["instance"].tolist()
    corner = table.loc[0, ["coord_0", "coord_1"]].tolist()
    assert features[0]["geometry"]["coordinates"][0][0] == corner
    assert features[0]["geometry"]["coordinates"][0][2] == [x + 512 for x in corner]
    entry = json.loads((tmp_path / "o" / "explain.json").read_text())["bags"][0]
    assert entry["picture"] == "map"
    assert "warning" not in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.drawn
def test_slides_known_by_features_are_drawn_over_a_folder_of_images(tmp_path, capsys):
    (tmp_path / "slides").mkdir()
    (tmp_path / "thumbs").mkdir()
    feature_files(tmp_path / "slides")
    with h5py.File(tmp_path / "slides" / "s01.h5", "r+") as file:
        right, low = (file["coords"][:].max(axis=0) + 512).tolist()
        file["coords"].attrs["level0_width"] = right
    Image.new("RGB", (right // 64, low // 64), "pink").save(tmp_path / "thumbs" / "s01.png")
    data, run = [str(tmp_path / "slides"), "--labels", str(tmp_path / "labels.csv")], str(tmp_path / "run")
    assert main(["fit", *data, *ONE_MODEL, "--out", run]) == 0
    capsys.readouterr()
    images = ["--images", str(tmp_path / "thumbs")]
    wanted = ["explain", run, *data, "--bags", "s01", "--out", str(tmp_path / "o"), *images]
    assert main(wanted) == 0
    assert "warning" not in capsys.readouterr().err
    entry = json.loads((tmp_path / "o" / "explain.json").read_text())["bags"][0]
    assert entry["picture"] == "overlay"
    for options, words in (
        (["--images", str(tmp_path / "none")], "Expected images or slides"),
        (["--images", str(tmp_path / "slides")], "Expected images or slides"),
    ):
        assert main(["explain", run, *data, "--out", str(tmp_path / "p"), *options]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "p").exists()
    read_in_chromium(tmp_path / "o" / "index.html")


def test_the_page_says_why_a_bag_has_no_image(tmp_path, capsys):
    for folder in ("slides", "thumbs"):
        (tmp_path / folder).mkdir()
    feature_files(tmp_path / "slides")
    Image.new("RGB", (20, 20), "pink").save(tmp_path / "thumbs" / "s01.png")
    data, run = [str(tmp_path / "slides"), "--labels", str(tmp_path / "labels.csv")], str(tmp_path / "run")
    assert main(["fit", *data, *ONE_MODEL, "--out", run]) == 0
    call = ["explain", run, *data, "--bags", "s01", "s02", "--images", str(tmp_path / "thumbs")]
    assert main([*call, "--out", str(tmp_path / "o")]) == 0
    said = capsys.readouterr().err
    entries = json.loads((tmp_path / "o" / "explain.json").read_text())["bags"]
    page = (tmp_path / "o" / "index.html").read_text()
    for entry, reason in zip(entries, ("its scale is unknown", "no file has this name"), strict=True):
        (note,) = entry["notes"]
        assert reason in note
        assert note in said
        assert f"Note: {note}." in page


def read_in_chromium(page_file):
    """The page at the width of a desk and of a phone, without a network, on paper."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if (chromium := shutil.which("chromium") or shutil.which("google-chrome")) is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (1200, 375):
            context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
            page, faults = context.new_page(), []

            def note(fault, faults=faults):
                faults.append(str(fault))

            page.on("pageerror", note)
            page.on("requestfailed", note)
            page.goto(page_file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")

            page.emulate_media(media="print")
            assert faults == []
        browser.close()


def test_images_are_drawn_on_and_a_moved_one_is_named(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    rng, labels = np.random.default_rng(8), []
    for number in range(20):
        pixels = rng.integers(0, 100 + 100 * (number % 2), (24, 32, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"i{number:02d}.png")
        labels.append(f"i{number:02d},{number % 2}\n")
    (tmp_path / "labels.csv").write_text("slide_id,label\n" + "".join(labels))
    tables, run, store = ["--labels", str(tmp_path / "labels.csv")], str(tmp_path / "run"), str(tmp_path / "store")
    data = [str(tmp_path / "images"), *tables]
    assert main(["fit", *data, "--patch-size", "8", *ONE_MODEL, "--out", run]) == 0
    assert main(["explain", run, *data, "--bags", "i01", "--out", str(tmp_path / "o")]) == 0
    entry = json.loads((tmp_path / "o" / "explain.json").read_text())["bags"][0]
    assert (entry["picture"], entry["size"]) == ("overlay", 12)
    ring = json.loads((tmp_path / "o" / "i01.geojson").read_text())["features"][0]["geometry"]["coordinates"][0]
    assert (ring[2][0] - ring[0][0], ring[2][1] - ring[0][1]) == (8, 8)
    assert main(["data", "import", *data, "--patch-size", "8", "--out", store]) == 0
    (tmp_path / "images" / "i01.png").unlink()
    capsys.readouterr()
    assert main(["explain", run, store, "--bags", "i01", "--out", str(tmp_path / "s")]) == 0
    assert "i01.png is left out of the picture" in capsys.readouterr().err
    again = json.loads((tmp_path / "s" / "explain.json").read_text())["bags"][0]
    assert again["picture"] == "sheet"
    np.testing.assert_allclose(again["score"], entry["score"], rtol=0, atol=1e-6)


def test_nothing_is_written_among_the_files_of_the_bags(tmp_path, capsys):
    slides = tmp_path / "slides"
    slides.mkdir()
    feature_files(slides)
    frame = pd.read_csv(tmp_path / "labels.csv").rename(columns={"slide_id": "bag"})
    frame["path"] = "slides/" + frame["bag"] + ".h5"
    frame.to_csv(tmp_path / "man.csv", index=False)
    data, run = str(tmp_path / "man.csv"), str(tmp_path / "run")
    assert main(["fit", data, *ONE_MODEL, "--out", run]) == 0
    assert main(["data", "import", data, "--out", str(tmp_path / "s.store")]) == 0
    before = sorted(path.name for path in slides.iterdir())
    explain, predict = ["explain", run, "DATA", "--bags", "s01", "--out"], ["predict", run, "DATA", "--out"]
    for source in (data, str(tmp_path / "s.store")):
        for command in (
            [*explain, str(slides)],
            [*predict, str(slides / "s01.h5")],
            [*predict, str(tmp_path / "p.csv"), "--instances", str(slides)],
        ):
            capsys.readouterr()
            assert main([source if word == "DATA" else word for word in command]) == 2
            error = capsys.readouterr().err
            assert "place outside the data" in error or "new file or one of scores for --out" in error
    assert sorted(path.name for path in slides.iterdir()) == before
    assert not (tmp_path / "p.csv").exists()
    assert main([*explain[:2], str(tmp_path / "s.store"), *explain[3:], str(tmp_path / "s.store" / "why")]) == 2
    assert main([*explain[:2], data, *explain[3:], str(tmp_path / "why")]) == 0, "beside the manifest"


@pytest.mark.long
def test_files_and_manifest_in_one_folder_leave_room_for_results(tmp_path, monkeypatch):
    flat = tmp_path / "flat"
    flat.mkdir()
    feature_files(flat)
    frame = pd.read_csv(tmp_path / "labels.csv").rename(columns={"slide_id": "bag"})
    frame.assign(path=frame["bag"] + ".h5").to_csv(flat / "man.csv", index=False)
    monkeypatch.chdir(flat)
    assert main(["fit", "man.csv", *ONE_MODEL, "--out", "run"]) == 0
    assert main(["predict", "run", "man.csv", "--out", "scores.csv"]) == 0
    assert main(["explain", "run", "man.csv", "--bags", "s01", "--out", "why"]) == 0
    assert main(["explain", "run", "man.csv", "--bags", "s01", "--out", "."]) == 2


def test_each_slide_of_a_patient_has_its_polygons_maps_and_rows(tmp_path, capsys):
    rng, rows = np.random.default_rng(0), ["slide\tpatient\tlabel"]
    (tmp_path / "f").mkdir()
    for patient in range(16):
        for name in ("a", "b")[: 1 + patient % 2]:
            x, places = rng.normal(size=(6, 3)).astype("f4"), np.arange(12).reshape(6, 2) * 8.0
            places[0] = np.nan if name == "b" else places[0]
            with h5py.File(tmp_path / "f" / f"p{patient}{name}.h5", "w") as file:
                file["features"], file["coords"] = x, places
                file["coords"].attrs["patch_size_level0"] = 8
            rows.append(f"p{patient}{name}\tp{patient}\t{patient // 2 % 2}")
    (tmp_path / "labels.tsv").write_text("\n".join(rows))
    data = [str(tmp_path / "f"), "--labels", str(tmp_path / "labels.tsv")]
    fit = ["fit", *data, "--bag-by", "patient", *ONE_MODEL, "--no-baseline"]
    assert main([*fit, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "run"), *data, "--bags=p1", "--out", str(tmp_path / "o")]) == 0
    said, (entry,) = capsys.readouterr(), json.loads((tmp_path / "o" / "explain.json").read_text())["bags"]
    assert "the map leaves out instances" in said.err
    assert "(1 of 12)" in said.err
    assert entry["slides"] == ["p1.p1a.geojson", "p1.p1b.geojson"]
    for slide, count in zip(entry["slides"], (6, 5), strict=True):
        polygons = json.loads((tmp_path / "o" / slide).read_text())["features"]
        assert len(polygons) == count
    table = pd.read_csv(tmp_path / "o" / "p1.csv")
    assert (table["file"] == np.where(table["instance"] < 6, "p1a.h5", "p1b.h5")).all()
    page = (tmp_path / "o" / "index.html").read_text()
    assert "p1.p1b.geojson" in page


NAMES = ("index", "a/1", "A/1", "p 4", "p5", "p6")  # which need other names of files


def slides_of_patients(folder):
    """Three slides of each of six patients, and their table."""
    feature_files(folder, count=18)
    lines = [f"s{i:02d},{i // 3 % 2},{NAMES[i // 3]}" for i in range(18)]
    (folder.parent / "labels.csv").write_text("slide_id,label,patient\n" + "\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def of_patients(tmp_path_factory):
    """The words of a command on the slides of patients, and a run on them."""
    root = tmp_path_factory.mktemp("patients")
    (root / "slides").mkdir()
    slides_of_patients(root / "slides")
    data = [str(root / "slides"), "--labels", str(root / "labels.csv"), "--groups", "patient"]
    fit = ["--method", "midam", "--epochs", "1", "--members", "1", "--no-baseline", "--folds", "0"]
    assert main(["fit", *data, *fit, "--out", str(root / "run")]) == 0
    return [str(root / "run"), *data]


def test_all_bags_get_a_page_a_patient_and_an_index(of_patients, tmp_path):
    out = tmp_path / "why"
    assert main(["explain", *of_patients, "--bags", "all", "--out", str(out)]) == 0
    index = (out / "index.html").read_text()
    pages = sorted(path.name for path in out.glob("*.html"))
    assert len(pages) == len({name.lower() for name in pages}) == 7
    links = re.findall(r'<a href="([^"#]+\.html)#bag-(\d)"', index)
    assert [number for _, number in links] == ["0", "1", "2"] * 6
    assert {unquote(name) for name, _ in links} == {*pages} - {"index.html"}
    assert "<img" not in index
    for name in {*pages} - {"index.html"}:
        page = (out / name).read_text()
        assert page.count("<img ") == 3
        assert '<a href="index.html">All patients' in page
        assert all((out / unquote(link)).is_file() for link in re.findall(r'<a href="(?!#)([^"#]+)"', page))


def test_a_patient_is_all_its_bags_on_one_page(of_patients, tmp_path):
    assert main(["explain", *of_patients, "--bags", "p 4", "--out", str(tmp_path / "why")]) == 0
    assert [path.name for path in (tmp_path / "why").glob("*.html")] == ["index.html"]
    page = (tmp_path / "why/index.html").read_text()
    assert page.count("<img ") == 3
    assert "group</th>" in page
