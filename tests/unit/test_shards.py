"""Shards of bags: which bags each holds, what a SLURM array makes of them, and how their tables become one."""

import json

import numpy as np
import pytest

from midam.data.bags import Bags
from midam.data.digests import contents_digest
from midam.errors import ConfigError
from midam.evaluate.predict import bag_groups
from midam.runs.shards import Shard, ShardFacts, merge_shards, shard_files, shard_path, shard_range, write_shard

FACTS = ShardFacts(
    number=1,
    count=3,
    first=0,
    bags=2,
    of_bags=6,
    run="a" * 64,
    data="b" * 64,
    run_source="runs/demo",
    data_source="new.csv",
    call={"chunk_size": 3, "instances": False},
    header=1,
    table="",
)
HEADER = b'bag,"score\nof it"\n'


def written(folder, **changes):
    """Table of a shard that holds a row of its number, and its facts."""
    facts = FACTS.model_copy(update=changes)
    path = shard_path(folder / "scores.csv", Shard(facts.number, facts.count))
    write_shard(path, facts, iter([HEADER, f"b{facts.number},0.5\n".encode()]))
    return path


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_shards_are_whole_groups_and_hold_each_bag_once(seed, count):
    rng = np.random.default_rng(seed)
    sizes, chunk = rng.integers(1, [2, 30, 400][seed % 3], size=600), 5
    shards = [shard_range(sizes, Shard(number, count), chunk_size=chunk) for number in range(1, count + 1)]
    assert [i for shard in shards for i in shard] == list(range(600))
    edges = {0} | {group.stop for group in bag_groups(sizes, chunk_size=chunk)}
    assert all({shard.start, shard.stop} <= edges for shard in shards)
    largest = max(int(sizes[group.start : group.stop].sum()) for group in bag_groups(sizes, chunk_size=chunk))
    loads = [int(sizes[shard.start : shard.stop].sum()) for shard in shards]
    assert max(abs(load - sizes.sum() / count) for load in loads) <= largest


def test_more_shards_than_groups_leave_some_empty():
    shards = [shard_range(np.array([4, 4, 4]), Shard(number, 5), chunk_size=100) for number in range(1, 6)]
    assert sorted(len(shard) for shard in shards) == [0, 0, 0, 0, 3]


@pytest.mark.parametrize(("text", "found"), [("3/16", (3, 16)), (" 1 / 1 ", (1, 1)), ("16/16", (16, 16))])
def test_a_shard_is_read_from_a_text(text, found):
    shard = Shard.of(text)
    assert (shard.number, shard.count) == found


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "-1/4", "1/0", "a/b", "1/2/3", "1.0/2"])
def test_another_text_is_refused(text):
    with pytest.raises(ConfigError, match="Expected --shard as K/N"):
        Shard.of(text)


def array(**said):
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in said.items()}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"ID": 0, "MIN": 0, "MAX": 15, "COUNT": 16, "STEP": 1}, (1, 16)),
        ({"ID": 16, "MIN": 1, "MAX": 16, "COUNT": 16, "STEP": 1}, (16, 16)),
        ({"ID": 12, "MIN": 10, "MAX": 14, "COUNT": 3, "STEP": 2}, (2, 3)),
        ({"ID": 4, "MIN": 0, "MAX": 7, "COUNT": 2, "STEP": 4}, (2, 2)),
        ({"ID": 7, "MIN": 7, "MAX": 7, "COUNT": 1}, (1, 1)),
    ],
)
def test_a_task_of_an_array_is_a_shard(said, found):
    shard = Shard.of("auto", environment=array(**said))
    assert (shard.number, shard.count) == found


def test_a_task_of_no_array_is_no_shard():
    with pytest.raises(ConfigError, match=r"got no SLURM_ARRAY_TASK_ID; name the shard"):
        Shard.of("auto", environment={})
    with pytest.raises(ConfigError, match=r"got no SLURM_ARRAY_TASK_COUNT"):
        Shard.of("auto", environment=array(ID=1, MIN=1, MAX=2))


def test_tasks_with_gaps_between_them_are_refused():
    """Those of ``--array=3,7``, some of an array done anew, would pass for the shards of another number."""
    for task in (3, 7):
        with pytest.raises(ConfigError, match="without gaps for --shard auto, got 2 from 3 to 7"):
            Shard.of("auto", environment=array(ID=task, MIN=3, MAX=7, COUNT=2, STEP=1))


def test_shards_become_one_table(tmp_path):
    paths = [written(tmp_path, number=number) for number in (3, 1, 2)]
    assert [path.name for path in paths] == [f"scores.shard-{number}-of-3.csv" for number in (3, 1, 2)]
    (tmp_path / "scores.shard-2-of-3.csv.part").write_text("a journal")
    (tmp_path / "notes.csv").write_text("mine")
    found = shard_files([tmp_path])
    assert sorted(found) == sorted(paths)
    facts = merge_shards(found, tmp_path / "scores.csv")
    assert facts.of_bags == 6
    assert (tmp_path / "scores.csv").read_bytes() == HEADER + b"b1,0.5\nb2,0.5\nb3,0.5\n"


def test_a_missing_shard_is_named(tmp_path):
    one = written(tmp_path, number=2)
    with pytest.raises(ConfigError, match=r"Expected all 3 shards, got 1, without 1, 3 \(in .*--shard 1/3"):
        merge_shards([one], tmp_path / "scores.csv")
    assert not (tmp_path / "scores.csv").exists()


def test_a_shard_that_is_there_twice_is_named(tmp_path):
    (tmp_path / "again").mkdir()
    paths = [written(tmp_path, number=number) for number in (1, 2, 3)] + [written(tmp_path / "again", number=2)]
    with pytest.raises(ConfigError, match=r"got shard 2/3 in .*scores.shard-2-of-3.csv and in .*again"):
        merge_shards(paths, tmp_path / "scores.csv")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"run": "c" * 64, "run_source": "runs/other"}, "shards of one run, got runs/demo .* and runs/other"),
        ({"data": "c" * 64, "data_source": "old.csv"}, "shards of the same data, got new.csv .* and old.csv"),
        ({"count": 4}, "shards of one number of shards, got 3 .* and 4"),
        (
            {"call": {"chunk_size": 4}},
            "shards of the same options, got chunk_size 3, instances False .* and chunk_size 4",
        ),
    ],
)
def test_a_foreign_shard_is_named(change, what, tmp_path):
    paths = [written(tmp_path, number=1), written(tmp_path, number=2, **change), written(tmp_path, number=3)]
    with pytest.raises(ConfigError, match=rf"Expected {what} \(in .*shard-2-of-\d.csv"):
        merge_shards(paths, tmp_path / "scores.csv")


def test_other_columns_are_refused(tmp_path):
    paths = [written(tmp_path, number=number) for number in (1, 2)]
    third = shard_path(tmp_path / "scores.csv", Shard(3, 3))
    write_shard(third, FACTS.model_copy(update={"number": 3}), iter([b"bag,label,score\n", b"b3,1,0.5\n"]))
    with pytest.raises(ConfigError, match=r"shards with the same columns, got .*shard-3-of-3"):
        merge_shards([*paths, third], tmp_path / "scores.csv")


def test_a_damaged_shard_is_refused(tmp_path):
    path = written(tmp_path)
    facts = path.with_suffix(".json")
    whole, said = path.read_bytes(), facts.read_text()
    for damage in (whole[:-1], whole + b"x", whole.replace(b"0.5", b"0.6")):
        path.write_bytes(damage)
        with pytest.raises(ConfigError, match=r"the table of a shard as it was written, got another"):
            ShardFacts.read(path)
    path.write_bytes(whole)
    for text in ("", "[]", "{}", said[:-9], json.dumps({**json.loads(said), "format": "other"})):
        facts.write_text(text)
        with pytest.raises(ConfigError, match=r"Expected the facts of a shard next to .*, got none"):
            ShardFacts.read(path)
    for text, what in (({"version": 9}, "this version"), ({"more": 1}, "got others")):
        facts.write_text(json.dumps({**json.loads(said), **text}))
        with pytest.raises(ConfigError, match=what):
            ShardFacts.read(path)
    facts.unlink()
    with pytest.raises(ConfigError, match="got none"):
        ShardFacts.read(path)
    path.unlink()
    facts.write_text(said)
    with pytest.raises(ConfigError, match="got another"):
        ShardFacts.read(path)


def test_a_folder_without_shards_is_refused(tmp_path):
    (tmp_path / "scores.csv").write_text("bag,score\n")
    with pytest.raises(ConfigError, match="Expected files of shards, got none"):
        shard_files([tmp_path])


def test_the_digest_of_data_knows_each_part_of_them():
    x = np.arange(12.0, dtype=np.float32).reshape(6, 2)
    bags = Bags(x, sizes=[2, 4], ids=["a", "b"])
    whole = contents_digest(bags)
    assert contents_digest(Bags(x.copy(), sizes=[2, 4], ids=["a", "b"], labels=[0, 1])) == whole
    assert contents_digest(bags, read=False) == whole, "what is in memory costs no read of a disk"
    changed = x.copy()
    changed[5, 1] += 1
    others = [
        Bags(x, sizes=[3, 3], ids=["a", "b"]),
        Bags(x, sizes=[2, 4], ids=["a", "c"]),
        Bags(changed, sizes=[2, 4], ids=["a", "b"]),
        Bags(x.astype(np.float64), sizes=[2, 4], ids=["a", "b"]),
        bags.replace(covariates={"age": [1.0, 2.0]}),
        bags.subset([1, 0]),
    ]
    digests = [contents_digest(other) for other in others]
    assert len({whole, *digests}) == len(others) + 1
