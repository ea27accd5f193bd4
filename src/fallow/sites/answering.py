"""How a site answers: a verb is run on a view of it, and what its kind allows leaves."""

from __future__ import annotations

import torch

from fallow.core.messages import Request, Step
from fallow.core.methods import site_function
from fallow.core.refusal import Refusal
from fallow.core.types import Answer
from fallow.core.view import Picks, Release
from fallow.sites.site import Site
from fallow.sites.view import SiteView


def answer_step(site: Site, step: Step, request: Request) -> Answer:
    """Run a verb and let out exactly what its kind allows, behind noise and masks."""
    if step.masked is not None and step.kind == "each":
        return site.guard.public_key(step.masked)
    method = site.method(request.owner)
    why = method.contract.refusal(step.verb, step.kind)
    if why:
        raise Refusal(f"site {site.id} does not answer {step.verb!r} by {step.kind}: {why}")
    if step.kind == "keep" and "n" in step.args and len(site.pool) == 0:
        return {"count": 0}  # nothing to pick from, once for all strategies
    site.guard.check(step)
    build_view = site.parts.view or SiteView
    view = build_view(site, request.cycle, method.contract.simulator_only)
    try:
        result = site_function(method, step.verb)(view, **step.args)
    except Exception as error:
        raise RuntimeError(
            f"{type(method).__name__}.{step.verb} failed at site {site.id} in cycle "
            f"{request.cycle}, round {request.round}: {error}"
        ) from error
    if isinstance(result, Picks):
        return _keep_picks(site, step, result)
    if step.kind != "keep":
        return site.guard.protect(step, request, result)
    if isinstance(result, Release):
        result = result.post(result.counts)
    state = {name: torch.as_tensor(value) for name, value in result.items()}
    site.remember(step.verb, state)
    return {"count": len(state)}


def _keep_picks(site: Site, step: Step, picks: Picks) -> Answer:
    if step.kind != "keep":
        raise ValueError(f"{step.verb!r} picks rows, so it must be asked with keep")
    wanted = int(step.args.get("n", len(picks.rows)))  # type: ignore[arg-type]
    pool = site.pool
    picks.check(len(pool), min(wanted, len(pool)))
    state = {"rows": pool[picks.rows]}
    for name in ("weight", "probability", "score"):
        values = getattr(picks, name)
        if values is not None:
            state[name] = values
    site.remember("picks", state)
    return {"count": len(picks.rows)}
