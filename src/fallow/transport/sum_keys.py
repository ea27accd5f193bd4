"""Authentication of public keys that the coordinator forwards: sites sign and verify them.

Each key for secure aggregation has a signature by the identity key of its site over the study, the
run, the exchange and the attempt. The encryption key for peer messages has one over the study. The
coordinator can therefore not replace a key by its own or by another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from fallow.core.messages import KEYS, Masked, Request
from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.privacy.signing import SIGNATURE, open_signed, sign
from fallow.transport.envelope import Instruction
from fallow.transport.peer_messages import PROOFS, bytes_to_tensor, tensor_to_bytes

SIGNED = "#signed"
"""Reserved field of a reply with a public key: its signature."""
PURPOSE = "fallow sum key 1"
SEAL_PURPOSE = "fallow seal key 1"
"""First lines of the signed texts, which distinguish them from other messages."""
IDENTITY = 32  # size in bytes


def find_shown(request: Request) -> Masked | None:
    """Return the aggregation for which a site is asked for its public key, or None."""
    step = request.steps[-1]
    if step.function == KEYS and step.kind == "each":
        return step.masked
    return None


def sign_sum_key(
    secret: bytes, instruction: Instruction, site: SiteId, masked: Masked, key: object
) -> Tensor:
    """Return the signature, (64,) uint8, of ``site``'s public key for an aggregation."""
    statement = _state(instruction.study, instruction.run, site, masked, key)
    return bytes_to_tensor(sign(secret, statement)[:SIGNATURE])


def check_sum_key(
    public: bytes,
    signature: bytes,
    *,
    study: str,
    run: str,
    site: SiteId,
    masked: Masked,
    key: object,
) -> None:
    """Verify the signature of ``site``'s public key for an aggregation with its identity key
    ``public``.

    Raises Refusal for an invalid signature.
    """
    statement = _state(study, run, site, masked, key)
    if not _is_signed(public, signature, statement):
        raise Refusal(
            f"the public key of site {site} for attempt {masked.attempt} at "
            f"{masked.exchange} is not signed by that site: it was changed in "
            "transit, or is for another aggregation"
        )


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


def check_proofs(instruction: Instruction, masked: Masked) -> dict[SiteId, bytes]:
    """Return the identity keys of the other sites of an aggregation after verifying their
    signatures.

    Raises Refusal for a missing or invalid signature.
    """
    identities: dict[SiteId, bytes] = {}
    for site, key in sorted(masked.keys.items()):
        if site == instruction.site:
            continue
        proof = _read_proof(instruction, site)
        if proof is None:
            raise Refusal(
                f"instruction {instruction.key} has a public key of site {site} without a "
                "signature: the coordinator could remove masks made with it"
            )
        identities[site] = proof.identity
        check_sum_key(
            proof.identity,
            proof.signature,
            study=instruction.study,
            run=instruction.run,
            site=site,
            masked=masked,
            key=key,
        )
    return identities


# -- encryption keys of peer messages -----------------------------------------------------------


def sign_seal_key(secret: bytes, study: str, site: SiteId, key: bytes) -> bytes:
    """Return the signature of ``site``'s encryption key in a study."""
    return sign(secret, _state_seal(study, site, key))[:SIGNATURE]


def is_seal_signed(
    public: bytes, signature: bytes, study: str, site: SiteId, key: bytes
) -> bool:
    """Return whether the owner of the identity key ``public`` signed an encryption key."""
    return _is_signed(public, signature, _state_seal(study, site, key))


def check_seal_proofs(
    instruction: Instruction, to: Mapping[SiteId, bytes], own: bytes
) -> dict[SiteId, bytes]:
    """Return the identity keys of the receivers of peer messages after verifying their encryption
    keys.

    ``own`` is the encryption key of the sender, which may be a receiver as well.

    Raises Refusal for a missing or invalid signature.
    """
    identities: dict[SiteId, bytes] = {}
    for site, key in sorted(to.items()):
        if site == instruction.site:
            is_its_own = key == own
        else:
            proof = _read_proof(instruction, site)
            if proof is None:
                raise Refusal(
                    f"instruction {instruction.key} has an encryption key of site {site} "
                    "without a signature: the coordinator could read messages "
                    "encrypted with it"
                )
            identities[site] = proof.identity
            is_its_own = is_seal_signed(
                proof.identity, proof.signature, instruction.study, site, key
            )
        if not is_its_own:
            raise Refusal(
                f"the encryption key of site {site} in instruction {instruction.key} is "
                "not signed by that site: it was replaced, or belongs to another "
                "study"
            )
    return identities


class _Proof(NamedTuple):
    """Proof of a public key: the identity key of its site, and its signature."""

    identity: bytes
    signature: bytes


def _read_proof(instruction: Instruction, site: SiteId) -> _Proof | None:
    """Return the proof in an instruction for a public key of a site, or None."""
    proofs = instruction.body.get(PROOFS)
    if not isinstance(proofs, dict) or site not in proofs:
        return None
    proof = tensor_to_bytes(proofs[site], f"the proof of site {site}")
    if len(proof) != IDENTITY + SIGNATURE:
        return None
    return _Proof(proof[:IDENTITY], proof[IDENTITY:])


def _is_signed(public: bytes, signature: bytes, statement: bytes) -> bool:
    if len(signature) != SIGNATURE:
        return False
    try:
        open_signed(public, signature + statement, "a site")
    except ValueError:
        return False
    return True


def _state_seal(study: str, site: SiteId, key: bytes) -> bytes:
    return "\n".join((SEAL_PURPOSE, study, site, key.hex())).encode()


def _state(study: str, run: str, site: SiteId, masked: Masked, key: object) -> bytes:
    shown = tensor_to_bytes(key, f"the public key of site {site}")
    exchange = str(masked.exchange)
    lines = (PURPOSE, study, run, site, exchange, str(masked.attempt), shown.hex())
    return "\n".join(lines).encode()
