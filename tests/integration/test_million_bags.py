"""The benchmark of a million bags measures what it says, on a few thousand."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import million_bags, million_bags_calls
from benchmarks.million_bags_calls import Call, Plan
from benchmarks.shared import memory_mib

from midam.cli import main
from midam.data.bags import Bags
from midam.data.digests import bag_digests
from midam.data.store import open_store, verify_store

pytestmark = pytest.mark.drawn

PLAN = Plan(bags=6000, beside=(200,), kills=((0.1,),), together=200, repeats=1, chunk_size=64)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """All figures of a small plan: the calls run in this process, but for the one that is killed."""

    def predict(*words: str | Path) -> Call:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            assert main(["predict", *map(str, words)]) == 0
        return Call(0.5, memory_mib()["VmHWM"], said.getvalue())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(million_bags_calls, "predict", predict)
        patch.setattr(million_bags_calls, "_GROUP_S", 0.001)
        return million_bags.measure(PLAN, tmp_path_factory.mktemp("million"))


def test_the_store_is_one_and_every_second_bag_holds_a_witness(tmp_path: Path) -> None:
    folder = million_bags_calls.make_store(tmp_path / "store", 300)
    assert verify_store(folder) == []
    bags = open_store(folder)
    rows = np.asarray(bags.instances[:]).reshape(300, 10, 8).astype(np.float64)
    assert bags.require_labels().tolist() == [0, 1] * 150
    assert rows[1::2, 0].mean() == pytest.approx(1.5, abs=0.2)
    assert rows[::2].mean() == pytest.approx(0, abs=0.05)
    again = Bags(np.asarray(bags.instances[:]), sizes=bags.sizes)
    assert bag_digests(again) == bag_digests(bags)
    assert bags.ids[-1] == "bag-0000299"


@pytest.mark.long
def test_a_killed_pass_and_several_runs_write_the_bytes_of_one_pass(measured: dict) -> None:
    assert [row["bags"] for row in measured["passes"]] == [200, 6000]
    [kill] = measured["kills"]
    # Killed behind the sixth of 59 groups of 102 bags, and before the end.
    assert PLAN.groups == 59
    assert 6 * 102 <= kill["held"][0] < 6000
    assert kill["same"]
    assert measured["together"]["same"]
    assert json.loads(json.dumps(measured)) == measured


@pytest.mark.long
def test_other_bytes_are_told(tmp_path: Path, measured: dict) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).write_bytes(content)
    assert million_bags_calls.same(tmp_path / "a", tmp_path / "b")
    assert not million_bags_calls.same(tmp_path / "a", tmp_path / "c")
    said = million_bags.verdicts(measured)
    assert "1 of 1 files" in said[1]
    assert sum(line.endswith("Met.") for line in said) == 2
    wrong = {**measured, "kills": [{**measured["kills"][0], "same": False}]}
    assert million_bags.verdicts(wrong)[1].endswith("Missed.")


@pytest.mark.long
def test_the_page_has_a_row_for_each_figure(tmp_path: Path, measured: dict) -> None:
    page = million_bags.page(measured, PLAN, "command")
    assert "| 6 000 | 0.5 | 12 000 |" in page
    assert "scoring 6000/6000 bags" in page
    assert str(tmp_path.parent) not in page, "no name of a file of this machine"
    million_bags.draw(measured, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_bytes_a_bag_are_what_more_bags_take() -> None:
    passes = [{"bags": 1000, "peak_mib": 500.0}, {"bags": 1_001_000, "peak_mib": 500.0 + 100e6 / 2**20}]
    assert million_bags.bytes_a_bag(passes) == pytest.approx(100)
    rows = [{"alone": 4.0, "together": own} for own in (1.0, 2.0, 3.0)]
    assert million_bags.ratio({"rows": rows}) == 0.5


def test_a_plan_kills_at_different_moments_and_at_the_end() -> None:
    plan = million_bags_calls.plan_of(1_000_000)
    assert plan == million_bags_calls.plan_of(1_000_000)
    assert (plan.beside, plan.groups) == ((1000, 100_000, 300_000), 245)
    assert (1.0,) in plan.kills
    assert len({share for shares in plan.kills for share in shares}) == sum(map(len, plan.kills)) == 7
