"""Results that a site has stored in a step, computed again when an example leaves in between.

A query or round has several exchanges, and a site stores results per example between them, such as
scores of its unlabeled examples.  If an example is withdrawn, or its label is corrected, these
results are of other examples.  The site then runs the same client functions again, with the same
arguments, before it answers.  Models that were trained before stay as they are until the next
training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fallow.core.messages import Request
from fallow.core.types import State
from fallow.sites.site import LocalSite
from fallow.storage.files import digest_of
from fallow.transport.peer_messages import bytes_to_tensor, tensor_to_bytes
from fallow.transport.wire import pack_request, unpack_request

LOG = "stored in step"
"""State at a site: the requests of a step whose results it stores."""
STEP = "step"
"""Field with the name of the step."""
EXAMPLES = "examples"
"""Field with the digest of the examples and labels of which the results are."""


def note_stored(site: LocalSite, request: Request) -> None:
    """Record a request whose result the site has stored."""
    last = request.steps[-1]
    if last.kind != "keep":
        return
    log = _find_log(site, request) or {}
    blob = bytes_to_tensor(pack_request(replace(request, steps=(last,))))
    _remember(site, request, {**log, f"request {len(log):04}": blob})


def repeat_stored(
    site: LocalSite, request: Request, perform: Callable[[Request], object]
) -> None:
    """Compute the stored results of the step again, if they are of other examples or labels."""
    log = _find_log(site, request)
    if log is None or tensor_to_bytes(log[EXAMPLES], EXAMPLES) == _digest(site):
        return
    for name in sorted(log.keys() - {STEP, EXAMPLES}):
        perform(unpack_request(tensor_to_bytes(log[name], name)))
    _remember(site, request, log)


def _find_log(site: LocalSite, request: Request) -> State | None:
    """Return the log of the step of a request; None at its first exchange."""
    log = site.memory.get(LOG)
    if log is None or request.key.turn == 0:
        return None
    if tensor_to_bytes(log[STEP], STEP) != request.key.step_name.encode():
        return None
    return log


def _remember(site: LocalSite, request: Request, log: State) -> None:
    of_now = {
        STEP: bytes_to_tensor(request.key.step_name.encode()),
        EXAMPLES: bytes_to_tensor(_digest(site)),
    }
    site.remember(LOG, {**log, **of_now})


def _digest(site: LocalSite) -> bytes:
    """Return the digest of the examples that have not left, and of their labels."""
    return digest_of({"excluded": site.excluded, "labels": site.values}).encode()
