"""Validation of the ``join.json`` files by which sites join a study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from fallow.core.refusal import explain_errors
from fallow.core.suggestions import require_known
from fallow.core.types import SiteId
from fallow.deployment.agreement import Agreement
from fallow.deployment.received import check_texts, read_bytes
from fallow.privacy.masks import is_usable
from fallow.privacy.signing import decode_key, decode_text
from fallow.storage.received import parse_json
from fallow.storage.validation import find_error
from fallow.transport.sum_keys import is_seal_signed


@with_config(ConfigDict(strict=True, extra="ignore"))
class Joining(TypedDict):
    """Content of ``join.json``: public keys of a site in base64, and their signature."""

    name: str
    study: str
    verify: str
    seal: str
    seal_signature: str
    transport_key: str


JOINING = tuple(Joining.__annotations__)
OWN = ("verify", "seal", "transport_key")
"""Keys that no two sites may share; a transport may have none ('')."""
ASK = "ask for the file again"


def parse_joining(file: Path) -> dict[str, str]:
    """Return the fields of a ``join.json``. Raises ValueError for any other file."""
    content = read_bytes(file, "give the join.json of a site")
    with explain_errors(
        f"{file} is not the join.json of a site, which 'fallow site init' writes: ",
        after=f"; {ASK}",
    ):
        with explain_errors("it is not JSON: "):
            joining: Any = parse_json(content)  # checked below
        why = find_error(Joining, joining)
        if why is not None:
            raise ValueError(why)
        details = {name: joining[name] for name in JOINING}
        check_texts(details)
    return details


def read_joining(file: Path, agreement: Agreement) -> dict[str, str]:
    """Read and validate a site's ``join.json``.

    Raises ValueError that names the file and the problem.
    """
    details = parse_joining(file)
    site = details["name"]
    require_known(
        site, agreement.sites, f"{file} is of {site!r}, which is not a site of this study"
    )
    if details["study"] != agreement.digest:
        raise ValueError(
            f"{file} is for another version of the study: send {site} this "
            f"study.toml, {agreement.digest}, to create its folder with"
        )
    decode_key(details["verify"], f"{file}: verify", ASK)
    if not is_usable(decode_text(details["seal"])):
        raise ValueError(f"{file}: seal is a key that cannot encrypt; {ASK}")
    with explain_errors(f"{file}: transport_key ", after=f"; {ASK}"):
        agreement.transport_factory.check_key(details["transport_key"])
    return details


def fingerprint(details: Mapping[str, str]) -> str:
    """Return 32 hexadecimal digits of a site's name, study and public keys for verification."""
    output = json.dumps([details[name] for name in JOINING])
    return hashlib.blake2b(output.encode(), digest_size=16).hexdigest()


def check_own(
    file: Path, details: Mapping[str, str], known: Mapping[SiteId, Mapping[str, str]]
) -> None:
    """Raise ValueError if the keys belong to another site."""
    for site, other in known.items():
        if site == details["name"]:
            continue
        if any(details[kind] and other[kind] == details[kind] for kind in OWN):
            raise ValueError(
                f"{file} has the keys of {site}: {details['name']} must create its "
                "own keys with 'fallow site init' in a new folder; do not copy a "
                "folder"
            )


def check_seal(file: Path, details: Mapping[str, str]) -> None:
    """Raise ValueError unless the site signed its seal key, which other sites require."""
    is_signed = is_seal_signed(
        public=decode_text(details["verify"]),
        signature=decode_text(details["seal_signature"]),
        study=details["study"],
        site=details["name"],
        key=decode_text(details["seal"]),
    )
    if not is_signed:
        raise ValueError(
            f"{file}: seal is not signed with the key of {details['name']}; {ASK}"
        )
