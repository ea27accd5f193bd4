"""A site's folder: its copy of the agreement, its settings, its keys, its ledger."""

from __future__ import annotations

import json
import os
import tomllib
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fallow.core.types import SiteId
from fallow.federation.agreement import Agreement, read_agreement
from fallow.federation.ledger import Ledger
from fallow.federation.site.rows import SiteRows, read_rows, read_tests
from fallow.federation.site.settings import Settings, settings_from, settings_text
from fallow.lab.errors import Failed
from fallow.lab.files import digest_of, write_json, write_whole
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.runtimes.flower import new_node_key


@dataclass(frozen=True)
class SiteKeys:
    """Secrets of a site; they never leave its machine."""

    sign: bytes  # Ed25519: by which its answers are known
    seal: bytes  # X25519: by which it opens what other sites sealed for it

    @property
    def verify(self) -> bytes:
        return verify_key(self.sign)

    @property
    def seal_public(self) -> bytes:
        return public_half(self.seal)


@dataclass(frozen=True)
class SiteFolder:
    """What a site works with.  Files are read when they are first asked for."""

    path: Path
    settings: Settings

    @staticmethod
    def open(path: str | Path) -> SiteFolder:
        """The folder that `create` made.  Raises ValueError where there is none, or a setting is
        wrong."""
        file = Path(path) / "site.toml"
        if not file.exists():
            raise ValueError(
                f"{path} is not the folder of a site; make one with: fallow site init {path}"
            )
        try:
            settings = settings_from(tomllib.loads(file.read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not valid TOML: {error}") from error
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        return SiteFolder(Path(path), settings)

    @staticmethod
    def create(path: str | Path, study: str | Path, **chosen: Any) -> SiteFolder:
        """A new folder for ``Settings(**chosen)``, whose paths count from the current directory.

        Everything is checked before a file is written.  ``join.json`` is what the coordinator
        needs; keys that an earlier attempt left are used.  Raises ValueError for a site that is not
        in the agreement and for data that does not follow its schema.
        """
        folder, agreement, settings = Path(path), read_agreement(study), Settings(**chosen)
        if (folder / "site.toml").exists():
            raise ValueError(f"{folder} is the folder of a site already; choose another one")
        if settings.name not in agreement.sites:
            raise ValueError(
                f"{settings.name!r} is no site of {study}; it has {', '.join(agreement.sites)}"
            )
        drop = agreement.recipe.drop_rows
        rows = read_rows(settings.data, agreement.schema, drop)
        if settings.test:
            read_tests(settings.test, agreement.schema, drop)
        _private(folder / "keys")
        copied = {folder / "study.toml": Path(study)}
        if settings.certificates:
            copied[folder / "keys" / "authority.pem"] = Path(settings.certificates)
        for to, source in copied.items():
            write_whole(to, source.read_bytes())
        placed = replace(
            settings,
            data=_seen_from(folder, settings.data),
            test=_seen_from(folder, settings.test) if settings.test else None,
            certificates="keys/authority.pem" if settings.certificates else None,
        )
        made = SiteFolder(folder, placed)
        write_json(folder / "join.json", made.joining(agreement))
        write_json(folder / "data.json", {"rows": len(rows.x), "digest": _digest(rows)})
        write_whole(folder / "site.toml", settings_text(placed, agreement.name).encode())
        return made

    # -- files ------------------------------------------------------------------------------

    @property
    def name(self) -> SiteId:
        return self.settings.name

    @property
    def ledger_path(self) -> Path:
        return self.path / "ledger.sqlite"

    @property
    def node_key(self) -> Path:
        """The key by which Flower's server knows this node; its public half is in ``.pub``."""
        return self.path / "keys" / "node"

    @property
    def authority(self) -> Path | None:
        """The certificates of the coordinator's authority."""
        named = self.settings.certificates
        return None if named is None else self.path / named

    @cached_property
    def agreement(self) -> Agreement:
        found = read_agreement(self.path / "study.toml")
        if self.name not in found.sites:
            raise ValueError(f"{self.name!r} is no site of {self.path / 'study.toml'}")
        return found

    @cached_property
    def rows(self) -> SiteRows:
        """The rows of the data file, which must be those that the site began with: labels stand in
        the ledger under their place."""
        file = self.path / self.settings.data
        found = read_rows(file, self.agreement.schema, self.agreement.recipe.drop_rows)
        begun = json.loads((self.path / "data.json").read_bytes())
        if begun != {"rows": len(found.x), "digest": _digest(found)}:
            raise Failed(
                f"the rows of {file} are not those that site {self.name} began with "
                f"({begun['rows']} then, {len(found.x)} now, or other values, names or order): put "
                "the old file back; labels may be added, rows may not change"
            )
        return replace(found, x=self.agreement.seen(found.x))

    @cached_property
    def tests(self) -> SiteRows | None:
        """Rows that models are tested on here, if this site has some."""
        if self.settings.test is None:
            return None
        file = self.path / self.settings.test
        found = read_tests(file, self.agreement.schema, self.agreement.recipe.drop_rows)
        return replace(found, x=self.agreement.seen(found.x))

    @cached_property
    def keys(self) -> SiteKeys:
        """The site's secrets, made when they are first asked for."""
        file = self.path / "keys" / "site.key"
        if not file.exists():
            _private(file.parent)
            fresh = {"sign": new_signing_key(), "seal": new_secret()}
            _write_secret(file, json.dumps({k: _text(v) for k, v in fresh.items()}))
        try:
            saved = json.loads(file.read_bytes())
            return SiteKeys(b64decode(saved["sign"]), b64decode(saved["seal"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(
                f"{file} is damaged: restore it from a backup, or make the site's folder anew and "
                "send the coordinator its join.json"
            ) from error

    def joining(self, agreement: Agreement) -> dict[str, str]:
        """What the coordinator is sent: who this site is, and its public keys."""
        public = self.node_key.with_name("node.pub")
        node = public.read_text().strip() if public.exists() else new_node_key(self.node_key)
        return {
            "name": self.name, "study": agreement.digest, "verify": _text(self.keys.verify),
            "seal": _text(self.keys.seal_public), "node": node.strip(),
        }  # fmt: skip

    def open_ledger(self) -> Ledger:
        """The site's ledger; made when it is first opened."""
        known, classes = self.settings, len(self.agreement.schema.classes)
        return Ledger(
            self.ledger_path, self.name, classes, known.limit, known.annotators, self.epsilon
        )

    @property
    def epsilon(self) -> float | None:
        """What the site ever spends on noise, over all runs: its own limit, else what the
        agreement allows one run.  None where there is no noise."""
        recipe = self.agreement.recipe
        own = self.settings.epsilon
        return own if own is not None else recipe.privacy.over(recipe.cycles).total


def _digest(rows: SiteRows) -> str:
    return digest_of({"x": rows.x, "ids": rows.ids})


def _seen_from(folder: Path, path: str) -> str:
    """A path as it is written into ``folder``: relative where it lies inside."""
    whole, inside = Path(path).absolute(), folder.absolute()
    return str(whole.relative_to(inside) if whole.is_relative_to(inside) else whole)


def _text(secret: bytes) -> str:
    return b64encode(secret).decode()


def _private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _write_secret(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w") as handle:
        handle.write(text + "\n")
        handle.flush()
        os.fsync(handle.fileno())
