"""Identification of local training: its step, and the names of its random streams."""

from __future__ import annotations

import torch

from fallow.core.messages import Request, Step
from fallow.core.streams import stream
from fallow.core.types import SiteId


def named_stream(
    seed: int, site: SiteId, name: tuple[str | int, ...], purpose: str, *more: int
) -> torch.Generator:
    """Return the random stream of one purpose in a fit; a plain function, so that it can be
    pickled."""
    return stream(seed, purpose, *name, *more, site)


def is_main(step: Step, request: Request) -> bool:
    """Return whether a fit trains the main model of the training algorithm."""
    return request.owner == "training" and step.verb == "local"
