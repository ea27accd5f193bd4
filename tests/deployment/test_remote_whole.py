"""Test exchanges that need every site, and replies that the server side cannot use."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fallow.core.ask import each_of_all, sum_of_all
from fallow.core.events import Event
from fallow.privacy.settings import Privacy
from fallow.strategies import AHFAL
from tests.deployment.remotes import Federation, Timeouts, federation
from tests.privacy.federation import SECURE, Asker
from tests.simulations import tables

FOUR = tables(sites=4)
WAITS = Timeouts(10.0, quorum=3, patience=100.0)


def comes_back(there: Federation, site: str) -> None:
    """Keep the site offline until an exchange has waited for it for the full time."""
    there.transport.down.add(site)

    def notify(event: Event) -> None:
        there.events.append(event)
        if event["event"] == "waiting":
            there.transport.down.clear()

    there.remote.notify = notify


@pytest.mark.parametrize("privacy", [Privacy(), SECURE], ids=["plain", "masked"])
def test_a_sum_of_all_waits_for_the_last_site_although_a_quorum_is_there(
    privacy: Privacy,
) -> None:
    there = federation(Asker(), FOUR, WAITS, privacy)
    comes_back(there, "b")
    assert float(sum_of_all(there.ask(), Asker().plain)["sites"]) == 4
    assert 10.0 <= there.transport.seconds < 20.0


def test_answers_of_all_are_waited_for_although_a_quorum_is_there() -> None:
    there = federation(Asker(), FOUR, WAITS)
    comes_back(there, "b")
    assert sorted(each_of_all(there.ask(), Asker().plain)) == list("abcd")


def test_what_needs_all_sites_ends_after_the_patience_with_who_is_missing() -> None:
    there = federation(Asker(), FOUR, WAITS, transport={"down": {"b"}})
    ask = there.ask()
    with pytest.raises(RuntimeError, match=r"3 of 4 sites .* 4 are necessary; missing: b"):
        sum_of_all(ask, Asker().plain)
    assert 100.0 <= there.transport.seconds < 105.0
    assert (
        float(ask.sum(Asker().plain)["sites"]) == 3
    )  # the next exchange needs a quorum again


# -- replies that the server side cannot use -----------------------------------------------


def answers_with(there: Federation, site: str, answer: Any) -> None:
    """Replace replies of the site by a function of the honest reply."""
    there.signing[site].change = lambda instruction, honest: answer(honest)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            lambda a: {"n": a["n"]},
            r"its reply has the fields \['n'\], but the others have \['n', 'x'\]",
        ),
        (
            lambda a: {**a, "y": 1.0},
            r"its reply has the fields \['n', 'x', 'y'\], but the others have \['n', 'x'\]",
        ),
        (
            lambda a: {**a, "x": 1.0},
            "x is a number, but that of other sites is a tensor of 1 dimensions",
        ),
        (
            lambda a: {**a, "x": a["x"][None]},
            "x is a tensor of 2 dimensions, but that of other sites",
        ),
        (lambda a: {**a, "n": "many"}, "n is text, but that of other sites is a number"),
        (lambda a: {**a, "x": None}, "x is nothing, but that of other sites is a tensor"),
    ],
    ids=["less", "more", "number", "deeper", "text", "none"],
)
def test_an_answer_of_its_own_that_has_not_the_fields_of_the_others_is_refused(
    answer: Any, why: str
) -> None:
    there = federation(Asker(), FOUR, WAITS)
    answers_with(there, "a", answer)
    assert sorted(there.ask().each(Asker().plain)) == ["b", "c", "d"]
    with pytest.raises(ValueError, match=why):
        raise ValueError(there.refusals["a"])
    assert there.transport.seconds < 1.0


def test_answers_of_their_own_may_have_as_many_rows_as_each_site_likes() -> None:
    there = federation(Asker(), FOUR, WAITS)
    answers_with(there, "a", lambda a: {**a, "x": a["x"][:2]})
    assert len(torch.as_tensor(there.ask().each(Asker().plain)["a"]["x"])) == 2


def test_an_addend_beyond_its_bound_is_refused_and_the_sum_goes_on() -> None:
    there = federation(Asker(), FOUR, WAITS)
    answers_with(there, "c", lambda a: {**a, "x": a["x"] * 0 - 1e6})
    assert float(there.ask().sum(Asker().plain, bound=1e3)["sites"]) == 3
    assert there.refusals == {"c": "x exceeds the bound 1000 of a contribution"}


@pytest.mark.parametrize("count", [1.5, "many", True, None])
def test_a_count_that_is_no_whole_number_is_refused_and_the_query_goes_on(
    count: Any,
) -> None:
    there = federation(AHFAL(), FOUR, WAITS)
    answers_with(there, "c", lambda a: {**a, "count": count} if "count" in a else a)
    AHFAL().query(there.ask(), dict.fromkeys(FOUR, 2), {})
    assert "count is" in there.refusals["c"]
