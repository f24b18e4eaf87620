"""Batches: the order, resuming, ranks, and what does not change an example."""

import itertools
import warnings

import numpy as np
import pytest
import torch

from nfm.data import Batches, CropFlip, Examples
from nfm.data.ahead import ahead
from nfm.errors import DataError, UsageError


def numbered(n: int) -> Examples:
    return Examples(
        torch.zeros(n, 1, 2, 2, dtype=torch.uint8), torch.zeros(n, dtype=torch.int64), torch.arange(n)
    )


def ids(batches: Batches, epoch: int, start: int = 0) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches.epoch(epoch, start)]


CELLS = [(n, size) for n in (1, 2, 7, 10, 9_999, 10_000) for size in (1, 7, 512) if n < 20 or size > 1]


def quiet(examples: Examples, **options: object) -> Batches:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Batches(examples, **options)  # type: ignore[arg-type]


def test_a_batch_is_float_in_the_unit_range(images: Examples) -> None:
    batch = next(Batches(images, batch_size=16, shuffle=False).epoch(0))
    assert batch.x.dtype == torch.float32
    assert torch.equal(batch.x, images.images[:16].float() / 255)
    assert torch.equal(batch.y, images.labels[:16])
    assert len(batch) == 16


def test_vectors_pass_unscaled() -> None:
    points = Examples(torch.tensor([[300.0, -2.0], [0.5, 4.0]]), torch.tensor([0, 1]), torch.arange(2))
    batch = next(Batches(points, batch_size=2, shuffle=False).epoch(0))
    assert torch.equal(batch.x, points.images)


def test_any_position_resumes_without_replay() -> None:
    batches = Batches(numbered(101), batch_size=8, seed=3)
    for epoch in range(14):
        whole = ids(batches, epoch)
        for step in range(batches.steps_per_epoch + 1):  # 14 x 14 = 196 cut points
            fresh = Batches(numbered(101), batch_size=8, seed=3)
            assert ids(fresh, epoch, step) == whole[step:]
        assert sorted(itertools.chain(*whole)) == list(range(101))


def test_epochs_and_seeds_differ() -> None:
    batches = Batches(numbered(64), batch_size=8, seed=3)
    assert ids(batches, 0) != ids(batches, 1)
    assert ids(batches, 0) != ids(Batches(numbered(64), batch_size=8, seed=4), 0)
    assert ids(batches, 0) == ids(Batches(numbered(64), batch_size=8, seed=3), 0)


@pytest.mark.parametrize(("n", "size"), CELLS)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_evaluation_counts_each_example_once(n: int, world: int, size: int) -> None:
    seen: list[int] = []
    steps = set()
    for rank in range(world):
        part = ids(Batches(numbered(n), batch_size=size, shuffle=False, rank=rank, world=world), 0)
        steps.add(len(part))
        seen += itertools.chain(*part)
    assert sorted(seen) == list(range(n))
    assert len(steps) == 1


@pytest.mark.parametrize("n", [8, 96, 97, 98, 99, 100, 101])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_training_gives_each_rank_two_and_each_example_once(n: int, world: int) -> None:
    parts = [
        ids(quiet(numbered(n), batch_size=8, seed=1, rank=rank, world=world), 5) for rank in range(world)
    ]
    assert len({len(part) for part in parts}) == 1
    assert min(len(batch) for part in parts for batch in part) >= 2
    assert sorted(itertools.chain(*itertools.chain(*parts))) == list(range(n))


def test_ranks_together_make_the_batches_of_one() -> None:
    one = ids(Batches(numbered(40), batch_size=8, seed=1), 2)
    parts = [ids(Batches(numbered(40), batch_size=8, seed=1, rank=rank, world=3), 2) for rank in range(3)]
    assert [list(itertools.chain(*slices)) for slices in zip(*parts, strict=True)] == one


def test_a_lonely_last_example_joins_the_batch_before_with_one_warning() -> None:
    with pytest.warns(UserWarning, match="merged") as caught:
        batches = Batches(numbered(33), batch_size=8)
    assert len(caught) == 1
    assert [batches.size(step) for step in range(batches.steps_per_epoch)] == [8, 8, 8, 9]
    assert [len(batch) for batch in ids(batches, 0)] == [8, 8, 8, 9]
    with pytest.warns(UserWarning, match="single example"):
        Batches(numbered(1), batch_size=8)


def test_batches_of_one_that_were_asked_for_are_no_accident() -> None:
    assert [len(batch) for batch in ids(Batches(numbered(3), batch_size=1), 0)] == [1, 1, 1]


def test_drop_last_drops_and_refuses_zero_steps() -> None:
    assert [len(batch) for batch in ids(Batches(numbered(33), batch_size=8, drop_last=True), 0)] == [8] * 4
    with pytest.raises(UsageError, match="0 steps of 5 examples"):
        Batches(numbered(5), batch_size=8, drop_last=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, UsageError, "batch_size"),
        ({"batch_size": -3}, UsageError, "batch_size"),
        ({"batch_size": 2.0}, UsageError, "batch_size"),
        ({"batch_size": True}, UsageError, "batch_size"),
        ({"batch_size": 2, "world": 3}, UsageError, "batch_size: expected a whole number of at least 3"),
        ({"batch_size": 4, "rank": 1}, UsageError, "rank"),
        ({"batch_size": 4, "workers": -1}, UsageError, "workers"),
        ({"batch_size": 4, "seed": -1}, UsageError, "seed"),
        ({"batch_size": 64, "world": 33}, DataError, "one example a rank"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Batches(numbered(32), **options)  # type: ignore[arg-type]


def test_a_start_beyond_the_epoch_is_refused() -> None:
    with pytest.raises(UsageError, match="start_step: expected 0 to 4, got 5"):
        Batches(numbered(32), batch_size=8).epoch(0, 5)


def by_id(batches: list[Batches], epoch: int) -> dict[int, torch.Tensor]:
    found = {}
    for batch in itertools.chain(*(each.epoch(epoch) for each in batches)):
        found.update(zip(batch.ids.tolist(), batch.x, strict=True))
    return found


@pytest.mark.parametrize(
    "others",
    [
        [{"batch_size": 7}],
        [{"batch_size": 60, "shuffle": False}],
        [{"batch_size": 16, "rank": rank, "world": 3} for rank in range(3)],
        [{"batch_size": 16, "workers": 3}],
    ],
)
def test_an_examples_augmentation_is_its_own(images: Examples, others: list[dict[str, object]]) -> None:
    augment = CropFlip(pad=2)
    plain = by_id([Batches(images, batch_size=16, seed=9, augment=augment)], 4)
    same = by_id([Batches(images, seed=9, augment=augment, **other) for other in others], 4)  # type: ignore[arg-type]
    assert plain.keys() == same.keys()
    assert all(torch.equal(plain[one], same[one]) for one in plain)


def test_augmentation_changes_with_epoch_seed_and_id(images: Examples) -> None:
    augment = CropFlip(pad=2)
    first = by_id([Batches(images, batch_size=16, seed=9, augment=augment)], 4)
    epoch = by_id([Batches(images, batch_size=16, seed=9, augment=augment)], 5)
    seed = by_id([Batches(images, batch_size=16, seed=8, augment=augment)], 4)
    for other in (epoch, seed):
        assert sum(not torch.equal(first[one], other[one]) for one in first) > 50
    renamed = Examples(images.images, images.labels, images.ids + 1)
    moved = by_id([Batches(renamed, batch_size=16, seed=9, augment=augment)], 4)
    assert sum(not torch.equal(first[one], moved[one + 1]) for one in first) > 50


def test_workers_deliver_the_same_batches_in_order(images: Examples) -> None:
    plain = list(Batches(images, batch_size=7, augment=CropFlip(pad=1)).epoch(0, 2))
    ahead_of_time = list(Batches(images, batch_size=7, augment=CropFlip(pad=1), workers=4).epoch(0, 2))
    assert len(plain) == len(ahead_of_time)
    for one, other in zip(plain, ahead_of_time, strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.ids, other.ids)


def test_an_error_in_a_worker_comes_where_its_result_would() -> None:
    def work(job: int) -> int:
        if job == 3:
            raise DataError("image 3 is broken")
        return job

    results = ahead(work, range(9), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="image 3"):
        next(results)


def test_leaving_early_stops_the_workers() -> None:
    done: list[int] = []
    results = ahead(lambda job: done.append(job) or job, range(10_000), 2)  # type: ignore[func-returns-value]
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert len(done) <= 6


def test_global_generators_are_neither_read_nor_moved(images: Examples) -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    states = torch.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
    list(Batches(images, batch_size=16, augment=CropFlip(pad=2)).epoch(0))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
