"""Files that midam reads back: bounded, of the form that they must have, refused by name."""

import os

import pytest

from midam.errors import CheckpointError, ConfigError
from midam.reading import (
    Form,
    Interval,
    check_form,
    file_digest,
    read_json,
    read_table,
    read_text,
)
from midam.settings import read_yaml


def merges(lines: int) -> str:
    """Merges of merges: each line holds ten times the keys of the one before."""
    rows = ["a0: &a0 {k0: 1, k1: 2}"]
    rows += [f"a{n + 1}: &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 10)}]}}" for n in range(lines)]
    return "\n".join(rows)


def aliases(lines: int) -> str:
    rows = ["a0: &a0 [x, x, x]"]
    return "\n".join(rows + [f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(lines)])


BOMBS = {
    "merges": merges(12),
    "aliases": aliases(12),
    "merge of itself": "a: &a {<<: *a}",
    "keys": "\n".join(f"k{n}: 1" for n in range(40_000)),
    "lists": "a: " + "[" * 100_000,
    "mappings": "a: " + "{a: " * 20_000,
    "dashes": "- " * 100_000,
    "sexagesimal number": "a: 1" + ":1" * 300_000,
    "digits": "a: " + "9" * 4000,
    "bytes": "a: b\n" + "#" * (1 << 20),
    "bool tag": "a: !!bool x",
    "time tag": "a: !!timestamp x",
    "set tag": "a: !!set {b}",
    "own tag": "%TAG ! tag:x,2000:\n---\na: !y 1",
}


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_that_grows_is_refused_before_it_is_expanded(tmp_path, name):
    path = tmp_path / "config.yaml"
    path.write_text(BOMBS[name])
    with pytest.raises(ConfigError, match=r"config\.yaml\)"):
        read_yaml(path)


def test_yaml_keeps_what_people_write(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: *a\nc: 2024-02-03\nd: !!str 007\ne: 1e-3\nf: 0.5\ng: 0x10\n")
    found = read_yaml(path)
    assert found["b"] == {"x": 1, "y": 2}
    assert [found[name] for name in "cdefg"] == ["2024-02-03", "007", "1e-3", 0.5, 16]


class Pair(Form):
    bounds: Interval
    name: str = ""


JSON = {
    "cut": '{"bounds": [1',
    "a list": "[1, 2]",
    "deep": '{"bounds": ' + "[" * 100_000,
    "deep and whole": '{"bounds": ' + "[" * 200 + "]" * 200 + "}",
    "NaN": '{"bounds": [NaN, 1]}',
    "infinity": '{"bounds": [1, 1e999]}',
    "digits": '{"bounds": [1, ' + "9" * 4000 + "]}",
    "huge": '{"bounds": [1, ' + "9" * 40 + "]}",
    "twice": '{"bounds": [1, 2], "bounds": [1, 3]}',
    "missing": "{}",
    "length": '{"bounds": [1, 2, 3]}',
    "type": '{"bounds": [1, "2"]}',
    "bool": '{"bounds": [true, 2]}',
    "order": '{"bounds": [2, 1]}',
    "name": '{"bounds": [1, 2], "name": 3}',
    "bytes": b'{"bounds": [1, 2], "name": "\xff"}',
    "nothing": "",
}


@pytest.mark.parametrize("name", JSON)
def test_json_of_another_form_is_refused(tmp_path, name):
    path = tmp_path / "x.json"
    path.write_bytes(JSON[name] if isinstance(JSON[name], bytes) else JSON[name].encode())
    with pytest.raises(CheckpointError, match=r"x\.json"):
        check_form(read_json(path), Pair, path)


def test_json_of_the_form_is_read_whatever_stands_beside(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"bounds": [1, 2.5], "later": {"a": [1]}}')
    check_form(read_json(path), Pair, path)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "loop", "none", "."):
        with pytest.raises(CheckpointError, match="Expected"):
            read_text(tmp_path / name)
    (tmp_path / "bytes").write_bytes(b"\xc3(")
    with pytest.raises(CheckpointError, match="UTF-8"):
        read_text(tmp_path / "bytes")


def test_a_table_is_read_as_text_and_refused_if_it_changed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("bag,score\n'=a,1.5\n007,\nNA,-1e3\n")
    digest = file_digest(path)
    found = read_table(path, digest)
    assert found.to_dict("list") == {"bag": ["=a", "007", "NA"], "score": ["1.5", "", "-1e3"]}
    path.write_text(path.read_text().replace("1.5", "1.6"))
    for known in (digest, None):
        with pytest.raises(CheckpointError, match=r"Expected x\.csv as midam wrote it"):
            read_table(path, known)
