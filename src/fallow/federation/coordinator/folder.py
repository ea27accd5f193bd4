"""The coordinator's folder: the agreement, keys and certificates, who was admitted, and the run."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fallow.core.build import nearest
from fallow.core.types import SiteId
from fallow.federation.agreement import Agreement, Waits, at_sites, read_agreement, write_agreement
from fallow.federation.made import made
from fallow.federation.schema import Schema
from fallow.lab.errors import Failed
from fallow.lab.files import only_one, write_json
from fallow.lab.recipe import Recipe
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.runtimes.flower.certificates import Tls, new_tls
from fallow.runtimes.remote import Keys

KEY = 32  # bytes of each public key of a site
JOINING = ("name", "study", "verify", "seal", "node")


@dataclass(frozen=True)
class Plan:
    """What `CoordinatorFolder.create` makes an agreement of."""

    name: str
    recipe: Recipe
    schema: Schema
    sites: tuple[SiteId, ...]
    seed: int = 0
    waits: Waits = Waits()
    smallest: int = 5

    def agreement(self, key: bytes) -> Agreement:
        """With the coordinator's public key; ValueError for a study that cannot work."""
        sites = tuple(sorted(self.sites))
        recipe = at_sites(self.recipe, self.name, len(sites), self.schema)
        found = Agreement(
            self.name, recipe, self.schema, sites, key, self.seed, self.waits, self.smallest
        )
        made(found)
        return found


@dataclass(frozen=True)
class CoordinatorFolder:
    """What a coordinator works with.  Files are read when they are first asked for."""

    path: Path

    @staticmethod
    def open(path: str | Path) -> CoordinatorFolder:
        """The folder that `create` made; ValueError where there is none."""
        if not (Path(path) / "coordinator.json").exists():
            raise ValueError(
                f"{path} is not the folder of a coordinator; make one with: fallow coordinate init "
                f"{path}"
            )
        return CoordinatorFolder(Path(path))

    @staticmethod
    def create(
        path: str | Path, plan: Plan, address: str = "0.0.0.0:9092", hosts: Sequence[str] = ()
    ) -> CoordinatorFolder:
        """A new folder.  The agreement is checked before anything is written; keys that an earlier
        attempt left are used.

        address: ``host:port`` at which sites reach this machine's Flower; hosts: names and
        addresses by which they call it.  Raises ValueError for a study that cannot work.
        """
        folder = CoordinatorFolder(Path(path))
        if (folder.path / "coordinator.json").exists():
            raise ValueError(f"{path} is the folder of a coordinator already; choose another one")
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"address is {address!r}; give host:port, such as 0.0.0.0:9092")
        agreement = plan.agreement(bytes(KEY))  # what is wrong is said before keys are made
        (folder.path / "keys").mkdir(mode=0o700, parents=True, exist_ok=True)
        if not folder.tls.key.exists():
            new_tls(folder.path / "keys", hosts)
        agreement = plan.agreement(verify_key(folder.secret))
        write_agreement(folder.path / "study.toml", agreement)
        write_json(folder.path / "coordinator.json", {"address": address, "hosts": list(hosts)})
        return folder

    # -- files ------------------------------------------------------------------------------

    @cached_property
    def agreement(self) -> Agreement:
        """The study; ValueError where it names another coordinator than this one."""
        found = read_agreement(self.path / "study.toml")
        if found.coordinator != verify_key(self.secret):
            raise ValueError(
                f"{self.path / 'study.toml'} names the key of another coordinator; restore it, or "
                "restore keys/coordinator.key"
            )
        return found

    @cached_property
    def secret(self) -> bytes:
        """The coordinator's signing key, made when it is first asked for."""
        file = self.path / "keys" / "coordinator.key"
        if not file.exists():
            _write_secret(file, new_signing_key())
        try:
            found = b64decode(file.read_bytes(), validate=False)
        except ValueError:
            found = b""
        if len(found) != KEY:
            raise Failed(
                f"{file} is damaged: restore it from a backup; without it sites do not obey, and a "
                "new study has to be begun"
            )
        return found

    @property
    def tls(self) -> Tls:
        return Tls.in_folder(self.path / "keys")

    @property
    def address(self) -> str:
        return str(json.loads((self.path / "coordinator.json").read_bytes())["address"])

    # -- sites ------------------------------------------------------------------------------

    @property
    def admitted(self) -> dict[SiteId, dict[str, str]]:
        """The public keys of each site, as its ``join.json`` had them."""
        file = self.path / "sites.json"
        if not file.exists():
            return {}
        found: dict[SiteId, dict[str, str]] = json.loads(file.read_bytes())
        return found

    @property
    def missing(self) -> list[SiteId]:
        """Sites of the agreement that were not admitted yet."""
        return [site for site in self.agreement.sites if site not in self.admitted]

    @property
    def keys(self) -> Keys:
        """By which messages are signed and known.  Raises ValueError where a site is missing."""
        if self.missing:
            raise ValueError(
                f"{', '.join(self.missing)} not admitted yet: ask for join.json and run 'fallow "
                f"coordinate admit {self.path} join.json'"
            )
        known = self.admitted
        verify = {site: b64decode(about["verify"]) for site, about in known.items()}
        seals = {site: b64decode(about["seal"]) for site, about in known.items()}
        return Keys(self.secret, verify, seals)

    def admit(self, file: Path, replace: bool = False) -> SiteId:
        """Let a site join by its ``join.json``; its name.

        Raises ValueError for a site or a study that was not agreed on, for keys that are none, and
        for other keys of a site that was admitted, unless ``replace`` says that this is meant.
        """
        about = self._joining(file)
        site = about["name"]
        with only_one(self.path / "sites.lock"):
            known = self.admitted
            if known.get(site, about) != about and not replace:
                raise ValueError(
                    f"{site} was admitted with other keys; make sure by another way, such as a "
                    "telephone, that the new ones are theirs, and give --replace"
                )
            write_json(self.path / "sites.json", dict(sorted((known | {site: about}).items())))
        return site

    def _joining(self, file: Path) -> dict[str, str]:
        try:
            found = json.loads(file.read_bytes())
            about = {name: found[name] for name in JOINING}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{file} is no join.json of a site: 'fallow site init' writes one ({error})"
            ) from error
        if any(not isinstance(value, str) for value in about.values()):
            raise ValueError(f"{file} is no join.json of a site: not all of it is text")
        sites, site = self.agreement.sites, about["name"]
        if site not in sites:
            raise ValueError(
                f"{file} is of {site!r}, which is no site of this study{nearest(site, list(sites))}"
            )
        if about["study"] != self.agreement.digest:
            raise ValueError(
                f"{file} is for another version of the study: send {site} this study.toml, "
                f"{self.agreement.digest}, to make its folder with"
            )
        for name in ("verify", "seal"):
            _check_key(file, name, about[name])
        return about


def _check_key(file: Path, name: str, text: str) -> None:
    try:
        size: Any = len(b64decode(text, validate=True))
    except ValueError:
        size = None
    if size != KEY:
        raise ValueError(f"{file}: {name} is not {KEY} bytes in base64; ask for the file again")


def _write_secret(path: Path, secret: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as handle:
        handle.write(b64encode(secret) + b"\n")
        handle.flush()
        os.fsync(handle.fileno())
