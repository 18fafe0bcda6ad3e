"""The engine of trials: what is missing is computed, and kept once."""

from midam.compare.workers import Group, Workers, compute
from midam.methods.store import TrialStore


def test_the_store_knows_what_is_missing_and_keeps_it_once(tmp_path):
    names = [{"set": "a", "split": s} for s in range(3)]
    groups = [Group(names[:2], [10]), Group(names[2:], [20])]
    with TrialStore(tmp_path / "t.jsonl") as store:
        store.keep(names[:1], [{"found": 0}])
        assert store.missing(groups) == groups
        compute(
            store.missing(groups),
            tenfold,
            keep=lambda group, results: store.keep(group.names, results[0]),
            workers=Workers("threading", jobs=2),
        )
        assert store.missing(groups) == []
        assert [own["found"] for own in store.find(names)] == [0, 101, 200]
    with TrialStore(tmp_path / "t.jsonl") as again:
        assert len(again.rows) == 3
    with TrialStore(tmp_path / "empty.jsonl"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"t.jsonl"}


def tenfold(task):
    return [{"found": 10 * task + i} for i in range(3 - task // 10)]


def test_names_with_other_fields_are_told_apart():
    with TrialStore() as store:
        store.add([{"what": "a", "auroc": 0.5}, {"what": "b", "rate": 1, "auroc": 0.6}])
        store.add([{"what": "b", "rate": 2, "auroc": 0.7}])
        names = [{"what": "a"}, {"what": "b", "rate": 1}, {"what": "b", "rate": 2}, {"what": "b", "rate": 3}]
        assert [row and row["auroc"] for row in store.find(names)] == [0.5, 0.6, 0.7, None]
