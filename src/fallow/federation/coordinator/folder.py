"""The coordinator's folder: the agreement, keys and certificates, who was admitted, and the run."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fallow.core.names import BUILT_IN, NamePolicy, pin_names
from fallow.core.types import SiteId, Tree
from fallow.federation.address import check_address, check_host, find_bind_problem
from fallow.federation.agreement import Agreement, Waits, at_sites
from fallow.federation.building import build_study
from fallow.federation.folders import check_free, private_folder, read_authority
from fallow.federation.joining import KEY, check_own, read_joining
from fallow.federation.schema import Schema
from fallow.federation.study_file import read_agreement, write_agreement
from fallow.network.gathering import Keys
from fallow.network.links import LINKS, NVFLARE, USUAL, is_loopback
from fallow.network.nvflare import FOLDER, write_job
from fallow.network.tls import Tls, make_server_context, new_tls
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.settings.recipe import Recipe, named_classes
from fallow.storage.errors import Failed
from fallow.storage.files import only_one, unwritable, write_json, write_whole

ABOUT = "coordinator.json"
LEAVING = 20.0
"""Seconds in which the Flower of a coordinator that was killed ends by itself."""


@dataclass(frozen=True)
class StudyPlan:
    """What `CoordinatorFolder.create` makes an agreement of."""

    name: str
    recipe: Recipe
    schema: Schema
    sites: tuple[SiteId, ...]
    seed: int = 0
    waits: Waits = Waits()
    smallest: int = 5
    guideline: str | None = None
    link: str = USUAL

    def agreement(self, key: bytes, authority: str | None = None) -> Agreement:
        """With the coordinator's public key and the certificate of its machine's authority.

        Raises ValueError for a study that cannot work.
        """
        names = self.names
        sites = tuple(sorted(self.sites))
        recipe = at_sites(self.recipe, self.name, len(sites), self.schema)
        result = Agreement(
            name=self.name,
            recipe=recipe,
            schema=self.schema,
            sites=sites,
            coordinator=key,
            seed=self.seed,
            waits=self.waits,
            smallest=self.smallest,
            authority=authority,
            guideline=self.guideline,
            link=self.link,
            names=names,
        )
        build_study(result)
        return result

    @property
    def names(self) -> NamePolicy:
        """Whose classes the agreement may name: those that the recipe names now, in the code that
        is installed now.  Who makes a study chooses that herself.

        Raises ValueError for a class of no installed distribution.
        """
        try:
            return pin_names(list(named_classes(self.recipe).values()))
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error


@dataclass(frozen=True)
class Server:
    """How this machine is known where it serves by itself: over the link ``https``.

    certificate, key: files (PEM) of its certificate, None: one is made.  authority: of that
    certificate, None: one that every system trusts.  clients: the authority of the certificates
    that sites show (mutual TLS), None: they show none.  behind_proxy: HTTPS ends at another program
    of this machine, and no certificate is used.  Paths count from the current directory.
    """

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    clients: Path | None = None
    behind_proxy: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a certificate and its key belong together: give both or none")
        if self.behind_proxy and (self.certificate or self.clients):
            raise ValueError(
                "behind a reverse proxy no certificate is used here: name it there, and leave "
                "--certificate and --clients out"
            )
        if self.authority and not (self.certificate or self.behind_proxy):
            raise ValueError(
                "the authority belongs to a certificate of yours: give --certificate and "
                "--certificate-key, or leave --ca out"
            )

    @property
    def is_own(self) -> bool:
        """Whether Fallow makes the certificate."""
        return self.certificate is None and not self.behind_proxy

    @property
    def about(self) -> dict[str, object]:
        """As ``coordinator.json`` has it; nothing where everything is as usual."""
        files = {
            "certificate": self.certificate,
            "key": self.key,
            "authority": self.authority,
            "clients": self.clients,
        }
        outcome: dict[str, object] = {}
        for name, file in files.items():
            if file is not None:
                outcome[name] = str(file.absolute())
        if self.behind_proxy:
            outcome["behind_proxy"] = True
        return outcome


FILES = ("certificate", "key", "authority", "clients")


def check_server(server: Server, address: str) -> None:
    """Raise ValueError for certificates that cannot be used, and for a server without one that
    other machines could reach."""
    host = address.rpartition(":")[0].strip("[]")
    if server.behind_proxy and not is_loopback(host):
        raise ValueError(
            f"behind a reverse proxy nothing but this machine may reach the coordinator, and "
            f"{address} is open to others: give --address 127.0.0.1:9092"
        )
    for authority in (server.authority, server.clients):
        if authority is not None:
            read_authority(authority)
    if server.certificate is not None and server.key is not None:
        own = Tls(server.certificate, server.certificate, server.key)
        make_server_context(own, server.clients)


@dataclass(frozen=True)
class CoordinatorFolder:
    """What a coordinator works with.  Files are read when they are first asked for."""

    path: Path

    @staticmethod
    def open(path: str | Path) -> CoordinatorFolder:
        """The folder that `create` made; ValueError where there is none."""
        if (Path(path) / "site.toml").exists():
            raise ValueError(
                f"{path} is the folder of a site; give the folder of a coordinator"
            )
        if not (Path(path) / "coordinator.json").exists():
            raise ValueError(
                f"{path} is not the folder of a coordinator; make one with: fallow coordinate init "
                f"{path}"
            )
        return CoordinatorFolder(Path(path))

    @staticmethod
    def create(
        path: str | Path,
        plan: StudyPlan,
        address: str | None = None,
        hosts: Sequence[str] = (),
        server: Server = Server(),
    ) -> CoordinatorFolder:
        """A new folder.  The agreement is checked before anything is written; keys that an earlier
        attempt left are used.

        address: ``host:port`` at which sites reach this machine, None: as usual over the link;
        hosts: names and addresses by which they call it; server: how it is known over the link
        ``https``.  Raises ValueError for a study that cannot work.
        """
        folder = CoordinatorFolder(Path(path))
        check_free(folder.path)
        if address is not None:
            check_address(address, "address")
        for host in hosts:
            check_host(host, "host")
        # errors in the plan are reported before the folder and its keys are made
        plan.agreement(verify_key(new_signing_key()))
        kind = LINKS[plan.link]
        if address is None:
            address = kind.listen
        if server != Server() and not kind.is_plain_https:
            raise ValueError(
                f"over {kind.title}, a certificate is made: leave --certificate, "
                "--certificate-key, --ca, --clients and --behind-proxy out, or choose --link https"
            )
        check_server(server, address)
        private_folder(folder.path)
        folder._make_keys(hosts, server)
        agreed = plan.agreement(verify_key(folder.secret), folder._authority)
        write_agreement(folder.path / "study.toml", agreed)
        about: dict[str, object] = {"address": address, "hosts": list(hosts)}
        about |= server.about
        if agreed.names.allowed:
            about["allow"] = dict(agreed.names.allowed)
        write_json(folder.path / ABOUT, about)
        if plan.link == NVFLARE:
            write_job(folder.path / FOLDER, agreed.digest, agreed.sites, address)
        return folder

    def _make_keys(self, hosts: Sequence[str], server: Server) -> None:
        """The signing key, where an earlier attempt has left none, and certificates for ``hosts``,
        which it may have made for others."""
        own = Tls.in_folder(self.path / "keys")
        private_folder(self.path / "keys")
        try:
            if not self._secret.exists():
                write_whole(self._secret, b64encode(new_signing_key()) + b"\n", mode=0o600)
            for file in (own.authority, own.certificate, own.key):
                file.unlink(missing_ok=True)
            if server.is_own:
                new_tls(self.path / "keys", hosts)
            elif server.authority is not None:
                write_whole(own.authority, read_authority(server.authority))
        except OSError as error:
            raise unwritable(self.path / "keys", error) from error

    # -- files ------------------------------------------------------------------------------

    @cached_property
    def agreement(self) -> Agreement:
        """The study; ValueError where it names another coordinator than this one, or code that is
        not what it was when the study was made."""
        result = read_agreement(self.path / "study.toml", self.names)
        if result.coordinator != verify_key(self.secret):
            raise ValueError(
                f"{self.path / 'study.toml'} names the key of another coordinator; restore it, or "
                "restore keys/coordinator.key"
            )
        return result

    @property
    def names(self) -> NamePolicy:
        """Whose classes study.toml may name here: those that it was made with, by the digests of
        their code, which ``coordinator.json`` has under ``allow``."""
        allowed = self._read(self.path / ABOUT).get("allow")
        if allowed is None:
            return BUILT_IN
        if not isinstance(allowed, dict):
            raise ValueError(f"{self.path / ABOUT}: allow is no table of digests")
        return NamePolicy(allowed=allowed)

    @property
    def _secret(self) -> Path:
        return self.path / "keys" / "coordinator.key"

    @cached_property
    def secret(self) -> bytes:
        """The coordinator's signing key, which `create` made."""
        file = self._secret
        way_out = (
            "restore it from a backup; without it sites do not obey, and a new study has to be "
            "begun"
        )
        if not file.exists():
            raise Failed(f"{file} is missing: {way_out}")
        try:
            result = b64decode(file.read_bytes(), validate=False)
        except ValueError:
            result = b""
        if len(result) != KEY:
            raise Failed(f"{file} is damaged: {way_out}")
        return result

    @property
    def tls(self) -> Tls:
        """The files of certificates by which sites know this machine."""
        own = Tls.in_folder(self.path / "keys")
        server = self.server
        if server.certificate is None or server.key is None:
            return own
        return Tls(own.authority, server.certificate, server.key)

    @property
    def server(self) -> Server:
        """How this machine is known over the link ``https``, from ``coordinator.json``."""
        if not (self.path / ABOUT).exists():  # it is being made
            return Server()
        details = self._read(self.path / ABOUT)
        files = {name: Path(str(details[name])) for name in FILES if name in details}
        return Server(**files, behind_proxy=details.get("behind_proxy") is True)

    @property
    def _authority(self) -> str | None:
        """As `Agreement.authority` has it."""
        file = Tls.in_folder(self.path / "keys").authority
        if not file.exists():
            return None
        return file.read_text().strip()

    @property
    def address(self) -> str:
        """``host:port`` at which sites reach this machine."""
        value = self._read(self.path / ABOUT).get("address")
        return check_address(str(value), f"{self.path / ABOUT}: address")

    def check_machine(self, patience: float = LEAVING) -> None:
        """Raise what would else be found out when the link has started: a certificate that is gone,
        an address that is none of this machine, a port that is in use for longer than so many
        seconds."""
        for file in self._needed:
            if not file.is_file():
                raise Failed(
                    f"{file} is missing: restore it from a backup; sites know this machine by it"
                )
        if self.agreement.authority not in (None, self._authority):
            raise Failed(
                f"{self.tls.authority} is not the certificate that {self.path / 'study.toml'} "
                "names: restore both, or no site takes this machine for the coordinator's"
            )
        host, _, port = self.address.rpartition(":")
        why = find_bind_problem(host.strip("[]"), int(port), patience)
        if why is not None:
            raise ValueError(
                f"{self.path / ABOUT}: this machine cannot listen at {self.address} ({why}); write "
                "an address of its own there, or 0.0.0.0 for all that it has, and a free port, and "
                f"tell the sites ({LINKS[self.agreement.link].setting} in their site.toml)"
            )

    @property
    def _needed(self) -> list[Path]:
        """The files of certificates without which no site takes this machine for the coordinator's."""
        needed: list[Path] = []
        if self.server.is_own or self.agreement.authority is not None:
            needed.append(self.tls.authority)
        if not self.server.behind_proxy:
            needed += [self.tls.certificate, self.tls.key]
        if self.server.clients is not None:
            needed.append(self.server.clients)
        return needed

    @staticmethod
    def _read(file: Path) -> Tree:
        """A file of this folder with an object of JSON in it."""
        try:
            result = json.loads(file.read_bytes())
        except (OSError, ValueError):
            result = None
        if not isinstance(result, dict):
            raise Failed(f"{file} is missing or damaged: restore it from a backup")
        return result

    # -- sites ------------------------------------------------------------------------------

    @property
    def admitted(self) -> dict[SiteId, dict[str, str]]:
        """The public keys of each site, as its ``join.json`` had them."""
        file = self.path / "sites.json"
        if not file.exists():
            return {}
        return self._read(file)

    @property
    def missing(self) -> list[SiteId]:
        """Sites of the agreement that were not admitted yet."""
        return [site for site in self.agreement.sites if site not in self.admitted]

    @property
    def keys(self) -> Keys:
        """By which messages are signed and known.  Raises ValueError where a site is missing, or
        has joined another study."""
        known = self.admitted
        other: list[SiteId] = []  # those that joined another study
        for site, details in known.items():
            if details["study"] != self.agreement.digest:
                other.append(site)
        if other:
            raise ValueError(
                f"{self.path / 'study.toml'} has changed since {', '.join(other)} joined: put the "
                "old file back (lengths of time and limits of columns may change), or the version of "
                "Fallow if that has changed since, or have the sites join anew"
            )
        if self.missing:
            raise ValueError(
                f"{', '.join(self.missing)} not admitted yet: ask for join.json and run 'fallow "
                f"coordinate admit {self.path} join.json'"
            )
        verify: dict[SiteId, bytes] = {}
        seals: dict[SiteId, bytes] = {}
        for site, details in known.items():
            verify[site] = b64decode(details["verify"])
            seals[site] = b64decode(details["seal"])
        return Keys(self.secret, verify, seals)

    def admit(self, file: Path, replace: bool = False) -> SiteId:
        """Let a site join by its ``join.json``; its name.

        Raises ValueError for a site or a study that was not agreed on, for keys that are none, and
        for other keys of a site that was admitted, unless ``replace`` says that this is meant.
        """
        joining = read_joining(file, self.agreement)
        site = joining["name"]
        with only_one(self.path / "sites.lock"):
            known = self.admitted
            if known.get(site, joining) != joining and not replace:
                raise ValueError(
                    f"{site} was admitted with other keys: two sites may use this name, and each "
                    "needs its own; if the site has new keys, make sure by another way, such as a "
                    "telephone, that these are theirs, and give --replace"
                )
            check_own(file, joining, known)
            write_json(
                self.path / "sites.json", dict(sorted((known | {site: joining}).items()))
            )
        return site
