"""Site folder: agreement, settings, keys and ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fallow.core.optional import NOISE, import_privacy
from fallow.core.refusal import explain_errors
from fallow.core.types import SiteId
from fallow.deployment.agreement import Agreement
from fallow.deployment.folders import check_free, check_site, private_folder, read_authority
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.tables import copy_of
from fallow.deployment.received import read_toml
from fallow.deployment.site.budget import ProposedLimit, propose_limit
from fallow.deployment.site.case_rows import read_site_rows
from fallow.deployment.site.keys import SiteKeys, make_keys, read_keys
from fallow.deployment.site.rows import SiteRows, check_apart, check_units, read_tests
from fallow.deployment.site.settings import Settings, settings_from, settings_text
from fallow.deployment.study_file import read_agreement
from fallow.experiment.methods import check_brought
from fallow.privacy.ledger import check_delta
from fallow.storage.database import has_no_table
from fallow.storage.errors import StorageError
from fallow.storage.files import digest_of, only_one, write_json, write_whole
from fallow.transport.tls import Pair, make_site_context

SETTINGS = "site.toml"
AUTHORITY = "keys/authority.pem"
"""Path of the certificates that authenticate the coordinator's machine."""


@dataclass(frozen=True)
class SiteFolder:
    """Files of a site. Each file is read when it is first needed."""

    path: Path
    settings: Settings

    @staticmethod
    def open(path: str | Path) -> SiteFolder:
        """Open a folder made by `create`.

        Raises ValueError if there is none or if a setting is invalid.
        """
        file = Path(path) / SETTINGS
        check_site(Path(path))
        tree = read_toml(file, "restore it from a backup")
        with explain_errors(f"{file}: "):
            settings = settings_from(tree)
        return SiteFolder(Path(path), settings)

    @staticmethod
    def create(
        path: str | Path,
        study: str | Path,
        digest: str | None = None,
        choose_limit: ChooseLimit | None = None,
        **chosen: Any,
    ) -> SiteFolder:
        """Create a folder with ``Settings(**chosen)``. Paths are relative to the current directory.

        ``digest`` is the hash of the agreement as confirmed by the user (`check_digest`), or None
        if the caller has verified it. The folder accepts only that agreement afterwards.
        ``choose_limit`` receives the proposed label limit if ``chosen`` has none (default: the
        limit of the study).

        Everything is checked before a file is written. ``join.json`` is for the coordinator. Keys
        of an earlier attempt are reused. Raises ValueError for a site that is not in the agreement
        and for data that does not match its schema.
        """
        folder = Path(path)
        settings = Settings(**chosen)
        agreement = read_agreement(study, settings.names)
        if digest is not None:
            check_digest(agreement, digest)
        check_free(folder)
        check_member(agreement, settings.name, str(study))
        options = settings.load_options(agreement.config.drop_rows)
        rows = read_site_rows(settings.data, agreement, options)
        check_delta_of(settings, agreement, len(rows.ids))
        check_brought(agreement.config, has_predictions=rows.predictions is not None)
        data = _relative_path(folder, settings.data)
        placed = replace(settings, data=data, test=None, certificates=None)
        factory = agreement.transport_factory
        check_connection(settings, agreement)
        if settings.address is None:
            placed = replace(placed, address=factory.nearby)
        if settings.own_certificate is not None and settings.own_key is not None:
            make_site_context(
                None, Pair(Path(settings.own_certificate), Path(settings.own_key))
            )
            placed = replace(
                placed,
                own_certificate=_relative_path(folder, settings.own_certificate),
                own_key=_relative_path(folder, settings.own_key),
            )
        if settings.test:
            tests = read_tests(settings.test, agreement.schema, options)
            check_apart(rows, tests, settings.test)
            placed = replace(placed, test=_relative_path(folder, settings.test))
        if settings.limit is None and choose_limit is not None:
            unlabeled = len(rows.ids) - rows.labeled
            proposed = propose_limit(agreement, len(rows.ids), unlabeled)
            placed = replace(placed, limit=choose_limit(proposed))
        copied = {"study.toml": Path(study).read_bytes()}
        authority = _choose_authority(settings.certificates, agreement)
        if authority is not None:
            copied[AUTHORITY] = authority
            placed = replace(placed, certificates=AUTHORITY)

        private_folder(folder)
        keys = make_keys(folder / "keys", factory)
        joining = {"name": settings.name, "study": agreement.digest, **keys}
        joining["seal_signature"] = read_keys(folder / "keys").sign_seal(
            agreement.digest, settings.name
        )
        for name, content in copied.items():
            write_whole(folder / name, content)
        write_json(folder / "join.json", joining)
        write_json(folder / "data.json", {"rows": len(rows.x), "digest": _digest(rows)})
        write_whole(folder / SETTINGS, settings_text(placed, agreement.name).encode())
        return SiteFolder(folder, placed)

    # -- files ------------------------------------------------------------------------------

    @property
    def name(self) -> SiteId:
        """Return the name of the site in the agreement."""
        return self.settings.name

    @property
    def ledger_path(self) -> Path:
        """Return the path of the ledger."""
        return self.path / "ledger.sqlite"

    @property
    def authority(self) -> Path | None:
        """Return the path of the coordinator's authority certificates."""
        if self.settings.certificates is None:
            return None
        file = self.path / self.settings.certificates
        if not file.is_file():
            raise StorageError(
                f"{file} is missing: restore it from a backup, or copy the coordinator's "
                "keys/authority.pem there"
            )
        return file

    @cached_property
    def agreement(self) -> Agreement:
        """Return the study agreement that the user confirmed.

        Its hash in ``join.json`` is compared before anything that the study names is built.
        """
        file = self.path / "study.toml"
        joined = self.joined
        result = read_agreement(file, self.settings.names)
        if joined.get("name", self.name) != self.name:
            raise ValueError(
                f"{self.path / SETTINGS} has name = {self.name!r}, but the keys here "
                f"belong to {joined['name']}: restore the name"
            )
        if "study" not in joined:
            raise StorageError(
                f"{self.path / 'join.json'}, which identifies the confirmed study, "
                "is missing or damaged: restore it from a backup, or ask the "
                "coordinator for the file that this site sent"
            )
        if joined["study"] != result.digest:
            raise ValueError(
                f"{file} has changed since site {self.name} was created "
                f"({joined['study']:.12} then, {result.digest:.12} now): restore the "
                "old file, or the version of Fallow if that has changed since; only "
                "durations, limits of columns and comments may change"
            )
        return result

    @property
    def joined(self) -> dict[str, str]:
        """Return the content of ``join.json``, or nothing if it is missing or damaged."""
        try:
            result = json.loads((self.path / "join.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(result, dict):
            return {}
        joined: dict[str, str] = {}
        for name, text in result.items():
            if isinstance(text, str):
                joined[name] = text
        return joined

    @cached_property
    def rows(self) -> SiteRows:
        """Return the rows of the data file in model form."""
        result = self.measured_rows
        return replace(result, x=self.agreement.transform(result.x))

    @cached_property
    def measured_rows(self) -> SiteRows:
        """Return the rows of the data file as measured.

        They must not change after the start, because the ledger refers to them by position.
        """
        file = self._file("data", self.settings.data)
        note = self.path / "data.json"
        options = self.settings.load_options(self.agreement.config.drop_rows)
        result = read_site_rows(file, self.agreement, options)
        has_predictions = result.predictions is not None
        check_brought(self.agreement.config, has_predictions=has_predictions)
        try:
            noted = json.loads(note.read_bytes())
            rows = noted["rows"]
            digest = noted["digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{note}, which detects changed examples, is missing or damaged: "
                "restore it from a backup"
            ) from error
        if (rows, digest) != (len(result.x), _digest(result)):
            raise StorageError(
                f"the examples of {file} are not those with which site {self.name} "
                f"started ({rows} then, {len(result.x)} now, or other values, names "
                "or order): restore the old file; labels may be added, but examples "
                "must not change"
            )
        return result

    def _file(self, setting: str, path: str) -> Path:
        """Return the path of a data file in ``site.toml``."""
        file = self.path / path
        if not file.exists():
            raise ValueError(
                f"{self.path / SETTINGS}: {setting} is {file}, which does not exist; "
                "restore the file or correct the path"
            )
        return file

    @cached_property
    def tests(self) -> SiteRows | None:
        """Return the test rows of this site in model form, if there are any."""
        measured = self.measured_tests
        if measured is None:
            return None
        return replace(measured, x=self.agreement.transform(measured.x))

    @cached_property
    def measured_tests(self) -> SiteRows | None:
        """Return the test rows as measured."""
        if self.settings.test is None:
            return None
        file = self._file("test", self.settings.test)
        options = self.settings.load_options(self.agreement.config.drop_rows)
        tests = read_tests(file, self.agreement.schema, options)
        check_apart(self.measured_rows, tests, file)
        return tests

    @cached_property
    def keys(self) -> SiteKeys:
        """Return the private keys of the site."""
        return read_keys(self.path / "keys")

    def check_machine(self) -> None:
        """Raise StorageError for a missing file, and ValueError for a missing package."""
        _ = self.keys, self.authority
        self.agreement.transport_factory.check_site(self.path / "keys")
        if self.agreement.config.privacy.epsilon is not None:
            import_privacy("opendp", NOISE)

    def check_units(self) -> None:
        """Raise ValueError for a column that probably has another unit than the agreed one."""
        for rows in filter(None, (self.measured_rows, self.measured_tests)):
            check_units(rows, self.agreement.schema, self.settings.confirmed)

    def open_ledger(self) -> Ledger:
        """Open the site's ledger, and create it at the first start."""
        own = self.settings
        groups = None
        if own.group is not None:
            groups = self.measured_rows.group_numbers  # None for cases
        is_creating = self.path / "ledger.creating"
        with only_one(self.path / "ledger.lock"):  # another process may be creating it
            if not is_creating.exists():  # else a process was killed at the first start
                check_not_lost(self.ledger_path)
            if not self.ledger_path.exists():
                write_whole(is_creating, b"")
            ledger = Ledger(
                self.ledger_path,
                self.name,
                classes=self.agreement.schema.n_answers,
                limit=own.limit,
                rule=self.agreement.plan.decided_by,
                epsilon=self.epsilon,
                shown=own.shown,
                delta=self.delta,
                seed=self.agreement.seed,
                groups=None if groups is None else groups.tolist(),
                labels=self.agreement.schema.labels,
            )
            is_creating.unlink(missing_ok=True)
            return ledger

    @property
    def epsilon(self) -> float | None:
        """Return the epsilon budget of the site over all runs, or None without noise.

        This is the site's own limit, or that of the agreement for one run.
        """
        if self.settings.epsilon is not None:
            return self.settings.epsilon
        return self.agreement.config.protected.total

    @property
    def delta(self) -> float | None:
        """Return the delta budget of the site over all runs, or None without Gaussian noise.

        This is the site's own limit, or that of the agreement for one run.
        """
        if self.settings.delta is not None:
            return self.settings.delta
        return self.agreement.config.delta


def check_delta_of(settings: Settings, agreement: Agreement, rows: int) -> None:
    """Raise ValueError for a delta that is too large for the number of examples.

    Also raises ValueError for an agreement whose runs exceed the site's own limit.
    """
    agreed = agreement.config.delta
    for delta in (agreed, settings.delta):
        if delta is not None:
            check_delta(settings.name, delta, rows)
    if agreed is not None and settings.delta is not None and agreed > settings.delta:
        raise ValueError(
            f"a run of this study costs delta {agreed:g}, but site {settings.name} "
            f"allows {settings.delta:g}: give a larger --delta, or ask the "
            "coordinator for a smaller one"
        )


ChooseLimit = Callable[[ProposedLimit], int]
"""Function that chooses the label limit of a site from a proposal."""


def check_not_lost(ledger: Path) -> None:
    """Raise StorageError if a new ledger with full budgets would replace a lost one.

    A ledger is lost if its file is missing beside its backup, or if it has no tables.
    """
    copy = copy_of(ledger)
    is_there = ledger.exists()
    if is_there and not has_no_table(ledger):
        return
    if not is_there and not copy.exists():
        return
    what = f"{ledger} is missing"
    if is_there:
        what = f"{ledger} has no tables, as if it was copied without its -wal file"
    if not copy.exists():
        raise StorageError(
            f"{what}: restore the whole folder from a backup, or move {ledger.name} "
            "away to start without labels"
        )
    raise StorageError(
        f"{what}, but its backup {copy.name} exists: copy that to {ledger.name}, or "
        "move it away to start without labels"
    )


TYPED = 8  # smallest number of fingerprint characters to type


def check_member(agreement: Agreement, name: SiteId, study: str) -> None:
    """Raise ValueError for a site that is not in the study."""
    if name not in agreement.sites:
        raise ValueError(
            f"{name!r} is not a site of {study}; its sites are {', '.join(agreement.sites)}"
        )


def check_connection(settings: Settings, agreement: Agreement) -> None:
    """Raise ValueError for settings that the agreed transport does not support."""
    factory = agreement.transport_factory
    is_more = settings.proxy or settings.own_certificate
    if is_more and not factory.is_plain_https:
        raise ValueError(
            f"study {agreement.name} uses {factory.title}, which supports neither a proxy nor a "
            "certificate of the site: leave these options out"
        )


def check_digest(agreement: Agreement, typed: str) -> None:
    """Raise ValueError unless ``typed`` matches the fingerprint of the agreement.

    At least the first `TYPED` characters are required. Spaces and capital letters are ignored.
    """
    digest = "".join(typed.split()).replace("-", "").lower()
    if len(digest) < TYPED:
        raise ValueError(
            f"{typed!r:.80} is too short for a fingerprint; ask the coordinator to "
            f"read it out, and give {TYPED} of its 32 characters or more"
        )
    if not agreement.digest.startswith(digest):
        raise ValueError(
            f"{digest!r:.80} is not the fingerprint of this study.toml: it differs "
            "from the coordinator's file or was changed in transit; nothing was "
            "created; ask for the file again"
        )


def _choose_authority(ca: str | None, agreement: Agreement) -> bytes | None:
    """Return the certificates that authenticate the coordinator's machine.

    These are those of the agreement, or else those of the file ``ca``. None stands for those of the
    operating system.
    """
    value: bytes | None = None
    if ca is not None:
        value = read_authority(Path(ca))
    if agreement.authority is None:
        return value
    agreed = f"{agreement.authority}\n".encode()
    if value is not None and agreed.split() != value.split():
        raise ValueError(
            f"{ca} is not the certificate that study.toml names for the "
            "coordinator's machine: leave --ca out, or ask the coordinator which of "
            "the two is correct"
        )
    return agreed


def _digest(rows: SiteRows) -> str:
    identity: dict[str, object] = {"x": rows.x, "ids": rows.ids}
    if rows.groups is not None:
        identity["groups"] = rows.groups
    if rows.each is not None:
        identity["cases"] = rows.of_case
    return digest_of(identity)


def _relative_path(folder: Path, path: str) -> str:
    """Return a path relative to ``folder`` if it is inside, otherwise the absolute path."""
    whole = Path(path).absolute()
    inside = folder.absolute()
    if whole.is_relative_to(inside):
        return str(whole.relative_to(inside))
    return str(whole)
