import torch

from fallow.core import stream
from fallow.queries.parts import Features, k_means_pp


def test_the_first_pick_is_the_longest_row():
    x = torch.tensor([[1.0], [-5.0], [2.0]])
    assert k_means_pp(Features.of(x), 1, stream(0, "x")).tolist() == [1]


def test_draws_are_in_proportion_to_squared_distance():
    x = torch.tensor([[10.0], [9.0], [8.0], [7.0]])  # distances to the first: 1, 4, 9 of 14
    second = [int(k_means_pp(Features.of(x), 2, stream(s, "x"))[1]) for s in range(3000)]
    shares = torch.bincount(torch.tensor(second), minlength=4) / 3000
    assert (shares - torch.tensor([0, 1, 4, 9]) / 14).abs().max() < 0.03


def test_rows_that_are_all_equal_are_drawn_uniformly_and_once():
    x = torch.ones(6, 3)
    assert sorted(k_means_pp(Features.of(x), 6, stream(0, "x")).tolist()) == list(range(6))
    second = [int(k_means_pp(Features.of(x), 2, stream(s, "x"))[1]) for s in range(1000)]
    assert torch.bincount(torch.tensor(second), minlength=6)[1:].min() > 150


def test_duplicates_of_a_pick_are_left_while_others_are_there():
    x = torch.tensor([[5.0], [5.0], [1.0], [5.0]])
    assert all(2 in k_means_pp(Features.of(x), 2, stream(s, "x")).tolist() for s in range(50))


def test_nothing_asked_or_nothing_there_is_nothing():
    assert len(k_means_pp(Features.of(torch.ones(3, 2)), 0, stream(0, "x"))) == 0
    assert len(k_means_pp(Features.of(torch.ones(0, 2)), 3, stream(0, "x"))) == 0
