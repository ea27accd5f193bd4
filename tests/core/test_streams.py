import torch

from fallow.core.streams import seed_of, stream


def test_a_stream_depends_on_its_name_alone() -> None:
    first = torch.rand(3, generator=stream(7, "select", 2, "north"))
    torch.rand(5, generator=stream(7, "other"))
    assert torch.equal(first, torch.rand(3, generator=stream(7, "select", 2, "north")))


def test_names_with_the_same_letters_are_different_streams() -> None:
    names = [("a", "b"), ("ab",), ("a", "b", ""), ("b", "a"), ("a", 1), ("a", "1"), ("a1",)]
    assert len({seed_of(0, *name) for name in names}) == len(names)


def test_seeds_are_different_runs() -> None:
    assert seed_of(0, "x") != seed_of(1, "x")


def test_seeds_fit_a_generator() -> None:
    assert all(0 <= seed_of(s, "x") < 2**63 for s in range(200))
