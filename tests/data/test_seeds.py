"""Effects of the seed, and equality of queried and trained examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fallow.data import Dataset
from fallow.data.partition.longtail import longtail_counts
from fallow.data.partition.partitions import ExactDirichlet, LongTail
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec

Y = np.repeat(np.arange(10), 400)
INNER = {"inner": "ExactDirichlet", "inner_fields": {"alpha": 0.1}}


RULES = [
    ExactDirichlet(0.1),
    ExactDirichlet(100),
    LongTail(20, "ExactDirichlet", {"alpha": 0.1}),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_another_seed_is_another_partition(rule: ExactDirichlet | LongTail) -> None:
    """Check the partition, which some public code fixes for all seeds."""
    cuts = [rule.split(Y, 10, np.random.default_rng(seed)) for seed in range(4)]
    tables = {
        repr([np.bincount(Y[part], minlength=10).tolist() for part in cut]) for cut in cuts
    }
    assert len(tables) == 4
    assert len({np.concatenate(cut).tobytes() for cut in cuts}) == 4


def test_another_seed_keeps_other_rows_of_a_long_tail_and_the_same_counts() -> None:
    kept = [LongTail(20).rows(Y, np.random.default_rng(seed)) for seed in range(3)]
    assert all(
        np.bincount(Y[rows]).tolist() == longtail_counts(400, 10, 20).tolist()
        for rows in kept
    )
    assert not np.array_equal(kept[0], kept[1]) and not np.array_equal(kept[1], kept[2])


def long_tailed(seed: int, event_log: EventLog) -> tuple[SimulatedEnvironment, Dataset]:
    """Return a federated dataset whose examples contain their own index and class."""
    number = torch.arange(len(Y), dtype=torch.float32)
    y = torch.from_numpy(Y)
    x = torch.stack([number, y.float()], 1)
    test = torch.tensor([[-1.0, 0.0], [-2.0, 1.0]])
    names = tuple("0123456789")
    dataset = Dataset("numbered", x, y, test, torch.tensor([0, 1]), classes=names)
    config = ExperimentConfig(
        "tiny",
        partition=Spec("long-tail", {"rho": 20, **INNER}),
        sites=5,
        rounds=1,
        cycles=1,
        score_rounds=1,
        initial=10,
        budget=5,
        strategy=Spec("entropy"),
        model=Spec("linear"),
    )
    return environment_of(config, seed, dataset, event_log), dataset


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_a_query_scores_are_those_that_are_labeled_and_trained_on(
    seed: int,
) -> None:
    """Check that the long tail is drawn once; some public code draws it twice."""
    event_log = EventLog()
    made, result = long_tailed(seed, event_log)
    ExperimentRun(made, event_log).go()
    event_log.close()
    for name, site in made.members.items():
        number = site.x[:, 0].long()
        row_ids = site.x[:, 1].long()
        assert torch.equal(result.y[number], row_ids)
        assert torch.equal(made.oracle.hidden[name], row_ids)
        assert len(site.labeled) == 15
        assert torch.equal(site.labels, row_ids[site.labeled])
    together = torch.cat([site.x[:, 0] for site in made.members.values()])
    assert (
        len(set(together.tolist())) == len(together) == longtail_counts(400, 10, 20).sum()
    )


def test_two_seeds_of_a_run_hold_different_rows() -> None:
    row_ids = []
    for seed in (0, 1):
        event_log = EventLog()
        made, _ = long_tailed(seed, event_log)
        row_ids.append({int(n) for site in made.members.values() for n in site.x[:, 0]})
        event_log.close()
    assert row_ids[0] != row_ids[1]
