"""Worked examples of robust averages, and their limits with a few malicious sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import Delivered, Request
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State, Values
from fallow.engine.stacked import Stacked
from fallow.experiment.methods import methods_of
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.training import FedAvg, Robust
from tests.engine.jobs import mlp, norm
from tests.laws.test_training_laws import federated
from tests.simulations import Forgetful

CONFIG = TrainingConfig((TrainingStage(2),), 4, Optimizer("sgd", 0.05, momentum=0.9))
START: State = {"w": torch.tensor([1.0, 1.0]), "stats": torch.tensor([0.5])}
RULES = ("median", "trimmed", "clipped")
EVEN = {"a": 6, "b": 6, "c": 6, "d": 6}


@dataclass
class Sends:
    """Transport whose sites send given replies."""

    replies: dict[str, Values]
    asked: list[Request] = field(default_factory=list)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.replies)

    def exchange(self, requests: Any, routes: Any = None) -> Delivered:
        self.asked += requests.values()
        return Delivered(dict(self.replies), 0, 0)


def site(w: Sequence[float], n: float = 1.0, stats: float = 0.0) -> Values:
    return {"n": n, "w": torch.tensor(w), "stats": torch.tensor([stats])}


def after(method: Robust, sites: Sequence[Values], start: State = START) -> State:
    """Return the state after one round with these replies."""
    replies = dict(zip("abcdefg", sites, strict=False))
    return method.round(
        start,
        Ask(
            Sends(replies),
            Forgetful(),
            Disclosure(),
            ExchangeKey("train", "round"),
            "training",
        ),
    )


FIVE = [
    site([0.0, 5.0], 1, 0.0),
    site([1.0, 4.0], 2, 1.0),
    site([2.0, 3.0], 3, 2.0),
    site([4.0, 1.0], 4, 3.0),
    site([9.0, 0.0], 90, 9.0),
]


@pytest.mark.parametrize(
    ("method", "w", "stats"),
    [
        (Robust(), [2.0, 3.0], 2.0),
        (Robust(rule="trimmed", trim=0.2), [7 / 3, 8 / 3], 2.0),
        (
            Robust(rule="trimmed", trim=0.21),
            [2.0, 3.0],
            2.0,
        ),  # rounded up: two at either end
        (Robust(rule="trimmed", trim=0.0), [3.2, 2.6], 3.0),
    ],
)
def test_the_average_over_sites_is_that_of_the_rule(
    method: Robust, w: list[float], stats: float
) -> None:
    average = after(method, FIVE)
    assert_close(average["w"], torch.tensor(w))
    assert_close(average["stats"], torch.tensor([stats]))


def test_of_an_even_number_of_sites_the_two_in_the_middle_count() -> None:
    assert after(Robust(), FIVE[:4])["w"].tolist() == [1.5, 3.5]


def test_updates_are_cut_to_their_length_and_weighted_by_rows() -> None:
    sites = [
        site([1.0, 3.0], n=1),
        site([4.0, 5.0], n=3),
    ]  # they changed by (0, 2) and by (3, 4)
    average = after(Robust(rule="clipped", clip=2.5), sites)
    assert_close(average["w"], torch.tensor([1 + 0.75 * 1.5, 1 + 0.25 * 2 + 0.75 * 2.0]))


def test_without_a_number_updates_are_cut_to_the_median_of_their_lengths() -> None:
    sites = [site([1.0, 2.0]), site([1.0, 4.0]), site([101.0, 1.0])]  # lengths 1, 3 and 100
    average = after(Robust(rule="clipped"), sites)
    assert_close(average["w"], torch.tensor([1 + 3 / 3, 1 + 1 / 3 + 3 / 3]))


# -- malicious sites -------------------------------------------------------------------

HONEST = [site([1.0 + 0.1 * k, 2.0 - 0.1 * k], n=2 + k) for k in range(4)]


def span() -> tuple[Tensor, Tensor]:
    sent = torch.stack([torch.as_tensor(one["w"]) for one in HONEST])
    return sent.amin(0), sent.amax(0)


@pytest.mark.parametrize("factor", [1e6, -1e6])
@pytest.mark.parametrize("method", [Robust(), Robust(rule="trimmed", trim=0.2)], ids=str)
def test_one_huge_model_leaves_every_number_among_those_of_the_honest_sites(
    method: Robust, factor: float
) -> None:
    bad = site([factor, factor], n=1e9, stats=factor)
    low, high = span()
    w = after(method, [*HONEST, bad])["w"]
    assert bool((low <= w).all()) and bool((w <= high).all())


@pytest.mark.parametrize("factor", [1e6, -1e6, 1e30])
@pytest.mark.parametrize("clip", [0.5, None])
def test_one_huge_model_moves_a_clipped_average_by_the_clip_at_most(
    clip: float | None, factor: float
) -> None:
    bad = site([factor, factor], n=1e9, stats=factor)
    average = after(Robust(rule="clipped", clip=clip), [*HONEST, bad])
    lengths = [(torch.as_tensor(one["w"]) - START["w"]).norm() for one in HONEST]
    bound = max(map(float, lengths)) if clip is None else clip
    assert float((average["w"] - START["w"]).norm()) <= bound * (1 + 1e-6)
    assert abs(float(average["stats"])) < 1


def test_a_site_that_claims_all_rows_has_a_third_of_five_at_most() -> None:
    honest = [site([1.0, 2.0], n=4) for _ in range(4)]  # each changes by (0, 1)
    bad = site([1.0, 0.0], n=1e9)  # the opposite
    average = after(Robust(rule="clipped", clip=1.0), [*honest, bad])
    assert_close(average["w"], torch.tensor([1.0, 1.0 + 1 / 3]))


def test_of_two_sites_the_larger_keeps_its_weight() -> None:
    sites = [site([1.0, 2.0], n=1), site([2.0, 1.0], n=99)]
    average = after(Robust(rule="clipped", clip=9.0), sites)
    assert_close(average["w"], torch.tensor([1.99, 1.01]))


@pytest.mark.parametrize(
    "bad",
    [
        site([float("nan"), 1.0]),
        site([1.0, float("inf")]),
        site([1.0, 1.0], stats=float("nan")),
        site([1.0, 1.0], n=float("nan")),
        site([1.0, 1.0], n=-5.0),
        site([1.0, 1.0, 1.0]),
        {"n": 1.0, "w": torch.zeros(2)},
        {"w": torch.zeros(2), "stats": torch.zeros(1)},
    ],
    ids=[
        "nan",
        "inf",
        "statistics",
        "rows",
        "less than none",
        "shape",
        "a part",
        "no rows",
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_what_is_no_model_is_kept_out_and_counted(rule: Any, bad: Values) -> None:
    method = Robust(rule=rule)
    with_it = after(method, [*HONEST, bad])
    without = after(method, HONEST)
    assert torch.equal(with_it["w"], without["w"])
    assert torch.equal(with_it["stats"], without["stats"])
    assert (int(with_it["refused"]), int(without["refused"])) == (1, 0)


def test_where_no_model_is_usable_training_has_diverged() -> None:
    with pytest.raises(
        ValueError, match=r"all models that sites sent to Robust .*lower the learning rate"
    ):
        after(Robust(), [site([float("nan"), 0.0])] * 3)


@pytest.mark.parametrize("rule", RULES)
def test_a_site_without_labels_has_no_voice(rule: Any) -> None:
    method = Robust(rule=rule)
    silent = site([1.0, 1.0], n=0)
    assert torch.equal(after(method, [*HONEST, silent])["w"], after(method, HONEST)["w"])
    assert torch.equal(after(method, [silent, silent])["w"], START["w"])


# -- in a federation -------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("bn", ["average", "local"])
@pytest.mark.parametrize(
    ("method", "rows"),
    [
        (Robust(CONFIG, rule="clipped", clip=1e9), {"a": 8, "b": 6, "c": 12}),
        (Robust(CONFIG, rule="trimmed", trim=0.0), EVEN),
        (Robust(CONFIG), {"a": 6, "b": 6}),  # with two sites nothing is trimmed
    ],
    ids=["clipped", "trimmed", "median"],
)
def test_where_nothing_is_trimmed_it_is_fedavg(
    method: Robust, rows: dict[str, int], bn: Any
) -> None:
    ours = federated(mlp, Robust(CONFIG, method.rule, method.trim, method.clip, bn), rows)
    theirs = federated(mlp, FedAvg(CONFIG, bn), rows)
    assert_close(ours["w"], theirs["w"], rtol=0, atol=1e-12)


def test_batch_norm_statistics_are_averaged_by_the_rule_or_stay() -> None:
    start = {
        name: value.clone() for name, value in federated(norm, FedAvg(CONFIG), EVEN).items()
    }
    method = Robust(CONFIG, rule="trimmed", trim=0.0)
    assert_close(federated(norm, method, EVEN)["stats"], start["stats"], rtol=0, atol=1e-12)
    asked = after(Robust(bn="local"), [{"n": 1.0, "w": torch.zeros(2)}] * 3)
    assert torch.equal(asked["stats"], START["stats"])


@pytest.mark.parametrize("rule", RULES)
def test_the_executors_agree(rule: Any) -> None:
    method = Robust(CONFIG, rule=rule)
    ours = federated(mlp, method)
    theirs = federated(mlp, method, executor=Stacked)
    assert_close(ours["w"], theirs["w"], rtol=0, atol=1e-10)


def test_secure_sums_are_refused_before_anything_starts() -> None:
    config = ExperimentConfig(
        "a", training=Spec("robust"), privacy=Privacy(secure_sum=True)
    )
    with pytest.raises(ValueError, match="robust"):
        methods_of(config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rule": "mean"}, "rule is 'mean'; it must be 'median', 'trimmed' or 'clipped'"),
        ({"trim": 0.5}, "trim is 0.5; it is the maximum share of malicious sites"),
        ({"trim": -0.1}, "trim is -0.1"),
        ({"trim": float("nan")}, "trim is nan"),
        ({"clip": 0.0}, "clip is 0.0; it must be above 0"),
        ({"clip": float("nan")}, "clip is nan"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Robust(**fields)
