"""Batches of examples, for one site and for several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fallow.core.local import Batch
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
from fallow.engine.batches import (
    Epoch,
    Job,
    Patience,
    augment,
    batches,
    epochs,
    mean_losses,
    mixing,
    order,
)
from fallow.engine.site_batches import ActiveJob, Frame, Joined
from fallow.training import FedAvg
from tests.engine.jobs import (
    POOLS,
    RAGGED,
    assert_agree,
    jobs,
    linear,
    loop,
    stacked,
    with_pools,
)

FIRST = Epoch(0, "all", 0.1)
IMAGES = torch.arange(6 * 2 * 4 * 5).view(6, 2, 4, 5).double() + 1  # no pixel is 0


def test_an_epoch_takes_every_row_once_and_another_epoch_in_another_order() -> None:
    job = jobs(linear, (50,))[0]
    label_counts = [order(job, Epoch(number, "all", 0.1)) for number in range(3)]
    assert all(sorted(o.tolist()) == list(range(50)) for o in label_counts)
    assert len({tuple(o.tolist()) for o in label_counts}) == 3
    assert torch.equal(order(job, FIRST), label_counts[0])


def test_the_last_batch_may_be_smaller_and_no_rows_are_no_steps() -> None:
    sizes = [[len(rows) for rows in batches(job, FIRST, 4)] for job in jobs(linear)]
    assert sizes == [[4, 4, 3], [4, 1], [], [4, 4], [3]]


def test_epochs_are_counted_over_all_segments() -> None:
    training_config = TrainingConfig(
        (TrainingStage(2, "head"), TrainingStage(0), TrainingStage(1, "body"))
    )
    assert [(e.number, e.part) for e in epochs(training_config, 0)] == [
        (0, "head"),
        (1, "head"),
        (2, "body"),
    ]


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (Schedule((3, 5), 0.1, "epoch"), [[1, 1], [1, 0.1], [0.1, 0.01]]),
        (Schedule((1, 2), 0.5, "round"), [[1, 1], [0.5, 0.5], [0.25, 0.25]]),
        (Schedule(), [[1, 1], [1, 1], [1, 1]]),
    ],
)
def test_the_rate_falls_by_epochs_of_all_rounds_or_by_rounds(
    schedule: Schedule, rates: list[list[float]]
) -> None:
    training_config = TrainingConfig(
        (TrainingStage(1, "head"), TrainingStage(1, "body")), 4, Optimizer(lr=1.0), schedule
    )
    assert [[e.lr for e in epochs(training_config, r)] for r in range(3)] == [
        pytest.approx(r) for r in rates
    ]


def test_the_second_stream_takes_every_row_of_the_pool_in_turn_and_begins_again() -> None:
    small, large = with_pools(jobs(linear, (11, 4)), (4, 9))
    rows = mixing(small, FIRST, 4, 2.0).rows.tolist()
    assert sorted(rows[:4]) == [0, 1, 2, 3]
    assert rows[4:8] == rows[:4] and rows[8:] == rows[:3]
    rows = mixing(large, FIRST, 4, 2.0).rows.tolist()
    assert len(rows) == len(set(rows)) == 4
    assert rows != mixing(large, Epoch(1, "all", 0.1), 4, 2.0).rows.tolist()


def test_partners_are_a_permutation_of_each_batch() -> None:
    (job,) = with_pools(jobs(linear, (103,)), (7,))
    mates = torch.split(mixing(job, FIRST, 10, 2.0).mate, 10)
    assert [sorted(mate.tolist()) for mate in mates] == [*[list(range(10))] * 10, [0, 1, 2]]
    assert len({tuple(mate.tolist()) for mate in mates}) == 11


@pytest.mark.parametrize("a", [0.5, 2.0, 8.0])
def test_shares_follow_a_symmetric_beta_distribution(a: float) -> None:
    (job,) = with_pools(jobs(linear, (4000,)), (7,))
    beta = mixing(job, FIRST, 10, a).beta
    assert bool(((beta > 0) & (beta < 1)).all())
    assert abs(float(beta.mean()) - 0.5) < 0.02
    assert float(beta.var()) == pytest.approx(1 / (4 * (2 * a + 1)), rel=0.06)


def test_what_is_mixed_in_comes_from_streams_of_its_own() -> None:
    (job,) = with_pools(jobs(linear, (8,)), (20,))
    outside = torch.get_rng_state()
    for once, twice in zip(
        mixing(job, FIRST, 4, 2.0), mixing(job, FIRST, 4, 2.0), strict=True
    ):
        assert torch.equal(once, twice)
    assert torch.equal(torch.get_rng_state(), outside)
    other = mixing(job, FIRST, 4, 3.0)  # another number changes only the shares
    assert torch.equal(other.rows, mixing(job, FIRST, 4, 2.0).rows)


def test_a_site_without_rows_mixes_nothing() -> None:
    (job,) = with_pools(jobs(linear, (0,)), (3,))
    assert [len(part) for part in mixing(job, FIRST, 4, 2.0)] == [0, 0, 0]


def by_rows(pools: bool = False) -> list[Job]:
    many_jobs = jobs(linear, weighted=True)
    return sorted(
        with_pools(many_jobs) if pools else many_jobs, key=lambda job: -len(job.y)
    )


def joined(size: int = 4, mix: float | None = None) -> list[Batch]:
    return together(by_rows(pools=mix is not None), size, mix)


def together(many_jobs: list[Job], size: int = 4, mix: float | None = None) -> list[Batch]:
    data, first, active_jobs = Joined.of(many_jobs), 0, []
    for position, job in enumerate(many_jobs):
        active_jobs.append(ActiveJob(job, position, first, Patience(None)))
        first += len(job.y)
    return list(data.batches(data.lines(Frame.of(active_jobs, size), FIRST), mix))


def test_sites_together_take_the_steps_that_each_takes_alone() -> None:
    value = by_rows()
    steps = [(b.x, b.y, b.weight) for b in joined()]
    assert [len(x) for x, _, _ in steps] == [4, 3, 1]  # sites of 11, 8, 5, 3 and 0 examples
    for k, job in enumerate(value):
        alone = batches(job, FIRST, 4)
        assert len(alone) == sum(len(x) > k for x, _, _ in steps)
        for rows, (x, y, weight) in zip(alone, steps, strict=False):
            assert torch.equal(x[k, : len(rows)], job.x[rows])
            assert torch.equal(y[k, : len(rows)], job.y[rows])
            assert torch.equal(weight[k, : len(rows)], job.weight[rows])


def test_a_last_batch_is_filled_with_a_row_of_the_same_site_that_weighs_nothing() -> None:
    many_jobs = by_rows()
    padded = 0
    for b in joined():
        for k in range(len(b.x)):
            for row in b.x[k][b.weight[k] == 0]:
                assert bool((many_jobs[k].x == row).all(1).any())
                padded += 1
    assert padded == sum(-n % 4 for n in RAGGED)


def test_sites_together_mix_what_each_mixes_alone() -> None:
    value = by_rows(pools=True)
    for k, job in enumerate(value):
        steps = [b for b in joined(mix=2.0) if len(b.x) > k]
        parts = (
            [torch.split(part, 4) for part in mixing(job, FIRST, 4, 2.0)]
            if len(job.u)
            else []
        )
        for at, (b, rows) in enumerate(zip(steps, batches(job, FIRST, 4), strict=True)):
            n = len(rows)
            assert torch.equal(b.counts[k], job.counts)
            assert b.pool[k].tolist() == [float(len(job.u) > 0)] * n + [0.0] * (4 - n)
            assert sorted(b.mate[k].tolist()) == [
                0,
                1,
                2,
                3,
            ]  # padding is paired with itself
            assert bool(b.u[k].isfinite().all())
            if parts:
                second, mate, beta = (part[at] for part in parts)
                assert torch.equal(b.u[k, :n], job.u[second])
                assert torch.equal(b.mate[k, :n], mate)
                assert torch.equal(b.beta[k, :n], beta)
    assert 0 in POOLS


def test_where_no_site_has_a_pool_there_is_nothing_to_mix() -> None:
    for b in together(jobs(linear, (5, 3)), mix=2.0):
        assert b.u.numel() == b.mate.numel() == b.beta.numel() == b.pool.numel() == 0


def test_sites_without_rows_take_no_step_together() -> None:
    assert together(jobs(linear, (0, 0))) == []


def test_a_flip_mirrors_some_images_from_left_to_right() -> None:
    flipped = augment(("flip",), IMAGES, stream(0, "draw"))
    is_mirrored = [torch.equal(a, b.flip(2)) for a, b in zip(flipped, IMAGES, strict=True)]
    is_kept = [torch.equal(a, b) for a, b in zip(flipped, IMAGES, strict=True)]
    assert all(a != b for a, b in zip(is_mirrored, is_kept, strict=True))
    assert 0 < sum(is_mirrored) < 6


@pytest.mark.parametrize("pad", [2, 4])
def test_a_crop_is_a_window_of_the_image_padded_with_zeros(pad: int) -> None:
    cropped = augment((f"crop{pad}",), IMAGES, stream(0, "draw"))
    assert cropped.shape == IMAGES.shape
    offsets = set()
    for image, cut in zip(IMAGES, cropped, strict=True):
        padded = torch.nn.functional.pad(image, (pad, pad, pad, pad))
        windows = {
            (i, j): padded[:, i : i + 4, j : j + 5]
            for i in range(2 * pad + 1)
            for j in range(2 * pad + 1)
        }
        matches = [at for at, window in windows.items() if torch.equal(window, cut)]
        assert matches
        offsets.add(matches[0])
    assert len(offsets) > 2


def test_the_same_stream_augments_in_the_same_way() -> None:
    once, twice = (augment(("crop2", "flip"), IMAGES, stream(0, "draw")) for _ in range(2))
    assert torch.equal(once, twice)
    assert not torch.equal(once, augment(("crop2", "flip"), IMAGES, stream(1, "draw")))


def test_rows_that_are_no_images_cannot_be_augmented() -> None:
    with pytest.raises(
        ValueError,
        match=r"shape \(6,\) cannot be augmented with flip, which requires images",
    ):
        augment(("flip",), torch.zeros(3, 6), stream(0, "draw"))


CONFIG = TrainingConfig(
    (TrainingStage(12),), 4, Optimizer(lr=0.05, momentum=0.0), patience=2
)


def ending(epochs: int | None, losses: Sequence[float]) -> int:
    """Return the number of epochs until training stops, at most all of them."""
    patience = Patience(epochs)
    return next((n for n, loss in enumerate(losses, 1) if patience.ends(loss)), len(losses))


@pytest.mark.parametrize(
    ("epochs", "losses", "last"),
    [
        (1, (3.0, 2.0, 2.0, 1.0), 3),  # an equal loss is no improvement
        (
            2,
            (3.0, 4.0, 2.0, 2.5, 2.4, 1.0),
            5,
        ),  # counted from the lowest loss, not from the last
        (2, (3.0, 4.0, 2.0, 2.5), 4),
        (2, (1.0, float("nan"), float("nan"), 0.0), 3),  # no loss is lower than NaN
        (None, (1.0, 2.0, 3.0, 4.0), 4),
    ],
)
def test_it_ends_after_so_many_epochs_without_a_lower_loss(
    epochs: int | None, losses: Sequence[float], last: int
) -> None:
    assert ending(epochs, losses) == last


def test_the_mean_loss_weighs_rows_and_leaves_out_sites_that_had_no_step() -> None:
    batch_losses = [
        (torch.tensor([1.0, 2.0]), torch.tensor([4.0, 3.0])),
        (torch.tensor([6.0]), torch.tensor([1.0])),
    ]
    assert mean_losses(batch_losses, 3) == [2.0, 2.0, 0.0]
    assert mean_losses([(torch.tensor(3.0), torch.tensor(2.0))], 1) == [3.0]


def test_training_ends_when_the_loss_of_its_steps_is_no_longer_lower() -> None:
    training_config = replace(
        CONFIG, optimizer=Optimizer(lr=3.0, momentum=0.9)
    )  # it overshoots
    value = jobs(linear, (11,))
    (done,) = loop(linear).fit(FedAvg(), training_config, 0, value)
    epochs = done.steps // 3
    assert epochs < training_config.epochs
    whole = replace(training_config, stages=(TrainingStage(epochs),), patience=None)
    assert_agree(done.sent, loop(linear).fit(FedAvg(), whole, 0, value)[0].sent, atol=0)


def test_a_loss_that_falls_trains_every_epoch() -> None:
    training_config = replace(CONFIG, batch_size=64)
    value = jobs(linear, (11, 8))
    assert [d.steps for d in loop(linear).fit(FedAvg(), training_config, 0, value)] == [
        12,
        12,
    ]


def test_sites_together_end_as_each_ends_alone() -> None:
    value = jobs(linear, (11, 5, 0, 8, 3), weighted=True)
    training_config = replace(CONFIG, optimizer=Optimizer(lr=1.5, momentum=0.9))
    ours, theirs = (
        e(linear).fit(FedAvg(), training_config, 0, value) for e in (stacked, loop)
    )
    steps = {len(job.y): alone.steps for job, alone in zip(value, theirs, strict=True)}
    assert (
        len({n // -(-rows // 4) for rows, n in steps.items() if rows}) > 1
    )  # not all at once
    for a, b in zip(ours, theirs, strict=True):
        assert_agree(a.sent, b.sent)
        assert a.steps == b.steps
