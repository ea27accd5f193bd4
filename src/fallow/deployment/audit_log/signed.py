"""Signing and verification of audit logs.

``manifest.json`` has the SHA-256 hash of each file. ``manifest.sig`` is the Ed25519 signature of its
bytes (64 bytes), which standard tools can verify. The signed content starts with `BEGINNING`, so that
it cannot be confused with a message of a party.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field, ValidationError
from typing_extensions import TypedDict

from fallow.core.refusal import explain_errors
from fallow.deployment.audit_log.entries import Role, name_party, read_audit_log
from fallow.deployment.audit_log.files import PAGE, TABLE, render_files
from fallow.deployment.folders import private_folder
from fallow.deployment.joining import parse_joining
from fallow.deployment.ledger.labeling_tasks import now
from fallow.deployment.received import read_toml
from fallow.experiment.methods import versions
from fallow.privacy.signing import SIGNATURE, decode_key, open_signed, sign
from fallow.storage.errors import StorageError
from fallow.storage.files import write_whole
from fallow.storage.received import read_regular
from fallow.storage.validation import Count, adapter_of

MANIFEST = "manifest.json"
SIGNED = "manifest.sig"
FILES = (PAGE, TABLE)
BEGINNING = b'{"fallow audit": 1,'
"""Prefix of the signed content. Messages and HTTPS requests have other prefixes."""
LARGEST = 1 << 30  # largest size of a file in bytes
AGAIN = "ask the party for its audit log again"


class AuditSummary(TypedDict):
    """Party, study and time of an audit log."""

    role: Annotated[Role, Field(description="role of the party")]
    party: Annotated[str, Field(description="name of the party", examples=["basel"])]
    study: Annotated[str, Field(description="name of the study")]
    digest: Annotated[str, Field(description="fingerprint of the study agreement")]
    key: Annotated[str, Field(description="public key of the party, in base64")]
    made: Annotated[str, Field(description="time of the signature, in UTC")]
    fallow: Annotated[str, Field(description="version of Fallow that wrote it")]
    entries: Annotated[Count, Field(description="number of entries")]


class WrittenAudit(AuditSummary):
    """Audit log that was written."""

    folder: Annotated[str, Field(description="folder of its files")]


class Manifest(AuditSummary):
    """Signed manifest. ``files`` has the SHA-256 hash of all `FILES` by name."""

    files: dict[str, str]


@dataclass(frozen=True)
class VerifiedAudit:
    """Result of a verification. ``faults`` has a sentence for each file that differs."""

    summary: AuditSummary
    faults: Sequence[str]


@dataclass(frozen=True)
class PublicKey:
    """Public key of a party. ``study`` is the digest of its study, if the file has it."""

    key: bytes
    role: Role
    name: str
    study: str | None = None


def write_audit(folder: Path, out: Path) -> WrittenAudit:
    """Write the audit log of a party's folder into the folder ``out``.

    Raises ValueError if ``folder`` or ``out`` is not suitable, and StorageError if the ledger was
    changed or ``out`` is not writable.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give the name of a folder")
    trail, secret = read_audit_log(folder)
    summary: AuditSummary = {
        "role": trail.role,
        "party": trail.party,
        "study": trail.study,
        "digest": trail.digest,
        "key": b64encode(trail.key).decode(),
        "made": now(),
        "fallow": versions()["fallow"],
        "entries": len(trail.entries),
    }
    files = render_files(trail, summary)
    sums = {name: _hash(content) for name, content in files.items()}
    manifest = json.dumps({"fallow audit": 1, **summary, "files": sums}).encode()
    if not out.exists():  # an existing folder may be shared on purpose
        private_folder(out)
    for name, content in files.items():
        write_whole(out / name, content)
    write_whole(out / MANIFEST, manifest)
    write_whole(out / SIGNED, sign(secret, manifest)[:SIGNATURE])
    return {**summary, "folder": str(out)}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -- checking -------------------------------------------------------------------------------


def read_key(file: Path) -> PublicKey:
    """Return the key in a site's ``join.json``, or that of the coordinator in ``study.toml``.

    Raises ValueError for any other file.
    """
    if file.suffix == ".toml":
        return _read_key_of_coordinator(file)
    return _read_key_of_site(file)


def _read_key_of_site(file: Path) -> PublicKey:
    details = parse_joining(file)
    verify = decode_key(details["verify"], f"{file}: verify", AGAIN)
    return PublicKey(verify, role="site", name=details["name"], study=details["study"])


def _read_key_of_coordinator(file: Path) -> PublicKey:
    toml = read_toml(file, "give the study.toml of the agreement")
    section = toml.get("federation")
    if not isinstance(section, dict) or "coordinator" not in section:
        raise ValueError(
            f"{file} names no coordinator: give the study.toml of the agreement"
        )
    key = decode_key(str(section["coordinator"]), f"{file}: federation.coordinator", AGAIN)
    return PublicKey(key, role="coordinator", name="coordinator")


def verify_audit(folder: Path, public: PublicKey) -> VerifiedAudit:
    """Compare the files of an audit log with the signed manifest.

    The manifest is parsed only after its signature has been verified with ``public``. Raises
    ValueError if the signature is wrong or the manifest names another party. A file that differs is
    reported in ``faults``.
    """
    manifest = _read_manifest(folder, public)
    if (manifest["role"], manifest["party"]) != (public.role, public.name):
        says = name_party(manifest["role"], manifest["party"])
        raise ValueError(
            f"{folder} is the audit log of {says}, but the key is that of "
            f"{name_party(public.role, public.name)}"
        )
    if public.study is not None and public.study != manifest["digest"]:
        raise ValueError(
            f"{folder} is of study {manifest['digest']}, but the key is for study "
            f"{public.study}"
        )
    faults: list[str] = []
    for name in FILES:
        fault = _compare(folder / name, manifest["files"][name])
        if fault is not None:
            faults.append(fault)
    summary = {name: manifest[name] for name in AuditSummary.__annotations__}  # type: ignore[literal-required]
    return VerifiedAudit(cast(AuditSummary, summary), faults)


def _read_manifest(folder: Path, public: PublicKey) -> Manifest:
    content = _read(folder / MANIFEST)
    signature = _read(folder / SIGNED)
    try:
        if len(signature) != SIGNATURE or not content.startswith(BEGINNING):
            raise ValueError
        open_signed(public.key, signature + content, "the party")
    except ValueError as error:
        raise ValueError(
            f"{folder / MANIFEST} was not signed by the owner of that key: it was "
            f"changed, or is from another party; {AGAIN}, and for its key through "
            "another channel"
        ) from error
    try:
        manifest: Manifest = adapter_of(Manifest).validate_json(content, strict=True)
        _ = [manifest["files"][name] for name in FILES]
    except (ValidationError, KeyError) as error:  # a signed manifest may be malformed
        raise ValueError(
            f"{folder / MANIFEST} was signed by the owner of that key, but is not "
            f"the manifest of an audit log: {AGAIN}"
        ) from error
    return manifest


def _compare(file: Path, signed: str) -> str | None:
    """Return how a file differs from the signed one in a sentence, or None."""
    if not file.is_file():
        return f"{file.name} is missing"
    if _hash(_read(file)) != signed:
        return f"{file.name} differs from the signed one"
    return None


def _read(file: Path) -> bytes:
    """Read a file of an audit log. Raises StorageError if it is unreadable or too large."""
    with explain_errors(
        f"{file} cannot be read (", after=f"): {AGAIN}", of=OSError, to=StorageError
    ):
        return read_regular(file, LARGEST)
