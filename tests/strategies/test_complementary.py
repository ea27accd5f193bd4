"""Complementary querying, worked examples: committee, supply, need, and special cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.models.scores import entropy
from fallow.settings.spec import Spec
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.strategies import Complementary
from fallow.strategies.complementary import (
    class_shares,
    count_owned,
    disagreement,
    draw_by_softmax,
    level_weights,
    need,
    supply,
)
from fallow.strategies.parts.committee import gather_committee
from fallow.strategies.parts.kcenter import FeatureVectors, k_center
from fallow.strategies.parts.top import rank_rows
from tests.simulations import Simulation, Table, simulation, tables
from tests.sites.test_agree import TINY, check, ending

F64 = torch.float64


def among_peers(
    strategy: Any,
    labels: int = 8,
    peers: dict[str, bool] | None = None,
    labels_of_peer: int = 6,
) -> Simulation:
    """Return site a of three, which receives models of b, c and d and averages b and d.

    The first ``labels_of_peer`` examples of its pool are labeled for validation.
    """
    made = simulation(tables(labels=labels), strategy)
    site = made.members["a"]
    d = site.memory["local"]["w"].numel()
    chosen = {"b": True, "c": False, "d": True} if peers is None else peers
    for n, name in enumerate("bcd", 2):
        w = torch.randn(d, generator=stream(1, name), dtype=F64)
        site.remember(f"model/{name}", {"w": w, "labels": torch.tensor(float(n))})
    models, shares = members(site, chosen)
    average = sum(
        (b * w for b, w in zip(shares, models, strict=True)), torch.zeros(d, dtype=F64)
    )
    is_in = torch.tensor(list(chosen.values()))
    site.remember(
        "average", {"w": average, "stats": torch.zeros(0).double(), "peers": is_in}
    )
    truth = site.parts.hidden["a"]
    site.buy(
        [
            Label(row, float(truth[row]), cycle=0, is_validation=True)
            for row in range(labels_of_peer)
        ]
    )
    return made


def members(site: Any, chosen: dict[str, bool]) -> tuple[list[Tensor], list[float]]:
    """Return the committee: the site's and the averaged models, with their weights."""
    names = [name for name, is_in in chosen.items() if is_in]
    models = [
        site.memory["local"]["w"],
        *(site.memory[f"model/{name}"]["w"] for name in names),
    ]
    labels = [
        len(site.labels),
        *(float(site.memory[f"model/{name}"]["labels"]) for name in names),
    ]
    return models, [n / sum(labels) for n in labels]


def view_of(made: Simulation) -> SiteView:
    return SiteView(made.members["a"], 0)


CHOSEN = {"b": True, "c": False, "d": True}


def test_the_committee_is_the_site_and_its_collaborators_weighted_by_labels() -> None:
    made = among_peers(Complementary())
    models, shares = members(made.members["a"], CHOSEN)
    committee = gather_committee(view_of(made))
    assert shares == [8 / 14, 2 / 14, 4 / 14]
    assert_close(committee.shares, torch.tensor(shares, dtype=F64))
    assert all(
        torch.equal(a["w"], b) for a, b in zip(committee.models, models, strict=True)
    )
    assert_close(committee.collaborators["w"], (2 * models[1] + 4 * models[2]) / 6)


def naive_scores(view: SiteView, gamma: float) -> Tensor:
    """Compute A(x) row by row from the formulas."""
    models, shares = members(view._site, CHOSEN)
    x, c, stats = view.rows(), view.classes, torch.zeros(0, dtype=F64)
    mine = view.memory["average"]["w"]
    f_col = (shares[1] * models[1] + shares[2] * models[2]) / (shares[1] + shares[2])
    logits = {n: view.forward({"w": w, "stats": stats}, x) for n, w in enumerate(models)}
    predicted = view.forward({"w": f_col, "stats": stats}, view.rows("validation")).argmax(
        1
    )
    count = [int((view.validation_labels == k).sum()) for k in range(c)]
    hits = [int(((predicted == k) & (view.validation_labels == k)).sum()) for k in range(c)]
    recall = {k: (hits[k] + 1) / (count[k] + 2) for k in range(c) if count[k]}
    s = [recall.get(k, sum(recall.values()) / len(recall)) for k in range(c)]
    m = [int((view.labels == k).sum()) + count[k] for k in range(c)]
    by_mine, pi = view.forward({"w": mine, "stats": stats}, x), torch.zeros(c, dtype=F64)
    for row in by_mine.softmax(1):
        even = torch.tensor([float(row[k]) / (m[k] + 1) for k in range(c)], dtype=F64)
        pi += even / even.sum() / len(x)
    wanted = torch.tensor(
        [(1 - s[k]) * float(pi[k]) / (m[k] + 1) for k in range(c)], dtype=F64
    )
    wanted /= wanted.mean()
    made = []
    for i in range(len(x)):
        p = [logits[n][i].softmax(0) for n in range(3)]
        q = sum(
            (b * p_j for b, p_j in zip(shares, p, strict=True)), torch.zeros(c, dtype=F64)
        )
        h = [float(-(p_j * p_j.log()).sum()) for p_j in [q, *p]]
        bald = h[0] - sum(b * h_j for b, h_j in zip(shares, h[1:], strict=True))
        made.append(float(q @ wanted) * (float(entropy(by_mine[i : i + 1])) + gamma * bald))
    return torch.tensor(made, dtype=F64)


@pytest.mark.parametrize("gamma", [1.0, 0.0, 2.5])
def test_scores_are_those_of_the_formulas(gamma: float) -> None:
    made = among_peers(Complementary(gamma=gamma))
    view = view_of(made)
    score = naive_scores(view, gamma)
    assert_close(Complementary(gamma=gamma).scores(view), score)
    z = view.look(view.memory["average"], view.rows())[0]
    best = rank_rows(score, stream(0))[:4]
    expected = best[k_center(FeatureVectors.of(z[best]), 1, first=0)]
    assert (
        made.selected({"a": 1, "b": 0, "c": 0})["a"] == (6 + expected).tolist()
    )  # after those for validation


def test_a_batch_is_chosen_far_apart_among_four_times_as_many_good_rows() -> None:
    p = torch.tensor([[2.0, 1.9], [2.0, 1.9], [2.0, 1.9], [0.0, 0.3], [9.0, 0.0]]).double()
    p = torch.cat(
        [p, torch.tensor([[30.0, 0.0]]).double().repeat(6, 1)]
    )  # confident and far away
    site = Table(p, p, [0, 1])
    selected = simulation({"a": site}, Complementary()).selected(2)["a"]
    assert selected[0] in (0, 1, 2) and selected[1] not in (0, 1, 2)


def test_alone_it_is_entropy_times_class_need() -> None:
    for peers in (dict.fromkeys("bcd", False), None):
        made = among_peers(Complementary(), peers=peers)
        view = view_of(made)
        if peers is None:  # a training algorithm without peer models
            for name in ("average", "model/b", "model/c", "model/d"):
                made.members["a"].remember(name, None)
            made.members["a"].remember("global", view.memory["local"])
        assert gather_committee(view).is_alone
        assert supply(view, gather_committee(view)).tolist() == [0, 0, 0]
        logits, labels = view.logits("local"), count_owned(view)
        wanted = need(class_shares(logits, labels), torch.zeros(3).double(), labels)
        score = (logits.softmax(1) @ wanted) * entropy(logits)
        first = made.selected({"a": 1, "b": 0, "c": 0})["a"]
        assert first == [6 + int(score.argmax())]


def test_a_class_without_a_validation_row_is_supplied_as_the_others_are_on_average() -> (
    None
):
    made = among_peers(Complementary(), labels_of_peer=0)
    assert supply(view_of(made), gather_committee(view_of(made))).tolist() == [
        0.5,
        0.5,
        0.5,
    ]
    site = made.members["a"]
    site.buy([Label(row, 1.0, cycle=0, is_validation=True) for row in range(3)])
    supplied = supply(view_of(made), gather_committee(view_of(made)))
    assert supplied[0] == supplied[1] == supplied[2] and float(supplied[1]) in (
        0.2,
        0.4,
        0.6,
        0.8,
    )


def test_a_class_that_peers_know_and_one_that_is_owned_are_needed_less() -> None:
    even, none = torch.full((3,), 0.25).double(), torch.zeros(3).double()
    assert need(even, torch.tensor([0.75, 0.5, 0.5]).double(), none).tolist() == [
        0.6,
        1.2,
        1.2,
    ]
    assert need(even, none, torch.tensor([3.0, 0, 1]).double()).argsort().tolist() == [
        0,
        2,
        1,
    ]
    assert need(none, none, none).tolist() == [1, 1, 1]


def test_the_prior_of_the_labels_is_divided_out_of_the_class_shares() -> None:
    logits = torch.tensor([[0.8, 0.2], [0.8, 0.2]]).double().log()
    shares = class_shares(logits, torch.tensor([3.0, 0.0]))
    assert_close(shares, torch.tensor([0.5, 0.5], dtype=F64))  # 0.8 / 4 and 0.2 / 1
    removed = torch.cat([logits, torch.full((1, 2), torch.nan).double()])
    assert_close(class_shares(removed, torch.tensor([3.0, 0.0])), shares)


def test_members_that_agree_do_not_disagree() -> None:
    p = torch.rand(1, 5, 3, generator=stream(2), dtype=F64).softmax(2).repeat(3, 1, 1)
    q, bald = disagreement(p, torch.tensor([0.2, 0.3, 0.5], dtype=F64))
    assert_close(q, p[0])
    assert_close(bald, torch.zeros(5, dtype=F64), rtol=0, atol=1e-12)


def test_with_a_temperature_rows_are_drawn_and_carry_weight_and_probability() -> None:
    made = simulation(tables(), Complementary(temperature=0.5))
    made.query(12)
    kept = made.members["a"].memory["selected"]
    assert sorted(kept["rows"].tolist()) == list(range(12))
    assert ((kept["probability"] > 0) & (kept["probability"] <= 1)).all()
    assert kept["weight"].tolist() == [1.0] * 12  # the whole pool represents itself
    other = simulation(tables(), Complementary(temperature=0.5), seed=1).selected(12)
    assert other["a"] != kept["rows"].tolist()


@pytest.mark.parametrize("field", ["gamma", "temperature"])
def test_wrong_fields_are_named(field: str) -> None:
    with pytest.raises(ValueError, match=f"Complementary's {field} is -1"):
        Complementary(**{field: -1})


@pytest.mark.long
def test_a_run_with_dpfl_is_the_same_across_a_byte_boundary() -> None:
    training = Spec("dpfl", {"budget": 3})
    config = replace(
        TINY,
        strategy=Spec("complementary"),
        training=training,
        validation=0.5,
        rounds=4,
        initial=16,
        cycles=1,
    )
    check(ending(config), ending(config, runtime="bytes"), atol=0)


def test_evenly_drawn_rows_weigh_one() -> None:
    chance = 1 / torch.arange(60, 48, -1, dtype=F64)
    assert_close(level_weights(chance, 60), torch.ones(12, dtype=F64))


def test_a_whole_pool_weighs_one_each() -> None:
    assert level_weights(torch.tensor([0.7, 0.1, 1.0], dtype=F64), 3).tolist() == [1, 1, 1]


def test_the_weighted_mean_is_unbiased_by_enumeration() -> None:
    loss, share = (
        torch.tensor([1.0, 3.0, 8.0], dtype=F64),
        torch.tensor([0.6, 0.3, 0.1]).double(),
    )
    weighted = plain = 0.0
    for i in range(3):
        for j in {0, 1, 2} - {i}:
            pi = torch.stack([share[i], share[j] / (1 - share[i])])
            seen = torch.stack([loss[i], loss[j]])
            weighted += float(pi.prod() * (level_weights(pi, 3) * seen).mean())
            plain += float(pi.prod() * seen.mean())
    assert weighted == pytest.approx(4.0) and plain < 3.2


@pytest.mark.long
def test_drawing_what_is_unsure_biases_the_plain_mean_and_not_the_weighted_one() -> None:
    """Draw 12 of 60 with a preference for small losses, as of an overconfident model."""
    loss = torch.rand(60, generator=stream(0, "loss"), dtype=F64).log().neg() * 2
    weighted, plain = [], []
    for seed in range(300):
        rows, chance = draw_by_softmax(-loss, 12, 4.0, stream(seed, "draws"))
        weighted.append((level_weights(chance, 60) * loss[rows]).mean())
        plain.append(loss[rows].mean())
    outcome, error = torch.stack(weighted), torch.stack(weighted).std() / 300**0.5
    assert abs(outcome.mean() - loss.mean()) < 3 * error
    assert torch.stack(plain).mean() < loss.mean() - 10 * error


def test_probabilities_are_those_of_the_draw() -> None:
    scores = torch.tensor([2.0, 0.0, -1.0], dtype=F64)
    rows, chance = draw_by_softmax(scores, 3, 0.5, stream(3))
    first = 0.9 * (scores / 0.5).softmax(0) + 0.1 / 3
    assert_close(chance[0], first[rows[0]])
    assert (
        chance[2] == pytest.approx(1)
        and chance[2] <= 1
        and sorted(rows.tolist()) == [0, 1, 2]
    )


def test_every_row_may_be_drawn_however_low_its_score() -> None:
    first = {
        int(draw_by_softmax(torch.tensor([900.0, 0.0]), 1, 1.0, stream(s))[0])
        for s in range(80)
    }
    assert first == {0, 1}


def test_rows_without_a_score_come_last_and_a_model_without_any_is_said() -> None:
    scores = torch.tensor([torch.nan, 1.0, torch.inf, 0.0])
    for seed in range(5):
        assert set(draw_by_softmax(scores, 2, 1.0, stream(seed))[0].tolist()) == {1, 3}
    assert len(set(draw_by_softmax(scores, 4, 1.0, stream(0))[0].tolist())) == 4
    with pytest.raises(ValueError, match="NaN or infinite"):
        draw_by_softmax(torch.full((3,), torch.nan), 1, 1.0, stream(0))
    assert draw_by_softmax(torch.zeros(0), 2, 1.0, stream(0))[0].tolist() == []
