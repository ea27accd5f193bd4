"""Authentication of public keys in secure aggregation: sites sign and verify them.

The coordinator forwards the public keys of a sum. Each key has a signature by the identity key of
its site over the study, the run, the exchange and the attempt. The coordinator can therefore not
replace a key by its own or by a key of another sum.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fallow.core.messages import KEYS, Masked, Request
from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.privacy.signing import SIGNATURE, open_signed, sign
from fallow.transport.envelope import Order
from fallow.transport.relays import PROOFS, bytes_to_tensor, tensor_to_bytes

SIGNED = "#signed"
"""Reserved field of a reply with a public key: its signature."""
PURPOSE = "fallow sum key 1"
"""First line of the signed text, which distinguishes it from other messages."""
IDENTITY = 32  # size in bytes


def find_shown(request: Request) -> Masked | None:
    """Return the sum for which a site is asked for its public key, or None."""
    step = request.steps[-1]
    if step.verb == KEYS and step.kind == "each":
        return step.masked
    return None


def sign_sum_key(
    secret: bytes, order: Order, site: SiteId, about: Masked, key: object
) -> Tensor:
    """Return the signature, (64,) uint8, of ``site``'s public key for a sum."""
    statement = _state(order.study, order.run, site, about, key)
    return bytes_to_tensor(sign(secret, statement)[:SIGNATURE])


def check_sum_key(
    public: bytes,
    signature: bytes,
    *,
    study: str,
    run: str,
    site: SiteId,
    about: Masked,
    key: object,
) -> None:
    """Verify the signature of ``site``'s public key for a sum with the identity key ``public``.

    Raises Refusal for an invalid signature.
    """
    statement = _state(study, run, site, about, key)
    try:
        if len(signature) != SIGNATURE:
            raise ValueError("it has another length")
        open_signed(public, signature + statement, f"site {site}")
    except ValueError as error:
        raise Refusal(
            f"the public key of site {site} for attempt {about.attempt} at {about.exchange} is not "
            "signed by that site: it was changed on its way, or is of another sum"
        ) from error


def join_proofs(
    identities: Mapping[SiteId, bytes], signatures: Mapping[SiteId, str]
) -> dict[SiteId, Tensor]:
    """Return the fields of an instruction for mutual verification of public keys.

    ``signatures`` are hexadecimal.
    """
    proofs: dict[SiteId, Tensor] = {}
    for site, signature in sorted(signatures.items()):
        proofs[site] = bytes_to_tensor(identities[site] + bytes.fromhex(signature))
    return proofs


def check_proofs(order: Order, about: Masked) -> dict[SiteId, bytes]:
    """Return the identity keys of the other sites of a sum after verifying their signatures.

    Raises Refusal for a missing or invalid signature.
    """
    proofs = order.body.get(PROOFS)
    if not isinstance(proofs, dict):
        proofs = {}
    identities: dict[SiteId, bytes] = {}
    for site, key in sorted(about.keys.items()):
        if site == order.site:
            continue
        proof = b""
        if site in proofs:
            proof = tensor_to_bytes(proofs[site], f"the proof of site {site}")
        if len(proof) != IDENTITY + SIGNATURE:
            raise Refusal(
                f"the order {order.key} has a public key of site {site} without a signature: masks "
                "with it could be taken off by the coordinator"
            )
        identities[site] = proof[:IDENTITY]
        check_sum_key(
            proof[:IDENTITY],
            proof[IDENTITY:],
            study=order.study,
            run=order.run,
            site=site,
            about=about,
            key=key,
        )
    return identities


def _state(study: str, run: str, site: SiteId, about: Masked, key: object) -> bytes:
    shown = tensor_to_bytes(key, f"the public key of site {site}")
    lines = (PURPOSE, study, run, site, about.exchange, str(about.attempt), shown.hex())
    return "\n".join(lines).encode()
