import torch

from fallow.core import stream
from fallow.queries import CoreSet
from tests.worlds import Table, tables, world


def features(site):
    return torch.cat([site.local, site.common], 1)  # the embedding of a linear model is its input


def test_each_pick_is_farthest_from_all_labelled_and_picked_rows():
    site = tables()["a"]
    federation = world({"a": site}, CoreSet())
    x, member = features(site), federation.members["a"]
    centres = list(member.x[member.labelled])
    for row in federation.picks(6)["a"]:
        distance = torch.cdist(x, torch.stack(centres)).amin(1)
        assert int(distance.argmax()) == row
        centres.append(x[row])


def test_a_site_without_labels_starts_in_the_middle_of_its_pool():
    site = Table(*(tables()["a"].__dict__[k] for k in ("local", "common")))
    x = features(site)
    middle = int((x - x.mean(0)).norm(dim=1).argmin())
    assert world({"a": site}, CoreSet()).picks(3)["a"][0] == middle


def test_duplicates_of_labelled_rows_come_last():
    draw = stream(0, "core-set")
    rows = torch.randn(6, 3, generator=draw, dtype=torch.float64)
    twice = torch.cat([rows, rows])
    picks = world({"a": Table(twice, twice, [0, 1, 2])}, CoreSet()).picks(6)["a"]
    assert len({row % 6 for row in picks}) == 6
