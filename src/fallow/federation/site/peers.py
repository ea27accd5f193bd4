"""The identity keys of the other sites, which a site holds the others to: ``peers.json``."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.privacy.signing import is_forgeable
from fallow.storage.errors import Failed
from fallow.storage.files import write_json
from fallow.storage.received import parse_json, read_regular

PEERS = "peers.json"


@final
@dataclass(frozen=True)
class Peers:
    """The file has of each other site the line ``verify`` of its ``join.json``.  A key that is not
    there yet is noted when it is first shown; people may enter or compare it before."""

    folder: Path
    site: SiteId

    def hold(self, shown: Mapping[SiteId, bytes]) -> None:
        """Note the identity keys that other sites show.

        Raises Refusal for one that is not the site's as far as is known, and Failed where the file
        is damaged or cannot be written.
        """
        known = self._read()
        fresh: dict[SiteId, str] = {}
        for site, key in shown.items():
            text = b64encode(key).decode()
            if is_forgeable(key):
                raise Refusal(f"site {site} shows a key with which anybody can sign")
            if known.get(site, text) != text:
                raise Refusal(
                    f"site {site} shows another identity key than site {self.site} knows of it: if "
                    f"{site} has joined anew, compare its join.json with {PEERS} of {self.site} by "
                    f"another way than through the coordinator, and correct {PEERS}"
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
            raise Failed(f"{file} cannot be read: {error}") from error
        if not isinstance(known, dict) or not all(
            isinstance(key, str) for key in known.values()
        ):
            raise Failed(f"{file} is damaged: it has of each site its key, as text")
        return known
