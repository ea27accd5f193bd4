"""Identity keys of the other sites (``peers.json``)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.privacy.signing import is_forgeable
from fallow.storage.errors import StorageError
from fallow.storage.files import write_json
from fallow.storage.received import parse_json, read_regular

PEERS = "peers.json"


@final
@dataclass(frozen=True)
class Peers:
    """File with the entry ``verify`` of each other site's ``join.json``.

    A missing key is stored when it is first received. Users may enter or compare keys in advance.
    """

    folder: Path
    site: SiteId

    def hold(self, shown: Mapping[SiteId, bytes]) -> None:
        """Check and store the identity keys of other sites.

        Raises Refusal for a key that differs from the stored one, and Failed if the file is damaged
        or cannot be written.
        """
        known = self._read()
        fresh: dict[SiteId, str] = {}
        for site, key in shown.items():
            text = b64encode(key).decode()
            if is_forgeable(key):
                raise Refusal(
                    f"site {site} sent an insecure key, with which anyone can sign"
                )
            if known.get(site, text) != text:
                raise Refusal(
                    f"site {site} sent another identity key than the one stored at "
                    f"site {self.site}: if {site} has joined again, compare its "
                    f"join.json with {PEERS} of {self.site} through another channel "
                    f"than the coordinator, and correct {PEERS}"
                )
            if site not in known:
                fresh[site] = text
        if fresh:
            write_json(self.folder / PEERS, dict(sorted({**known, **fresh}.items())))

    def _read(self) -> dict[SiteId, str]:
        file = self.folder / PEERS
        try:
            known = parse_json(read_regular(file))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise StorageError(f"{file} cannot be read: {error}") from error
        if not isinstance(known, dict) or not all(
            isinstance(key, str) for key in known.values()
        ):
            raise StorageError(
                f"{file} is damaged: it must contain the key of each site as text"
            )
        return known
