"""Identification of local training: its step, and the names of its random streams."""

from __future__ import annotations

import torch

from fallow.core.messages import Request, Step
from fallow.core.streams import stream
from fallow.core.types import SiteId


def named_stream(
    seed: int, site: SiteId, name: tuple[str | int, ...], purpose: str, *more: int
) -> torch.Generator:
    """The draws of one purpose in a fit; a plain function, so that it goes to other processes."""
    return stream(seed, purpose, *name, *more, site)


def is_main(step: Step, request: Request) -> bool:
    """Whether a fit makes the model that the training method trains by its own step."""
    return request.owner == "training" and step.verb == "local"
