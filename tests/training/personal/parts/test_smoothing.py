"""Smoothing of gains over several choices of collaborators."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from fallow.training.personal.parts.greedy import add, begin, decide, ggc, remember_gains
from tests.training.personal.parts.test_greedy import F64, at, near


def test_gains_of_earlier_choices_count_beside_this_one() -> None:
    own = at(0.0)
    peers = [at(3.0)]
    one = torch.tensor([0])
    smoothed = []
    for past in (
        None,
        torch.tensor([[[9.0, 0.0]]], dtype=F64),
        torch.full((2, 1, 2), torch.nan),
    ):
        g = begin(own, one, torch.tensor([0.75], dtype=F64), 1, past)
        g = decide(add(g, peers), own, peers, near)
        smoothed.append(bool(g.chosen))
        assert_close(g.gains, torch.tensor([[0.0, 2.25]], dtype=F64))  # of this choice only
    assert smoothed == [False, True, False]  # (0 + 9) / 2 against (2.25 + 0) / 2: 0.8


def test_what_is_remembered_is_of_those_who_were_chosen_last() -> None:
    g = ggc(
        at(2),
        [at(-2), at(5)],
        near,
        torch.tensor([0, 1]),
        torch.tensor([0.5, 0.5]).double(),
    )
    assert g.chosen.tolist() == [True, False]
    assert remember_gains(g, 2, 0) is None and remember_gains(g, 3, 2) is None
    past = remember_gains(g, 2, 2)
    assert past is not None and past.shape == (1, 2, 2)
    assert torch.equal(past[0, 0], g.gains[0]) and past[0, 1].isnan().all()
    longer = remember_gains(g._replace(past=torch.cat([past, past])), 2, 2)
    assert longer is not None and longer.shape == (2, 2, 2)
