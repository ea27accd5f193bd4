"""Redundancy of selected examples with the labeled examples of collaborators."""

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
    """Return the mean similarity of selected examples to labeled ones of collaborators.

    Similarity is the largest cosine in the features of the site's own average model.  It accesses
    several sites, so it is only available in simulations.  It is None if no collaborator has
    labels.
    """
    outcome = torch.zeros(0)
    for site in world.members.values():
        if "picks" in site.memory:
            outcome = torch.cat([outcome, _nearest(site, world)])
    if not len(outcome):
        return None
    return float(outcome.mean())


def _nearest(site: LocalSite, world: Simulation) -> Tensor:
    """Return the similarity of each selected example of a site, (k,), or (0,) without collaborators."""
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
    """Return normalized features of the site's own average model: (k, ...) -> (k, d)."""
    features, _ = view.look(personal_model(view), x)
    return normalize(features.double(), dim=1)


def collaborators(site: LocalSite) -> list[SiteId]:
    """Return the sites whose models are in the latest average of a site."""
    if not averages_at_site(SiteView(site, 0)):
        return []
    brought = sorted(name for name in site.memory if name.startswith(BROUGHT))
    is_in = site.memory["average"]["peers"].tolist()
    result = []
    for name, is_in_average in zip(brought, is_in, strict=True):
        if is_in_average:
            result.append(name.removeprefix(BROUGHT))
    return result
