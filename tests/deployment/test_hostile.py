"""Test which values of one hostile or broken site can affect a study."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fallow.cli.coordinate import show
from fallow.cli.coordinate_messages import describe_event
from fallow.cli.log_lines import find_level
from fallow.core.aggregation import cap_weights
from fallow.core.client import declared
from fallow.core.messages import Request, Step
from fallow.core.types import Values
from fallow.deployment.agreement import Bounds
from fallow.deployment.agreement import Timeouts as AgreedWaits
from fallow.deployment.annotator_values import ALLOWED, TESTS
from fallow.deployment.annotators import Annotators
from fallow.deployment.coordinator.status import HIDDEN
from fallow.deployment.coordinator.weights import (
    SiteWeights,
    cut_weights,
    find_too_far,
    find_unusual_sizes,
    replace_far_means,
)
from fallow.encoders import Fourier
from fallow.report.live import read_live
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.strategies import AHFAL, FALE, Pivotal
from fallow.training import ClosedForm, FedAvg, ServerSolve
from fallow.training.scaling import Scaling
from fallow.transport.checks import ResponseCheck
from fallow.transport.envelope import Instruction
from tests.deployment.hostile import turn
from tests.deployment.hosts import agreement
from tests.deployment.remotes import Federation, Timeouts, federation
from tests.deployment.simulations import NAMES, rows, tiny
from tests.deployment.simulations import federation as at_real_sites
from tests.each import each_of
from tests.keys import key_of
from tests.privacy.federation import Asker
from tests.simulations import tables

FOUR = tables(sites=4)
QUORUM = Timeouts(10.0, quorum=3, patience=100.0)
ONE_AWAY = AgreedWaits(timeout=5.0, quorum=2, patience=60.0, deadline=3600.0)


def train_round(there: Federation) -> Any:
    """Return the state after a round of FedAvg."""
    site = there.simulation.members["a"]
    state = site.memory["global"]
    return site.parts.methods["training"].round(state, there.ask("0/train/0", "training"))


def says(there: Federation, site: str, **changes: Any) -> None:
    there.signing[site].change = lambda instruction, reply: {**reply, **changes}


def model_of(there: Federation, size: float) -> torch.Tensor:
    d = there.simulation.members["a"].parts.layout.d
    return torch.full((d,), size, dtype=torch.float64)


# -- finite values that are too large ------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "why"),
    [
        (1e300, "w is 1e+300, which is above 3.40282e+38"),
        (5e40, "w is 5e+40, which is above 3.40282e+38"),
        (1e19, "w has the norm"),
        (1e7, "w has the norm"),
    ],
)
def test_one_finite_number_of_a_site_neither_ends_nor_steers_a_round(
    size: float, why: str
) -> None:
    honest = train_round(federation(AHFAL(), FOUR, QUORUM, transport={"down": {"d"}}))
    there = federation(AHFAL(), FOUR, QUORUM)
    says(there, "d", w=model_of(there, size))
    values = train_round(there)
    assert values["w"].float().square().sum().isfinite()
    torch.testing.assert_close(values, honest)
    assert there.refusals.keys() == {"d"}
    assert why in there.refusals["d"]


@pytest.mark.long
def test_a_model_without_statistics_is_refused_also_where_it_is_the_first_of_two(
    tmp_path: Path,
) -> None:
    """If two forms are equally frequent, the form of the first site is used. The honest
    reply was rejected, and the algorithm stopped on the missing statistics."""
    config = replace(tiny(tmp_path / "x").agreement.config, training=Spec("ditto"))
    simulation = tiny(tmp_path / "y", config, waits=ONE_AWAY)

    def halve(key: str, reply: dict[str, Any]) -> dict[str, Any]:
        if key.startswith("0/train/"):
            return {name: part for name, part in reply.items() if name != "stats"}
        return reply

    for site in ("basel", "chur"):
        turn(simulation, site, halve)
    with pytest.raises(RuntimeError) as stopped:
        simulation.program().go()
    for site in ("basel", "chur"):
        assert f"site {site}: stats is missing beside w" in str(stopped.value)
    refused = {event["site"] for event in simulation.list_events("refused")}
    assert refused == {"basel", "chur"}


def test_a_refusal_of_a_far_model_names_the_bound_and_the_setting() -> None:
    there = federation(AHFAL(), FOUR, QUORUM)
    says(there, "d", w=model_of(there, 1e7))
    train_round(there)
    for word in ("more than 1000 times", "median over sites", "federation.farthest"):
        assert word in there.refusals["d"]


def test_a_study_may_allow_models_that_are_farther_away() -> None:
    there = federation(AHFAL(), FOUR, QUORUM)
    there.weights.bounds = Bounds(farthest=float("inf"))
    there.weights.dtype = torch.float64
    says(there, "d", w=model_of(there, 1e7))
    assert float(train_round(there)["w"].norm()) > 1e4
    assert there.refusals == {}


def test_a_site_without_labels_adds_nothing_to_a_model() -> None:
    there = federation(AHFAL(), FOUR, QUORUM)
    says(there, "d", n=0.0, w=model_of(there, 5.0))
    train_round(there)
    assert "w is not 0 although n is 0" in there.refusals["d"]


def test_a_column_whose_square_no_number_holds_is_refused_before_sites_compute_with_it() -> (
    None
):
    there = federation(Asker(), FOUR, QUORUM)
    says(there, "b", x=torch.full((6,), 1e300, dtype=torch.float64))
    assert float(there.ask().sum(Asker().plain)["sites"]) == 3
    assert "x has values up to 1e+300, whose squares" in there.refusals["b"]


def test_where_two_sites_differ_too_much_the_larger_one_does_not_count() -> None:
    details = {site: of_sum(w=torch.ones(4)) for site in "ab"}
    replies: dict[str, Values] = {
        "a": {"n": 1.0, "w": torch.ones(4)},
        "b": {"n": 1.0, "w": torch.ones(4) * 1e9},
    }
    assert find_too_far(replies, details, Bounds(), UPLOAD).keys() == {"b"}


def test_large_numbers_that_all_sites_have_are_no_reason_to_refuse() -> None:
    instructions = dict.fromkeys("abc", of_sum())
    replies: dict[str, Values] = {
        site: {"n": 1.0, "w": torch.ones(4) * 1e9} for site in "abc"
    }
    assert find_too_far(replies, instructions, Bounds(), UPLOAD) == {}
    none_yet: dict[str, Values] = {
        **replies,
        "b": {"n": 1.0, "w": torch.zeros(4)},
        "c": {"n": 1.0, "w": torch.zeros(4)},
    }
    assert find_too_far(none_yet, instructions, Bounds(), UPLOAD) == {}


UPLOAD = declared(FedAvg(bn="local"))["upload"]


def of_sum(function: str = "upload", **args: Any) -> Request:
    steps = (Step("fit", "local", args), Step("sum", function, {}))
    return Request(key_of("0/train/0/0"), "training", 0, 0, steps)


# -- weight of a site ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "bounds", "counted"),
    [
        ([8.0, 8.0, 8.0], Bounds(), [8.0, 8.0, 8.0]),
        ([4.0, 4.0, 4.0, 4.0, 1e9], Bounds(), [4.0, 4.0, 4.0, 4.0, 16.0]),
        ([4.0] * 30 + [1e9], Bounds(), [4.0] * 30 + [40.0]),
        ([4.0] * 30 + [1e9], Bounds(largest_ratio=float("inf")), [4.0] * 30 + [120.0]),
        # two remaining sites cannot decide which one is wrong
        ([0.0, 4.0, 1e9], Bounds(), [0.0, 4.0, 1e9]),
        ([1.0, 1.0, 1e3], Bounds(1.0, 1.0, float("inf")), [1.0, 1.0, 1e3]),
        ([], Bounds(), []),
    ],
)
def test_no_site_weighs_more_than_its_share(
    weights: list[float], bounds: Bounds, counted: list[float]
) -> None:
    outcome = cap_weights(weights, bounds.largest_share, bounds.largest_ratio)
    assert outcome == pytest.approx(counted)


def test_a_site_that_weighs_too_much_is_cut_and_its_model_stays_what_it_is() -> None:
    replies: dict[str, Any] = {
        site: {"n": n, "w": n * torch.ones(2)}
        for site, n in (("a", 4.0), ("b", 4.0), ("c", 100.0))
    }
    capped, words = cut_weights(replies, UPLOAD, Bounds(), {})
    assert capped["c"]["n"] == pytest.approx(8.0)
    torch.testing.assert_close(capped["c"]["w"], 8.0 * torch.ones(2))
    assert capped["a"] is replies["a"]
    assert "100 examples, is limited to 8" in words["c"]


def test_a_site_cannot_claim_more_labels_than_it_brought_or_was_asked_for() -> None:
    there = federation(AHFAL(), FOUR, QUORUM)
    there.remote.response_check.labels = dict.fromkeys(FOUR, 8)
    says(there, "c", n=9.0)
    train_round(there)
    assert there.refusals == {"c": "n is 9, and the site sent or was asked for 8 labels"}


def test_what_weighs_too_much_is_said_and_the_round_goes_on() -> None:
    there = federation(AHFAL(), FOUR, QUORUM)

    def claim(instruction: Instruction, reply: Any) -> Values:
        mean = reply["w"] / reply["n"]
        return {**reply, "n": 1e6, "w": mean * 1e6}

    there.signing["c"].change = claim
    train_round(there)
    (event,) = [event for event in there.events if event["event"] == "weighed"]
    assert event["site"] == "c"
    assert there.refusals == {}


@pytest.mark.parametrize(
    ("owner", "function", "fields"),
    [
        ("scaling", "columns", ("rows", "columns")),
        ("scaling", "spread", ("squares", "varies")),
        ("scaling", "labeled", ("rows", "targets")),
        ("training", "normal", ("rows", "weight", "products")),
    ],
)
def test_units_and_least_squares_weigh_a_site_by_what_it_registered(
    owner: str, function: str, fields: tuple[str, ...]
) -> None:
    step = Step("sum", function, {})
    details = {site: Request(key_of("0/query/0"), owner, 0, 0, (step,)) for site in "abc"}
    many = {"a": 10, "b": 10, "c": 10_000}
    method: Any = ServerSolve() if owner == "training" else Scaling(True, True)
    response_check = ResponseCheck(
        dict(many), labels=dict(many), declared={owner: declared(method)}
    )
    replies: dict[str, Any] = {
        site: {name: torch.tensor(float(n)) for name in fields} for site, n in many.items()
    }
    capped, words = SiteWeights(response_check).limit(details, replies)
    counted = {name: float(torch.as_tensor(value)) for name, value in capped["c"].items()}
    assert counted == dict.fromkeys(fields, pytest.approx(20.0))
    assert capped["a"] is replies["a"]
    assert words.keys() == {"c"}


# -- means of columns ----------------------------------------------------------------------

COLUMNS = torch.tensor([55.0, 240.0, 0.7, 0.0])  # means at the honest sites
MOMENTS = declared(Fourier())["moments"]


def send_moments(rows: int, means: torch.Tensor) -> dict[str, Any]:
    means = means.double()
    return {"rows": float(rows), "columns": rows * means, "squares": rows * means.square()}


def test_a_site_with_one_far_number_does_not_set_the_units_of_all() -> None:
    rows = {"a": 100, "b": 120, "c": 80}
    replies: dict[str, Any] = {site: send_moments(n, COLUMNS) for site, n in rows.items()}
    replies["c"]["columns"][2] = 1e5
    clipped, words = replace_far_means(replies, MOMENTS, rows)
    assert clipped["a"] is replies["a"] and clipped["b"] is replies["b"]
    columns = torch.as_tensor(clipped["c"]["columns"])
    assert columns.tolist() == pytest.approx([4400, 19200, 56, 0])
    assert clipped["c"]["squares"] is replies["c"]["squares"]
    assert words == {
        "c": "columns of site c counts as at the median site in 1 columns: the mean of column 2 is "
        "1.25e+03, more than its squares allow; its size at the median site is 0.7; check the units "
        "of its columns"
    }


def test_squares_of_a_column_in_other_units_count_as_at_the_median_site() -> None:
    rows = dict.fromkeys("abc", 10)
    replies: dict[str, Any] = {site: send_moments(n, COLUMNS) for site, n in rows.items()}
    replies["b"]["squares"][0] *= -1e9
    clipped, words = replace_far_means(replies, MOMENTS, rows)
    assert float(torch.as_tensor(clipped["b"]["squares"])[0]) == pytest.approx(10 * 55**2)
    assert words.keys() == {"b"}


def test_columns_that_differ_or_are_rare_are_no_reason_to_clip() -> None:
    rows = dict.fromkeys("abcd", 10)
    own = [COLUMNS, COLUMNS * 9, COLUMNS / 9, torch.tensor([1.0, 1.0, 0.0, 1.0])]
    replies = {
        site: send_moments(10, means) for site, means in zip("abcd", own, strict=True)
    }
    assert replace_far_means(replies, MOMENTS, rows) == (replies, {})
    two = {site: replies[site] for site in "ab"}
    two["a"]["columns"][0] = 1e9  # of two sites, nobody can say which is wrong
    assert replace_far_means(two, MOMENTS, rows) == (two, {})


@each_of("times, is_named", [(9, False), (11, True), (98, True), (-98, True)])
def test_a_mean_far_from_that_of_the_median_site_does_not_move_the_units(
    times: float, is_named: bool
) -> None:
    rows = dict.fromkeys("abc", 10)
    columns = declared(Scaling())["columns"]
    replies: dict[str, Any] = {
        site: {"rows": 10.0, "columns": 10 * COLUMNS} for site in "abc"
    }
    replies["c"]["columns"] = replies["c"]["columns"] * torch.tensor([times, 1, 1, 1])
    clipped, words = replace_far_means(replies, columns, rows)
    counted = float(torch.as_tensor(clipped["c"]["columns"])[0])
    assert counted == pytest.approx(10 * 55 * (1 if is_named else times))
    assert words.keys() == ({"c"} if is_named else set())


def test_a_column_whose_mean_is_near_zero_at_the_median_site_is_not_clipped() -> None:
    rows = dict.fromkeys("abc", 10)
    own = {"a": 0.001, "b": -0.002, "c": 0.6}  # of a column with standard deviation 1
    replies: dict[str, Any] = {}
    for site, mean in own.items():
        means = COLUMNS.clone()
        means[2] = mean
        replies[site] = send_moments(10, means)
        replies[site]["squares"][2] = 10 * (1 + mean**2)
    assert replace_far_means(replies, MOMENTS, rows) == (replies, {})
    replies["c"]["columns"][2] = 1e5
    clipped, words = replace_far_means(replies, MOMENTS, rows)
    assert float(torch.as_tensor(clipped["c"]["columns"])[2]) == pytest.approx(0.01)
    assert words.keys() == {"c"}


def test_features_of_one_unit_are_compared_with_each_other() -> None:
    rows = dict.fromkeys("abc", 10)
    columns = declared(Scaling(is_encoded=True))["columns"]
    replies: dict[str, Any] = {
        site: {"rows": 10.0, "columns": 10 * torch.tensor([0.3, 0.2, mean, 0.1])}
        for site, mean in {"a": 0.001, "b": -0.002, "c": 0.6}.items()
    }
    assert replace_far_means(replies, columns, rows) == (replies, {})
    apart = declared(Scaling())["columns"]  # nothing is known about the size of a column
    assert replace_far_means(replies, apart, rows)[1].keys() == {"c"}
    replies["c"]["columns"][2] = 1e5
    clipped, _ = replace_far_means(replies, columns, rows)
    assert float(torch.as_tensor(clipped["c"]["columns"])[2]) == pytest.approx(0.01)


def test_sums_of_classes_are_not_compared_because_specialists_are_honest() -> None:
    assert declared(ClosedForm())["totals"].wide_fields == set()


@each_of("times, is_named", [(9, False), (18, True), (-18, True)])
def test_a_site_with_columns_18_times_as_large_is_named_and_counts(
    times: float, is_named: bool
) -> None:
    rows = {"a": 100, "b": 120, "c": 80}
    replies: dict[str, Any] = {site: send_moments(n, COLUMNS) for site, n in rows.items()}
    far = COLUMNS * torch.tensor([1.0, 1.0, times, 1.0])
    replies["c"] = send_moments(80, far)
    assert replace_far_means(replies, MOMENTS, rows) == (replies, {})
    words = find_unusual_sizes(replies, MOMENTS, rows)
    sentence = (
        "squares of site c are unusual in 1 columns and count as sent: the root mean square of "
        "column 2 is 12.6, more than 10 times that at the median site, 0.7; check the units of this "
        "column, unless its values are rare at other sites"
    )
    assert words == ({"c": sentence} if is_named else {})


@each_of("method", [Pivotal(), FALE()])
def test_a_site_is_named_whose_sums_over_a_pool_are_unusual(method: Any) -> None:
    totals = declared(method)["totals"]
    check = ResponseCheck(dict.fromkeys("abc", 100), declared={"query": {"totals": totals}})
    asked = {
        site: Request(key_of("0/query/0"), "query", 0, 0, (Step("sum", "totals", {}),))
        for site in "abc"
    }
    # the pool of a is nearly used up
    replies: dict[str, Any] = {
        site: {"rows": float(n), "columns": n * COLUMNS.double()}
        for site, n in {"a": 2, "b": 3, "c": 90}.items()
    }
    assert SiteWeights(check).limit(asked, replies) == (replies, {})
    replies["c"]["columns"] = replies["c"]["columns"] * 18
    counted, words = SiteWeights(check).limit(asked, replies)
    assert counted == replies
    assert words.keys() == {"c"}
    assert "the mean of column 0 is 990, more than 10 times" in words["c"]


def test_a_warning_hides_no_other_of_the_same_site() -> None:
    check = ResponseCheck(
        {"a": 10, "b": 10, "c": 10_000}, declared={"encoder": {"moments": MOMENTS}}
    )
    step = Step("sum", "moments", {})
    asked = {site: Request(key_of("0/query/0"), "encoder", 0, 0, (step,)) for site in "abc"}
    replies: dict[str, Any] = {
        site: send_moments(n, COLUMNS) for site, n in {"a": 10, "b": 10}.items()
    }
    replies["c"] = send_moments(10_000, COLUMNS * 18)
    _, words = SiteWeights(check).limit(asked, replies)
    assert "are unusual in 3 columns" in words["c"]
    assert "the weight of site c" in words["c"]


def test_status_log_and_report_name_the_site_and_exchange_of_unusual_columns(
    tmp_path: Path,
) -> None:
    config = ExperimentConfig(
        "hospitals",
        model=Spec("linear"),
        training=Spec("closed-form", {"shown": "parts"}),
        encoder=Spec("fourier", {"features": 32}),
        strategy=Spec("random"),
        initial=8,
        cycles=0,
        rounds=1,
        score_rounds=1,
    )
    simulation = at_real_sites(tmp_path, config, rows(NAMES[:3]))

    def change(key: str, reply: dict[str, Any]) -> dict[str, Any]:
        if {"columns", "squares"} <= reply.keys():
            reply["columns"] = reply["columns"] * 18
            reply["squares"] = reply["squares"] * 324
        return reply

    turn(simulation, NAMES[2], change)
    assert simulation.program(pages=True).go()
    (event,) = simulation.list_events("weighed")
    assert event["site"] == NAMES[2]
    assert f"squares of site {NAMES[2]} are unusual" in event["reason"]
    line = describe_event(event, simulation.agreement)
    assert line == f"{event['key']}: {event['reason']}"
    assert find_level(event) == "WARNING"
    folder = simulation.coordinator_folder
    live = read_live(folder)
    assert live is not None
    (noted,) = live["refusals"] or []
    expected = (NAMES[2], event["key"], event["reason"])
    assert (noted["site"], noted["exchange"], noted["reason"]) == expected
    console = Console(width=500, record=True, file=StringIO())
    state: Any = {**live, "digest": "", "description": [], "hidden": None}
    show(console, state)
    assert f"{NAMES[2]} {event['key']}: {event['reason']}" in console.export_text()
    state["hidden"] = HIDDEN
    show(console, state)
    assert HIDDEN in console.export_text()
    page = (folder / "report.html").read_text()
    assert "Replies that were refused, limited or unusual" in page
    assert f">{event['key']}</td>" in page
    simulation.close()


def test_a_site_with_wrong_sums_of_columns_does_not_change_the_accuracy(
    tmp_path: Path,
) -> None:
    config = ExperimentConfig(
        "hospitals",
        model=Spec("linear"),
        training=Spec("closed-form", {"shown": "parts"}),
        encoder=Spec("identity"),
        strategy=Spec("random"),
        initial=8,
        cycles=0,
        rounds=1,
        score_rounds=1,
    )

    def run(folder: Path, *, is_hostile: bool) -> float:
        simulation = at_real_sites(folder, config, rows(NAMES[:3]))
        if is_hostile:

            def change(key: str, reply: dict[str, Any]) -> dict[str, Any]:
                if "columns" in reply:
                    reply["columns"] = torch.full_like(reply["columns"], 1e5)
                return reply

            turn(simulation, NAMES[2], change)
        assert simulation.program().go()
        weighed = {event["site"] for event in simulation.list_events("weighed")}
        assert weighed == ({NAMES[2]} if is_hostile else set())
        simulation.close()
        accuracy: float = simulation.records()[-1]["accuracy"]
        return accuracy

    honest = run(tmp_path / "honest", is_hostile=False)
    assert honest > 0.6
    assert run(tmp_path / "hostile", is_hostile=True) == pytest.approx(honest, abs=0.02)


def test_a_clipped_mean_is_said_and_the_study_goes_on() -> None:
    check = ResponseCheck(
        dict.fromkeys("abc", 10), declared={"encoder": {"moments": MOMENTS}}
    )
    step = Step("sum", "moments", {})
    asked = {site: Request(key_of("0/query/0"), "encoder", 0, 0, (step,)) for site in "abc"}
    replies: dict[str, Any] = {site: send_moments(10, COLUMNS) for site in "abc"}
    replies["c"]["columns"][0] = -1e7
    counted, words = SiteWeights(check).limit(asked, replies)
    assert float(torch.as_tensor(counted["c"]["columns"])[0]) == pytest.approx(10 * 55)
    assert words.keys() == {"c"}


# -- values that a site reports about itself -----------------------------------------------

HELLO = {
    **{"rows": 9, "test": 4, "labeled": 2, "validation": 1, "pool": 6},
    **{"schema": "digest", "fallow": "0", "seal": torch.zeros(32, dtype=torch.uint8)},
}
CLOSE = {"asked": 3, "answered": 2, "declined": 1, "labeled": 4, "validation": 0, "pool": 5}
SCORE = {
    **{"rows": 4.0, "hits": 3.0},
    **{"class_rows": torch.tensor([2.0, 2.0]), "class_hits": torch.tensor([2.0, 1.0])},
}


PEOPLE = {
    "hello": "0/hello/0",
    "ask": "0/query/ask/0",
    "close": "0/query/close/0",
    "score": "0/train/1/score/0",
}


def people(function: str) -> Request:
    return Request(
        key_of(PEOPLE[function]), "annotators", 0, 0, (Step("each", function, {}),)
    )


KNOWN = ResponseCheck(
    {"a": 9},
    labels={"a": 4},
    declared={"annotators": declared(Annotators(schema="digest"))},
)
KNOWN.note(TESTS, {"a": 4})
KNOWN.note(ALLOWED, {"a": 3})


@pytest.mark.parametrize(
    ("function", "reply"), [("hello", HELLO), ("close", CLOSE), ("score", SCORE)]
)
def test_honest_counts_are_taken(function: str, reply: dict[str, Any]) -> None:
    assert KNOWN.check("a", people(function), reply).keys() == reply.keys()


@pytest.mark.parametrize(
    ("function", "reply", "why"),
    [
        ("hello", {**HELLO, "schema": "other"}, "schema is 'other' and not 'digest'"),
        ("ask", {"asked": 4}, "asked is 4, but 3 labeling tasks are permitted"),
        (
            "close",
            {**CLOSE, "asked": 4},
            "asked is 4, .* but 3 labeling tasks were permitted",
        ),
        ("score", {**SCORE, "rows": 3.0}, "rows is 3, but the site has 4 test examples"),
    ],
)
def test_counts_are_compared_with_what_a_site_registered_and_was_asked_for(
    function: str, reply: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        KNOWN.check("a", people(function), reply)


def test_more_answers_than_questions_are_no_progress() -> None:
    honest = {"asked": 3, "answered": 2, "declined": 0, "open": 1, "conflicts": 0}
    assert KNOWN.check_progress("a", honest) == honest
    with pytest.raises(ValueError, match="are 4 together, but asked is 3"):
        KNOWN.check_progress("a", {**honest, "declined": 1})


def test_a_site_that_claims_far_more_rows_than_the_others_does_not_count() -> None:
    instructions = dict.fromkeys("abc", people("hello"))
    replies: dict[str, Any] = {site: {**HELLO, "rows": 9} for site in "abc"}
    replies["b"] = {**HELLO, "rows": 10**9}
    refused = SiteWeights(KNOWN).find_outliers(instructions, replies)
    assert refused.keys() == {"b"}
    assert "rows is 1e+09, more than 1000 times the median site" in refused["b"]


def test_a_shared_budget_is_never_asked_for_twice() -> None:
    instructions = dict.fromkeys("abc", people("ask"))
    replies: dict[str, Any] = {"a": {"asked": 3}, "b": {"asked": 10}, "c": {"asked": 4}}
    shared = SiteWeights(KNOWN, shared=10)
    assert shared.find_outliers(instructions, replies).keys() == {"b"}
    assert SiteWeights(KNOWN).find_outliers(instructions, replies) == {}


def test_an_error_far_beyond_the_others_is_no_score() -> None:
    details = dict.fromkeys("abc", people("score"))
    replies: dict[str, Any] = {site: {"rows": 4.0, "squares": 2.0} for site in "abc"}
    replies["c"] = {"rows": 4.0, "squares": 1e300}
    assert SiteWeights(KNOWN).find_outliers(details, replies).keys() == {"c"}


# -- agreement -----------------------------------------------------------------------------


def test_bounds_that_nobody_changed_keep_the_digest_of_an_agreement() -> None:
    usual = agreement("strategy=entropy")
    assert usual.digest == replace(usual, bounds=Bounds()).digest
    assert usual.digest != replace(usual, bounds=Bounds(farthest=5.0)).digest


@pytest.mark.parametrize(
    "wrong", [{"farthest": 0.5}, {"largest_share": 0.0}, {"largest_ratio": 0.0}]
)
def test_bounds_that_cannot_be_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"federation.{next(iter(wrong))} is"):
        Bounds(**wrong)


# -- whole study ---------------------------------------------------------------------------


@pytest.mark.long
def test_a_study_ends_well_with_a_site_whose_model_is_infinite_in_float32(
    tmp_path: Path,
) -> None:
    simulation = tiny(tmp_path, waits=ONE_AWAY)

    def poison(key: str, reply: dict[str, Any]) -> dict[str, Any]:
        return {**reply, "w": reply["w"] * 0 + 5e40} if "w" in reply else reply

    turn(simulation, "chur", poison)
    assert simulation.program().go()
    assert simulation.records()[-1]["accuracy"] is not None
    assert {event["site"] for event in simulation.list_events("refused")} == {"chur"}
