"""Coordinator folder: agreement, keys, certificates, admitted sites and the run."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from fallow.core.events import EventHandler
from fallow.core.extensions import require_extension
from fallow.core.limits import Conflict, check_limits
from fallow.core.names import BUILT_IN, OWN, NamePolicy, find_distribution, pin_names
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import require_known
from fallow.core.types import SiteId, Tree
from fallow.deployment.agreement import Agreement, Timeouts, at_sites
from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.building import build_study
from fallow.deployment.folders import (
    check_coordinator,
    check_free,
    private_folder,
    read_authority,
)
from fallow.deployment.joining import check_own, check_seal, read_joining
from fallow.deployment.received import check_texts
from fallow.deployment.schema import Schema
from fallow.deployment.site.schedule import RunSchedule
from fallow.deployment.study_file import read_agreement, write_agreement
from fallow.privacy.signing import KEY, decode_text, new_signing_key, verify_key
from fallow.settings.config import ExperimentConfig, named_classes
from fallow.storage.errors import StorageError
from fallow.storage.files import only_one, write_json, write_whole, writing
from fallow.storage.validation import find_error
from fallow.transport.address import (
    check_address,
    check_host,
    find_bind_problem,
    is_loopback,
)
from fallow.transport.factory import CoordinatorEnd, ServedTransport
from fallow.transport.gathering import Keys, SealKey
from fallow.transport.kinds import FACTORIES, TRANSPORT, USUAL, check_transport
from fallow.transport.tls import Tls, make_server_context, new_tls

COORDINATOR_FILE = "coordinator.json"
REVOKED = "revoked.json"
LEAVING = 20.0
"""Seconds after which a killed coordinator's processes of a transport have ended."""


@dataclass(frozen=True)
class StudyPlan:
    """Input from which `CoordinatorFolder.create` builds an agreement."""

    name: str
    config: ExperimentConfig
    schema: Schema
    sites: tuple[SiteId, ...]
    seed: int = 0
    waits: Timeouts = Timeouts()
    guideline: str | None = None
    transport: str = USUAL
    plan: AnswerPlan = SINGLE

    def agreement(self, key: bytes, authority: str | None = None) -> Agreement:
        """Build the agreement with the coordinator's public key and the certificate authority.

        Raises ValueError if the study is not valid.
        """
        names = self.names
        sites = tuple(sorted(self.sites))
        config = at_sites(self.config, self.name, len(sites), self.schema)
        result = Agreement(
            name=self.name,
            config=config,
            schema=self.schema,
            sites=sites,
            coordinator=key,
            seed=self.seed,
            waits=self.waits,
            authority=authority,
            guideline=self.guideline,
            transport=self.transport,
            distributions={name: find_distribution(name) for name in names.allowed},
            plan=self.plan,
            names=names,
        )
        RunSchedule(config, build_study(result).methods).check_length()
        return result

    @property
    def names(self) -> NamePolicy:
        """Return the policy for class names: those of the configuration, and the transport.

        The code of these classes is the version that is installed now.

        Raises ValueError for a class that no installed distribution provides.
        """
        with explain_errors(f"{self.name}: "):
            names = list(named_classes(self.config).values())
            if self.transport not in FACTORIES:
                check_transport(self.transport, OWN, "federation.transport")
                names.append(require_extension(TRANSPORT, self.transport))
            return pin_names(names)


@dataclass(frozen=True)
class Server:
    """HTTPS settings of the coordinator (transport ``https``).

    ``certificate`` and ``key`` are PEM files (default: a certificate is generated). ``authority``
    signed that certificate (default: an authority that the operating system trusts). ``clients`` is
    the authority of site certificates for mutual TLS (default: none are required). With
    ``behind_proxy``, another program on this machine terminates TLS and no certificate is used.
    Paths are relative to the current directory.
    """

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    clients: Path | None = None
    behind_proxy: bool = False

    CONFLICTS = (
        Conflict(
            ("certificate", "key"),
            lambda certificate, key: (certificate is None) != (key is None),
            ": a certificate needs its key; give both or neither",
        ),
        Conflict(
            ("behind_proxy", "certificate", "clients"),
            lambda is_behind, certificate, clients: is_behind and (certificate or clients),
            ": behind a reverse proxy, the coordinator uses no certificate; configure it in the "
            "proxy, and leave --certificate and --clients out",
        ),
        Conflict(
            ("authority", "certificate", "behind_proxy"),
            lambda ca, certificate, is_behind: ca and not (certificate or is_behind),
            ": --ca is the authority of your own certificate; give --certificate and "
            "--certificate-key, or leave --ca out",
        ),
    )

    def __post_init__(self) -> None:
        check_limits(self)

    @property
    def is_own(self) -> bool:
        """Return whether Fallow generates the certificate."""
        return self.certificate is None and not self.behind_proxy

    @property
    def settings(self) -> dict[str, object]:
        """Return the entries of ``coordinator.json``, without those that have their default."""
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
    """Check the certificates and the address of a server.

    Raises ValueError for unusable certificates, and for a server without TLS that other machines
    can reach.
    """
    host = address.rpartition(":")[0].strip("[]")
    if server.behind_proxy and not is_loopback(host):
        raise ValueError(
            "behind a reverse proxy, only this machine may reach the coordinator, "
            f"but {address} is open to other machines: give --address 127.0.0.1:9092"
        )
    for authority in (server.authority, server.clients):
        if authority is not None:
            read_authority(authority)
    if server.certificate is not None and server.key is not None:
        own = Tls(server.certificate, server.certificate, server.key)
        make_server_context(own, server.clients)


@dataclass(frozen=True)
class CoordinatorFolder:
    """Files of a coordinator. Each file is read when it is first needed."""

    path: Path

    @staticmethod
    def open(path: str | Path) -> CoordinatorFolder:
        """Open a folder made by `create`. Raises ValueError if there is none."""
        return CoordinatorFolder(check_coordinator(Path(path)))

    @staticmethod
    def create(
        path: str | Path,
        plan: StudyPlan,
        address: str | None = None,
        hosts: Sequence[str] = (),
        server: Server = Server(),
    ) -> CoordinatorFolder:
        """Create a folder.

        The agreement is checked before anything is written. Keys from an earlier attempt are
        reused. ``address`` is the ``host:port`` at which sites reach this machine (default: that of
        the transport). ``hosts`` are its names and addresses. ``server`` configures the transport
        ``https``.

        Raises ValueError if the study is not valid.
        """
        folder = CoordinatorFolder(Path(path))
        check_free(folder.path)
        if address is not None:
            check_address(address, "address")
        for host in hosts:
            check_host(host, "host")
        # report errors in the plan before the folder and its keys are created
        check_texts({"schema": asdict(plan.schema)})
        factory = plan.agreement(verify_key(new_signing_key())).transport_factory
        if address is None:
            address = factory.listen
        if server != Server() and not factory.is_plain_https:
            raise ValueError(
                f"for {factory.title}, Fallow generates the certificate: leave "
                "--certificate, --certificate-key, --ca, --clients and "
                "--behind-proxy out, or choose --transport https"
            )
        check_server(server, address)
        private_folder(folder.path)
        folder._make_keys(hosts, server)
        agreed = plan.agreement(verify_key(folder.secret), folder._authority)
        write_agreement(folder.path / "study.toml", agreed)
        settings: dict[str, object] = {"address": address, "hosts": list(hosts)}
        settings |= server.settings
        if agreed.names.allowed:
            settings["allow"] = dict(agreed.names.allowed)
        write_json(folder.path / COORDINATOR_FILE, settings)
        agreed.transport_factory.prepare(folder.end)
        return folder

    def _make_keys(self, hosts: Sequence[str], server: Server) -> None:
        """Create the signing key if it is missing, and certificates for ``hosts``.

        Certificates of an earlier attempt are replaced because they may name other hosts.
        """
        own = Tls.in_folder(self.path / "keys")
        private_folder(self.path / "keys")
        with writing(self.path / "keys"):
            if not self._secret.exists():
                write_whole(self._secret, b64encode(new_signing_key()) + b"\n", mode=0o600)
            for file in (own.authority, own.certificate, own.key):
                file.unlink(missing_ok=True)
            if server.is_own:
                new_tls(self.path / "keys", hosts)
            elif server.authority is not None:
                write_whole(own.authority, read_authority(server.authority))

    # -- files ------------------------------------------------------------------------------

    @cached_property
    def agreement(self) -> Agreement:
        """Return the study agreement.

        Raises ValueError if it names another coordinator, or if code has changed since the study
        was created.
        """
        result = read_agreement(self.path / "study.toml", self.names)
        if result.coordinator != verify_key(self.secret):
            raise ValueError(
                f"{self.path / 'study.toml'} names the key of another coordinator; restore it, or "
                "restore keys/coordinator.key"
            )
        return result

    @property
    def names(self) -> NamePolicy:
        """Return the policy for class names that study.toml may use.

        These are the classes of the study when it was created. ``coordinator.json`` lists the
        fingerprints of their code under ``allow``.
        """
        allowed = self._read(self.path / COORDINATOR_FILE).get("allow")
        if allowed is None:
            return BUILT_IN
        if not isinstance(allowed, dict):
            raise ValueError(
                f"{self.path / COORDINATOR_FILE}: allow is not a table of fingerprints"
            )
        return NamePolicy(allowed=allowed)

    @property
    def _secret(self) -> Path:
        return self.path / "keys" / "coordinator.key"

    @cached_property
    def secret(self) -> bytes:
        """Return the coordinator's private signing key."""
        file = self._secret
        way_out = (
            "restore it from a backup; without it, sites reject all instructions, "
            "and you must create a new study"
        )
        if not file.exists():
            raise StorageError(f"{file} is missing: {way_out}")
        try:
            result = b64decode(file.read_bytes(), validate=False)
        except ValueError:
            result = b""
        if len(result) != KEY:
            raise StorageError(f"{file} is damaged: {way_out}")
        return result

    @property
    def tls(self) -> Tls:
        """Return the certificate files by which sites authenticate this machine."""
        own = Tls.in_folder(self.path / "keys")
        server = self.server
        if server.certificate is None or server.key is None:
            return own
        return Tls(own.authority, server.certificate, server.key)

    @property
    def server(self) -> Server:
        """Return the HTTPS settings from ``coordinator.json``."""
        if not (self.path / COORDINATOR_FILE).exists():  # the folder is being created
            return Server()
        details = self._read(self.path / COORDINATOR_FILE)
        files = {name: Path(str(details[name])) for name in FILES if name in details}
        return Server(**files, behind_proxy=details.get("behind_proxy") is True)

    @property
    def _authority(self) -> str | None:
        """Return the certificate authority in the form of `Agreement.authority`."""
        file = Tls.in_folder(self.path / "keys").authority
        if not file.exists():
            return None
        return file.read_text().strip()

    @property
    def address(self) -> str:
        """Return the ``host:port`` at which sites reach this machine."""
        value = self._read(self.path / COORDINATOR_FILE).get("address")
        return check_address(str(value), f"{self.path / COORDINATOR_FILE}: address")

    def check_machine(self, patience: float = LEAVING) -> None:
        """Check certificates, address and port before the transport starts.

        Raises an error if a certificate file is missing, if the address does not belong to this
        machine, or if the port is in use for longer than ``patience`` seconds.
        """
        for file in self._needed:
            if not file.is_file():
                raise StorageError(
                    f"{file} is missing: restore it from a backup, because sites use it to "
                    "authenticate this machine"
                )
        if self.agreement.authority not in (None, self._authority):
            raise StorageError(
                f"{self.tls.authority} is not the certificate in "
                f"{self.path / 'study.toml'}: restore both, or the sites will reject "
                "this machine"
            )
        host, _, port = self.address.rpartition(":")
        why = find_bind_problem(host.strip("[]"), int(port), patience)
        if why is not None:
            raise ValueError(
                f"{self.path / COORDINATOR_FILE}: this machine cannot listen at {self.address} "
                f"({why}); set "
                "an address of this machine there, or 0.0.0.0 for all of its addresses, and a free "
                "port, and send the new address to the sites (address in their site.toml)"
            )

    @property
    def _needed(self) -> list[Path]:
        """Return the certificate files that sites need to authenticate this machine."""
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
        """Read a file of this folder that holds a JSON object."""
        try:
            result = json.loads(file.read_bytes())
        except (OSError, ValueError):
            result = None
        if not isinstance(result, dict):
            raise StorageError(f"{file} is missing or damaged: restore it from a backup")
        return result

    @property
    def end(self) -> CoordinatorEnd:
        """Return what the transport needs, with the keys of the admitted sites."""
        server = self.server
        revoked = self.revoked
        keys: dict[SiteId, bytes] = {}
        transport_keys: dict[SiteId, str] = {}
        for site, details in self.admitted.items():
            if site not in revoked:
                keys[site] = b64decode(details["verify"])
                transport_keys[site] = details["transport_key"]
        return CoordinatorEnd(
            folder=self.path,
            study=self.agreement.digest,
            sites=self.agreement.sites,
            address=self.address,
            tls=None if server.behind_proxy else self.tls,
            clients=server.clients,
            keys=keys,
            transport_keys=transport_keys,
        )

    def open_transport(self, notify: EventHandler) -> ServedTransport:
        """Return the coordinator's end of the agreed transport."""
        return self.agreement.transport_factory.open(self.end, notify)

    # -- sites ------------------------------------------------------------------------------

    @property
    def admitted(self) -> dict[SiteId, dict[str, str]]:
        """Return the public keys of each admitted site, from its ``join.json``."""
        file = self.path / "sites.json"
        if not file.exists():
            return {}
        return self._read(file)

    @property
    def revoked(self) -> frozenset[SiteId]:
        """Return the sites whose admitted keys were revoked."""
        known = self.admitted
        revoked: set[SiteId] = set()
        for site, keys in self._revoked_keys.items():
            if site in known and b64decode(known[site]["verify"]) in keys:
                revoked.add(site)
        return frozenset(revoked)

    @property
    def _revoked_keys(self) -> dict[SiteId, list[bytes]]:
        """Return the revoked identity keys of each site."""
        file = self.path / REVOKED
        if not file.exists():
            return {}
        saved = self._read(file)
        damage = find_error(dict[str, list[str]], saved, "it")
        if damage is not None:
            raise StorageError(f"{file} is damaged: {damage}; restore it from a backup")
        keys: dict[SiteId, list[bytes]] = {}
        for site, texts in saved.items():
            keys[site] = [decode_text(text.strip()) for text in texts]
            if b"" in keys[site]:  # otherwise the key would be valid again
                raise StorageError(
                    f"{file} is damaged: a key of {site} is not base64; restore it from a backup"
                )
        return keys

    @property
    def missing(self) -> list[SiteId]:
        """Return the sites of the agreement that are not admitted yet."""
        return [site for site in self.agreement.sites if site not in self.admitted]

    @property
    def keys(self) -> Keys:
        """Return the keys for signing and verifying messages.

        Raises ValueError if a site is missing or has joined another study.
        """
        known = self.admitted
        other: list[SiteId] = []  # sites that joined another study
        for site, details in known.items():
            if details["study"] != self.agreement.digest:
                other.append(site)
        if other:
            raise ValueError(
                f"{self.path / 'study.toml'} has changed since {', '.join(other)} "
                "joined: restore the old file (durations and limits of columns may "
                "change), or the version of Fallow if that has changed since, or "
                "ask the sites to join again"
            )
        if self.missing:
            raise ValueError(
                f"{', '.join(self.missing)} not admitted yet: ask for join.json and run 'fallow "
                f"coordinate admit {self.path} join.json'"
            )
        verify: dict[SiteId, bytes] = {}
        seals: dict[SiteId, SealKey] = {}
        for site, details in known.items():
            verify[site] = b64decode(details["verify"])
            signature = b64decode(details["seal_signature"])
            seals[site] = SealKey(b64decode(details["seal"]), signature)
        return Keys(self.secret, verify, seals)

    def admit(self, file: Path, replace: bool = False) -> SiteId:
        """Admit a site by its ``join.json`` and return its name.

        Raises ValueError for an unknown site or study and for malformed keys. Also raises
        ValueError for new keys of an admitted site unless ``replace`` is set.
        """
        joining = read_joining(file, self.agreement)
        site = joining["name"]
        with only_one(self.path / "sites.lock"):
            known = self.admitted
            if known.get(site, joining) != joining and not replace:
                raise ValueError(
                    f"{site} was admitted with other keys: two sites may use this "
                    "name, but each needs a unique one; if the site has new keys, "
                    "verify them through another channel, such as a telephone, and "
                    "give --replace"
                )
            key = b64decode(joining["verify"])
            if any(key in revoked for revoked in self._revoked_keys.values()):
                raise ValueError(
                    f"{file} has revoked keys of {site}: ask for new ones, which "
                    "'fallow site init' creates in a new folder"
                )
            check_own(file, joining, known)
            check_seal(file, joining)
            write_json(
                self.path / "sites.json", dict(sorted((known | {site: joining}).items()))
            )
        return site

    def revoke(self, site: SiteId) -> bool:
        """Revoke the keys of an admitted site, and return False if they were revoked before.

        A running coordinator reads the file within two seconds. Raises ValueError for a site that is
        unknown or not admitted.
        """
        require_known(site, self.agreement.sites, f"{site!r} is not a site of this study")
        with only_one(self.path / "sites.lock"):
            known = self.admitted
            if site not in known:
                raise ValueError(f"{site} is not admitted, so it has no key to revoke")
            key = b64decode(known[site]["verify"])
            revoked = self._revoked_keys
            if key in revoked.get(site, []):
                return False
            revoked[site] = [*revoked.get(site, []), key]
            texts: dict[SiteId, list[str]] = {}
            for other, keys in sorted(revoked.items()):
                texts[other] = [b64encode(value).decode() for value in keys]
            write_json(self.path / REVOKED, texts)
        return True
