import contextlib
import dataclasses
import functools
import gzip
import http.server
import io
import shutil
import subprocess
import tarfile
import threading
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midam.data.bags import Bags
from midam.errors import BagDataError, ConfigError, DataNotFoundError
from studies.sets import catalog
from studies.sets.npz import read_npz, write_npz
from studies.sets.tabular import content_digest, decompress

CLASSICAL = ("musk1", "musk2", "elephant", "fox", "tiger")
DRAWN = ("digits", "digits-classes", "digits-labels")
OUTCOMES = (
    *("japanese_vowels", "enzymes", "digits_points", "miml_scene", "miml_reuters"),
    *("esol_atoms", "cmapss_rul", "pbc2_landmark2y", "heart_valve_landmark2y"),
)
BY_HAND = ("mutagenesis1", "newsgroups1", "physionet2012_icu", "colon_nuclei")


def compress(data, max_bits=16, clear_after=None):
    """Encode as the Unix compress program does; with a clear code after so many letters, if asked for."""
    out, group = bytearray(b"\x1f\x9d" + bytes([0x80 | max_bits])), []

    def emit(code, width):
        group.append(code)
        if len(group) == 8:
            flush(width)

    def flush(width, pad=False):
        number = sum(code << (width * place) for place, code in enumerate(group))
        size = width if pad and group else -(-width * len(group) // 8)
        out.extend(number.to_bytes(size, "little"))
        group.clear()

    table, width, prefix, free = {bytes([i]): i for i in range(256)}, 9, b"", 257
    for place, letter in enumerate(data):
        if clear_after is not None and place == clear_after:
            emit(table[prefix], width)
            free += 1  # the decoder adds an entry for this code, too
            if free > 1 << width and width < max_bits:
                flush(width, pad=True)
                width += 1
            emit(256, width)
            flush(width, pad=True)
            table, width, prefix, free = {bytes([i]): i for i in range(256)}, 9, b"", 257
        longer = prefix + bytes([letter])
        if longer in table:
            prefix = longer
            continue
        emit(table[prefix], width)
        if free < 1 << max_bits:
            table[longer] = free
            free += 1
            if free > 1 << width and width < max_bits:
                flush(width, pad=True)
                width += 1
        prefix = bytes([letter])
    if prefix:
        emit(table[prefix], width)
    flush(width)
    return bytes(out)


def musk_text(bags):
    lines = []
    for number in range(len(bags)):
        for place, row in enumerate(bags[number]):
            values = ",".join(f"{value:.0f}" for value in row)
            lines.append(f"MUSK-{bags.ids[number]},{bags.ids[number]}_{place},{values},{bags.labels[number]}.\n")
    return "".join(lines).encode()


def svm_text(bags):
    lines, instance = ["# instance:bag:label\n"], 0
    for number in range(len(bags)):
        for row in bags[number]:
            cells = " ".join(f"{place}:{value:.9g}" for place, value in enumerate(row, start=1) if value)
            lines.append(f"{instance}:{number + 3}:{1 if bags.labels[number] else -1} {cells}\n")
            instance += 1
    return "".join(lines).encode()


def zipped(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def tarred(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def write_archive(folder, name, bags):
    """Write the bags as the public home of ``name`` does, and return the file's name."""
    if name.startswith("musk"):
        number = name[-1]
        members = {f"clean{number}.names": b"text", f"clean{number}.data.Z": compress(musk_text(bags))}
        zipped(folder / f"{name}.zip", members)
        return f"{name}.zip"
    others = {f"MilData/{other.title()}/data_100x100.svm": b"" for other in CLASSICAL[2:]}
    tarred(folder / "mil.tgz", {**others, f"MilData/{name.title()}/data_100x100.svm": svm_text(bags)})
    return "mil.tgz"


def synthetic(name, seed=0):
    entry = catalog.CATALOG[name]
    rng = np.random.default_rng(seed)
    values = [rng.integers(-300, 300, (n, entry.features)) for n in (3, 1, 4, 2)]
    scale = 1.0 if name.startswith("musk") else 1e-3
    return Bags.from_list([scale * v for v in values], [1, 0, 0, 1])


@contextlib.contextmanager
def served(folder):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # it looks twice a second for the end
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Point the data folders at empty ones, and let the local server be reached without a proxy."""
    for name in ("served", "data", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("MIDAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("MIDAM_DATA", raising=False)
    return tmp_path


def expect(monkeypatch, name, bags, url):
    """Make the entry expect the content of ``bags`` at ``url``."""
    entry = dataclasses.replace(catalog.CATALOG[name], digest=content_digest(bags), url=url)
    monkeypatch.setitem(catalog.CATALOG, name, entry)


@pytest.mark.parametrize("name", CLASSICAL)
def test_fetched_once_then_loaded_from_the_cache(home, monkeypatch, name):
    bags, seen = synthetic(name), []
    with served(home / "served") as address:
        expect(monkeypatch, name, bags, f"{address}/{write_archive(home / 'served', name, bags)}")
        first = catalog.load(name, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    assert catalog.describe(name)["location"] == str(home / "cache" / f"{name}.npz")
    assert [file.name for file in (home / "cache").iterdir()] == [f"{name}.npz"]
    again = catalog.load(name)  # the server is gone
    assert again.fingerprint() == first.fingerprint()
    assert content_digest(again) == content_digest(bags)
    assert again.instances.dtype == np.float32
    assert again.ids[0] == f"{name}-0000"


def test_a_set_is_the_same_wherever_it_comes_from(home, monkeypatch):
    bags = synthetic("musk1")
    with served(home / "served") as address:
        expect(monkeypatch, "musk1", bags, f"{address}/{write_archive(home / 'served', 'musk1', bags)}")
        fetched = catalog.load("musk1")
    shuffled = Bags.from_list([bags[i][::-1].astype(np.float64) for i in (2, 0, 3, 1)], bags.labels[[2, 0, 3, 1]])
    for place in ("tabular/musk1.npz", "musk1.npz"):
        folder = home / "data" / place.replace("/", "-")
        (folder / place).parent.mkdir(parents=True)
        write_npz(shuffled, folder / place)
        monkeypatch.setenv("MIDAM_DATA", str(folder))
        assert catalog.describe("musk1")["location"] == str(folder / place)
        assert catalog.load("musk1").fingerprint() == fetched.fingerprint()


def test_archive_variants(home, monkeypatch):
    bags = synthetic("musk1")
    expect(monkeypatch, "musk1", bags, None)
    text = musk_text(bags)
    variants = {"clean1.data": text, "musk/clean1.data.gz": gzip.compress(text), "clean1.data.Z": compress(text, 12)}
    expect(monkeypatch, "musk1", bags, "http://unused")
    for number, (member, data) in enumerate(variants.items()):
        path = home / "served" / f"{number}.zip"
        zipped(path, {member: data})
        cache = home / f"cache-{number}"
        assert catalog.fetch("musk1", url=path.as_uri(), cache=cache) == cache / "musk1.npz"
        assert len(catalog.load("musk1", cache=cache)) == 4


def test_other_content_is_refused_and_the_cache_left_alone(home, monkeypatch):
    name = write_archive(home / "served", "fox", synthetic("fox", seed=1))
    with served(home / "served") as address:
        expect(monkeypatch, "fox", synthetic("fox"), f"{address}/{name}")
        with pytest.raises(BagDataError, match=r"content of fox .*fetch it again"):
            catalog.fetch("fox")
    assert list((home / "cache").iterdir()) == []
    write_npz(synthetic("fox", seed=1), home / "cache" / "fox.npz")
    with pytest.raises(BagDataError, match=r"content of fox .*fox\.npz"):
        catalog.load("fox")


def test_damaged_archives_are_refused(home, monkeypatch):
    bags = synthetic("musk1")
    expect(monkeypatch, "musk1", bags, "http://unused")
    good = home / "served" / write_archive(home / "served", "musk1", bags)
    short = musk_text(bags).replace(b"1.\n", b"\n", 1)
    cases = {
        "page.zip": (b"<html>sign in</html>", "fetch the archive again"),
        "cut.zip": (good.read_bytes()[:500], "fetch the archive again"),
    }
    for name, (data, message) in cases.items():
        (home / "served" / name).write_bytes(data)
        with pytest.raises(BagDataError, match=message):
            catalog.fetch("musk1", url=(home / "served" / name).as_uri())
    members = {
        "a.zip": ({"readme": b""}, "a member like .*got readme"),
        "b.zip": ({"clean1.data": b"a,b,1,2\n"}, "4 fields for 169"),
        "c.zip": ({"clean1.data": short}, "could not convert"),
        "d.zip": ({"clean1.data.Z": b"\x1f\x8b\x08"}, "compress program"),
        "e.zip": ({"clean1.data": b"\n"}, "empty table"),
    }
    for name, (parts, message) in members.items():
        zipped(home / "served" / name, parts)
        with pytest.raises(BagDataError, match=message):
            catalog.fetch("musk1", url=(home / "served" / name).as_uri())
    assert list((home / "cache").iterdir()) == []


@pytest.mark.parametrize("line", ["0:1:1 0:3", "0:1:1 231:3", "0:1 1:3", "0:1:1 1:x"])
def test_bad_svm_lines_are_refused(home, line):
    tarred(home / "served" / "mil.tgz", {"MilData/Fox/data_100x100.svm": line.encode()})
    with pytest.raises(BagDataError, match="svm table"):
        catalog.fetch("fox", url=(home / "served" / "mil.tgz").as_uri())


def test_offline_says_what_to_do(home, monkeypatch):
    with served(home / "served") as address:
        url = f"{address}/absent.zip"
        expect(monkeypatch, "tiger", synthetic("tiger"), url)
        with pytest.raises(DataNotFoundError, match=r"absent\.zip, got HTTP Error 404.*MIDAM_DATA.*tabular/tiger\.npz"):
            catalog.load("tiger")
    with pytest.raises(DataNotFoundError, match=r"refused.*MIDAM_DATA"):  # the server is gone
        catalog.load("tiger")
    assert list((home / "cache").iterdir()) == []


def test_a_cut_download_is_refused(home, monkeypatch):
    class Cut(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"PK" * 100)

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Cut)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    with pytest.raises(DataNotFoundError, match="200 of 1000 bytes"):
        catalog.fetch("fox", url=f"http://127.0.0.1:{server.server_address[1]}/x.tgz")
    thread.join()
    server.server_close()


def test_an_unwritable_cache_is_named(home):
    (home / "file").write_text("")
    with pytest.raises(DataNotFoundError, match="MIDAM_CACHE"):
        catalog.fetch("fox", cache=home / "file" / "cache", url="file:///absent")


def test_names_and_descriptions(home):
    assert catalog.names() == [*DRAWN, *CLASSICAL, *BY_HAND, *OUTCOMES, "breast", "colon", "adrenal", "pdgm", "oct"]
    assert catalog.describe("musk2")["location"] is None
    assert catalog.describe("musk2")["bags"] == 102
    with pytest.raises(ConfigError, match="got 'tigr'; did you mean 'tiger'"):
        catalog.describe("tigr")
    with pytest.raises(ConfigError, match="bundled"):
        catalog.fetch("digits")
    bundled = [name for name in catalog.names() if catalog.describe(name)["location"] == "bundled"]
    assert bundled == list(DRAWN)


@pytest.mark.parametrize("name", BY_HAND)
def test_a_set_without_an_archive_says_how_it_is_obtained(home, name):
    entry = catalog.describe(name)
    assert (entry["location"], entry["archive"]) == (None, None)
    assert entry["url"]
    for act in (catalog.load, catalog.fetch):
        with pytest.raises(DataNotFoundError) as caught:
            act(name)
        assert entry["obtain"] in str(caught.value)
        assert f"tabular/{name}.npz" in str(caught.value)


def test_a_set_put_there_by_hand_may_be_float16_and_have_more_keys(home, monkeypatch):
    bags = synthetic("colon_nuclei")
    half = Bags.from_list([bags[i].astype(np.float16) for i in range(len(bags))], bags.labels)
    expect(monkeypatch, "colon_nuclei", half, catalog.CATALOG["colon_nuclei"].url)
    monkeypatch.setenv("MIDAM_DATA", str(home / "data"))
    (home / "data" / "tabular").mkdir()
    path, number = home / "data" / "tabular" / "colon_nuclei.npz", np.repeat(np.arange(4), half.sizes)
    more = {"name": "colon_nuclei", "source": "a hospital", "features": ["f"] * 59, "inst_label": number % 2}
    np.savez(path, X=half.instances, bag=number, y=half.labels, **more)
    loaded = catalog.load("colon_nuclei")
    assert content_digest(loaded) == content_digest(half)
    assert loaded.instances.dtype == np.float32
    assert loaded.instance_labels is None
    write_npz(bags, path)
    with pytest.raises(BagDataError, match=r"content of colon_nuclei .*remove the file and our 59 features"):
        catalog.load("colon_nuclei")


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("MIDAM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalog.cache_folder() == tmp_path / "midam"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert catalog.cache_folder().parts[-2:] == (".cache", "midam")


def test_digits_are_what_the_entry_says():
    bags, entry = catalog.load("digits"), catalog.CATALOG["digits"]
    assert content_digest(bags) == entry.digest
    assert (len(bags), int(bags.labels.sum()), bags.num_instances) == (entry.bags, entry.positives, entry.instances)
    assert bags.instances.dtype == np.float32
    assert bags.instances.min() == 0
    assert bags.instances.max() == 1
    assert set(bags.sizes.tolist()) == set(range(5, 16))
    assert bags.ids[7] == "train-0007"


def test_digits_of_the_splits_are_disjoint_and_labels_follow_the_nines():
    from sklearn.datasets import load_digits

    source = load_digits()
    target = {tuple(image): int(digit) for image, digit in zip(source.data.astype(int).tolist(), source.target)}
    assert len(target) == 1797  # no two digits are equal, so that an image tells which one it is
    bags = catalog.load("digits")
    pools = {}
    for number, (label, split) in enumerate(zip(bags.labels, bags.splits)):
        images = [tuple(row) for row in (bags[number] * 16).astype(int).tolist()]
        assert len(set(images)) == len(images)
        nines = sum(target[image] == 9 for image in images)
        assert nines in ((1, 2, 3) if label else (0,))
        start = bags.starts[number]
        assert [target[image] == 9 for image in images] == bags.instance_labels[start : start + len(images)].tolist()
        pools.setdefault(split, set()).update(images)
    for split, (count, positives) in {"train": (200, 100), "val": (60, 30), "test": (100, 50)}.items():
        chosen = bags.where_split(split)
        assert (len(chosen), int(bags.labels[chosen].sum())) == (count, positives)
    assert not pools["train"] & pools["val"]
    assert not pools["train"] & pools["test"]
    assert not pools["val"] & pools["test"]


# The rows of MUSK2 take seconds.
@pytest.mark.data
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name == "musk2" else []) for name in CLASSICAL]
)
def test_real_data_survive_their_original_format(data_root, home, monkeypatch, name):
    entry = catalog.CATALOG[name]
    real = read_npz(data_root / "tabular" / f"{name}.npz")
    assert content_digest(real) == entry.digest
    assert (len(real), int(real.labels.sum()), real.num_instances, real.instance_shape) == (
        entry.bags,
        entry.positives,
        entry.instances,
        (entry.features,),
    )
    with served(home / "served") as address:
        path = catalog.fetch(name, url=f"{address}/{write_archive(home / 'served', name, real)}")
    from_cache = catalog.load(name)
    assert content_digest(read_npz(path)) == entry.digest
    monkeypatch.setenv("MIDAM_DATA", str(data_root))
    assert catalog.load(name).fingerprint() == from_cache.fingerprint()


@pytest.mark.data
@pytest.mark.parametrize("name", BY_HAND)
def test_real_data_put_there_by_hand_are_what_the_entry_says(data_root, home, monkeypatch, name):
    monkeypatch.setenv("MIDAM_DATA", str(data_root))
    entry, bags = catalog.CATALOG[name], catalog.load(name)
    assert content_digest(bags) == entry.digest
    found = (len(bags), int(bags.labels.sum()), bags.num_instances, bags.instance_shape)
    assert found == (entry.bags, entry.positives, entry.instances, (entry.features,))
    assert bags.instances.dtype == np.float32
    assert np.isfinite(bags.instances).all()


@given(st.binary(max_size=200))
def test_decompress_restores_any_bytes(data):
    assert decompress(compress(data)) == data


@pytest.mark.parametrize(("max_bits", "clear_after"), [(16, None), (10, None), (16, 4000), (12, 30_000)])
def test_decompress_through_all_widths_and_clears(tmp_path, max_bits, clear_after):
    rng = np.random.default_rng(0)
    data = bytes(rng.integers(0, 40, 200_000, dtype=np.uint8)) + b"a" * 5000 + bytes(range(256))
    packed = compress(data, max_bits, clear_after)
    assert decompress(packed) == data
    gunzip = shutil.which("gzip")
    if gunzip is not None:  # the encoder of this test agrees with another decoder
        done = subprocess.run([gunzip, "-dc"], input=packed, capture_output=True, check=True)
        assert done.stdout == data


def test_damaged_codes_are_refused():
    packed = compress(b"abcabcabc")
    with pytest.raises(BagDataError, match="out of turn"):
        decompress(packed[:3] + b"\xff\xff\xff\xff")
    for other in (b"PK", b"\x1f\x9d\x89abc"):  # a zip archive; codes of at most 9 bits, which decoders read differently
        with pytest.raises(BagDataError, match="compress program"):
            decompress(other)
