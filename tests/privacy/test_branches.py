"""Secure sums inside the branches of a tree: the same bits, and no single part at an edge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.core.tree import Tree
from fallow.network.bytes import Bytes
from fallow.privacy import Privacy, SecureSum
from fallow.privacy.fixed import encode
from fallow.privacy.secure_sum import add_masked
from fallow.sites.in_process import InProcess
from tests.privacy.federation import SECURE, Losing, asking, protected
from tests.worlds import tables

BOUNDED = replace(
    SECURE, bound=1e9
)  # so large that the precision depends on how many sites


def ask_of(
    edges: int, privacy: Privacy = SECURE, sites: int = 9, runtime: Any = InProcess
) -> Any:
    federation = protected(privacy, sites=tables(sites=sites), runtime=runtime)
    ask = asking(federation)
    if edges:
        ask.tree = Tree.of(ask.cohort, edges)
        ask.masking = SecureSum(privacy.bound, ask.tree)
    return ask


@pytest.mark.parametrize("runtime", [InProcess, Bytes])
@pytest.mark.parametrize("privacy", [SECURE, BOUNDED])
@pytest.mark.parametrize("edges", [1, 2, 3])
def test_a_masked_total_is_the_same_bit_for_bit_with_and_without_edges(
    edges: int, privacy: Privacy, runtime: Any
) -> None:
    without = ask_of(0, privacy).sum("plain")
    total = ask_of(edges, privacy, runtime=runtime).sum("plain")
    assert total.keys() == without.keys()
    for name, value in without.items():
        assert total[name].numpy().tobytes() == value.numpy().tobytes()


def test_a_site_hears_the_keys_of_its_branch_alone() -> None:
    ask = ask_of(3)
    carrier = Losing(ask.carrier)
    heard = {}

    class Listening:
        sites = carrier.sites

        def exchange(self, requests: Any, routes: Any = None) -> Any:
            for site, request in requests.items():
                if request.steps[-1].kind == "sum":
                    heard[site] = tuple(sorted(request.steps[-1].masked.keys))
            return carrier.exchange(requests, routes)

    ask.carrier = Listening()
    ask.sum("plain")
    branches = ask.tree.branches(ask.cohort)
    assert {tuple(branch) for branch in branches} == set(heard.values())
    for site, others in heard.items():
        assert site in others and len(others) == 3


def test_an_edge_unmasks_the_total_of_its_branch_and_no_part_of_it() -> None:
    ask = ask_of(3)
    carrier = Losing(ask.carrier)
    ask.carrier = carrier
    ask.sum("plain")
    _, parts = carrier.seen[-1]
    branch = ask.tree.branches(ask.cohort)[0]
    own = {site: parts[site] for site in branch}
    plain = asking(protected(Privacy(), sites=tables(sites=9))).each("plain")
    encoded = [
        encode(site, "plain", "x", torch.as_tensor(plain[site]["x"]), None, 9)
        for site in branch
    ]
    assert torch.equal(add_masked(own, "plain")["x"], torch.stack(encoded).sum(0))
    for site, bare in zip(branch, encoded, strict=True):
        assert not torch.equal(torch.as_tensor(parts[site]["x"]), bare)
    with pytest.raises(RuntimeError, match="do not cancel"):
        add_masked({site: parts[site] for site in branch[:2]}, "plain")


def test_parts_of_another_branch_do_not_cancel_at_an_edge() -> None:
    ask = ask_of(3)
    carrier = Losing(ask.carrier)
    ask.carrier = carrier
    ask.sum("plain")
    _, parts = carrier.seen[-1]
    first, second, _ = ask.tree.branches(ask.cohort)
    mixed = {site: parts[site] for site in (*first[:2], second[0])}
    with pytest.raises(RuntimeError, match="do not cancel"):
        add_masked(mixed, "plain")


def test_a_branch_of_two_is_refused_before_anything_is_sent() -> None:
    ask = ask_of(4, sites=9)
    carrier = Losing(ask.carrier)
    ask.carrier = carrier
    with pytest.raises(RuntimeError, match="has 2 sites left"):
        ask.sum("plain")
    assert carrier.seen == []


def test_when_a_site_falls_silent_all_begins_again_and_its_branch_may_become_too_small() -> (
    None
):
    ask = ask_of(2, sites=9)
    carrier = Losing(ask.carrier, {1: ["b"]})
    ask.carrier = carrier
    total = ask.sum("plain")
    assert float(total["sites"]) == 8
    ask = ask_of(3, sites=9)
    ask.carrier = Losing(ask.carrier, {1: ["b"]})
    with pytest.raises(RuntimeError, match="has 2 sites left"):
        ask.sum("plain")
