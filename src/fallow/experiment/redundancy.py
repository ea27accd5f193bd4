"""How much of what a site asks for its collaborators have labeled already."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fallow.core.types import SiteId
from fallow.experiment.environment import Simulation
from fallow.sites import LocalSite
from fallow.sites.view import SiteView
from fallow.strategies.parts.committee import averages_at_site, personal_model

BROUGHT = "model/"


def redundancy(world: Simulation) -> float | None:
    """The mean over all rows that sites have just picked of the largest cosine to a labeled row of
    a collaborator, in the features of the site's own average.

    It looks into several sites at once, so only a simulation has it.  None where no site that
    picked has a collaborator with labels.
    """
    outcome = torch.zeros(0)
    for site in world.members.values():
        if "picks" in site.memory:
            outcome = torch.cat([outcome, _nearest(site, world)])
    if not len(outcome):
        return None
    return float(outcome.mean())


def _nearest(site: LocalSite, world: Simulation) -> Tensor:
    """For each row that a site picked, (k,); (0,) without collaborators."""
    labeled = site.seen[:0]
    for name in collaborators(site):
        other = world.members[name]
        labeled = torch.cat([labeled, other.seen[other.bought]])
    rows = site.memory["picks"]["rows"]
    if len(labeled) == 0 or len(rows) == 0:
        return torch.zeros(0)
    view = SiteView(site, 0)
    picked = _directions(view, site.seen[rows])
    known = _directions(view, labeled)
    return (picked @ known.T).amax(1).float()


def _directions(view: SiteView, x: Tensor) -> Tensor:
    """Features of rows in the site's own average, each of length 1: (k, ...) -> (k, d)."""
    features, _ = view.look(personal_model(view), x)
    return normalize(features.double(), dim=1)


def collaborators(site: LocalSite) -> list[SiteId]:
    """The sites whose models are in the average that a site has made last."""
    if not averages_at_site(SiteView(site, 0)):
        return []
    brought = sorted(name for name in site.memory if name.startswith(BROUGHT))
    is_in = site.memory["average"]["peers"].tolist()
    result = []
    for name, is_in_average in zip(brought, is_in, strict=True):
        if is_in_average:
            result.append(name.removeprefix(BROUGHT))
    return result
