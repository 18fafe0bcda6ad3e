"""Reading ahead: the order of the jobs, bounded, with threads that end and errors that surface."""

import threading
import time

import numpy as np
import pytest
import torch
from tests.row_files import row_file

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch, sampled_batches
from midam.data.on_disk import read_ahead
from midam.data.sampling import BagSampler


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("midam-read")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not reading_threads()


@pytest.fixture
def bags(tmp_path):
    rng = np.random.default_rng(0)
    rows = row_file(tmp_path / "rows", rng.normal(size=(400, 3)).astype(np.float16), reads="pread")
    sizes = np.array([150, 50, 120, 80])
    return Bags(rows, starts=np.cumsum(sizes) - sizes, sizes=sizes, labels=[1, 0, 1, 0])


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_results_come_in_the_order_of_the_jobs(workers):
    def slow_first(job):
        time.sleep(0.02 if job % 5 == 0 else 0.0)
        return job * job

    assert list(read_ahead(range(20), slow_first, workers=workers)) == [(job, job * job) for job in range(20)]
    assert list(read_ahead([], slow_first, workers=workers)) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_than_two_jobs_a_worker_are_read_ahead(workers):
    started = []
    ahead = read_ahead(range(100), lambda job: started.append(job) or job, workers=workers)
    for taken in range(1, 6):
        next(ahead)
        time.sleep(0.02)
        assert len(started) <= taken + 2 * workers
    ahead.close()
    assert len(started) < 20


def test_jobs_are_read_while_the_caller_works():
    waiting = threading.Barrier(3)  # two readers at once, and the caller
    ahead = read_ahead(range(3), lambda job: waiting.wait(10) if job else job, workers=2)
    assert next(ahead) == (0, 0)
    waiting.wait(10)
    assert [job for job, _ in ahead] == [1, 2]


def test_an_error_surfaces_with_its_job_and_ends_the_threads():
    def read(job):
        if job == 3:
            raise OSError("the disk is gone")
        return job

    ahead = read_ahead(range(10), read, workers=4)
    assert [next(ahead)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)
    assert not reading_threads()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_threads_end_when_the_caller_fails(bags, error):
    reader = InstanceReader(bags, workers=3)
    sampler = BagSampler(bags.labels, bags.sizes, num_positive=1, num_negative=1, num_instances=4)
    batches = sampled_batches(reader, sampler, torch.from_numpy(bags.labels))
    next(batches)
    assert reading_threads()
    with pytest.raises(error):
        batches.throw(error())
    assert not reading_threads()


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_chunks_are_the_same_whatever_the_workers(bags, workers):
    expected = torch.from_numpy(bags.instances[:])
    reader = InstanceReader(bags, workers=workers)
    assert reader.all is None
    read = list(WholeBatch(reader, torch.tensor([2, 0]), torch.zeros(2)).read(32))
    assert [len(positions) for positions, _, _ in read] == [32] * 8 + [14]
    for positions, segment, x in read:
        assert torch.equal(x, expected[positions])
        assert segment.tolist() == [0 if 200 <= position < 320 else 1 for position in positions.tolist()]
    assert reader.waited_s > 0


def test_bags_on_disk_that_are_held_on_the_device_are_these_bags_alone(bags):
    chosen = bags.subset([3, 1])
    reader = InstanceReader(chosen, resident=True)
    assert reader.all is not None
    assert len(reader.all) == chosen.num_instances
    whole = WholeBatch(reader, torch.tensor([0, 1]), torch.zeros(2))
    assert torch.equal(
        torch.cat([x for _, _, x in whole.read(40)]), torch.from_numpy(np.concatenate([bags[3], bags[1]]))
    )
    assert reader.waited_s == 0


@pytest.mark.parametrize(("resident", "workers", "expected"), [(None, None, 2), (True, None, 2), (None, 0, 0)])
def test_the_number_of_workers_has_a_default_on_disk(bags, resident, workers, expected):
    assert InstanceReader(bags, resident=resident, workers=workers).workers == expected


def test_in_memory_nothing_is_read_ahead():
    reader = InstanceReader(Bags.from_list([[[1.0]], [[2.0]]]))
    assert reader.workers == 0
    assert reader.all is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_batches_are_pinned_or_resident(bags):
    far = [InstanceReader(bags, device="cuda", resident=resident) for resident in (False, None)]
    assert far[0].all is None
    assert far[1].all is not None
    for reader in far:
        batch = WholeBatch(reader, torch.arange(4), torch.zeros(4))
        got = torch.cat([x.cpu() for _, _, x in batch.read(50)])
        assert torch.equal(got, torch.from_numpy(bags.instances[:]))
