"""Connect both ends of a tunnel between sites in threads and a transport over HTTPS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fallow_nvflare.app.fallow_tunnel.tunnel import Entrance, Exit, Fields
from tests.transport.https.served import Served, served


class Tunnel:
    """Directly connected entrances at sites and an exit at the coordinator's address.

    losing: pieces that are lost in transit, counted from 1.
    """

    def __init__(self, address: str, sites: Sequence[str]) -> None:
        self.exit = Exit(self._carry_to, address)
        self.entrances: dict[str, Entrance] = {}
        self.losing: set[int] = set()
        self.carried: list[tuple[str, Fields]] = []
        for site in sites:
            self.begin(site)

    def begin(self, site: str, port: int = 0) -> None:
        """Start the entrance of a site, as a job of NVFlare does."""
        self.entrances[site] = Entrance(partial(self._carry_from, site), port)

    def close(self) -> None:
        self.exit.close()
        for entrance in self.entrances.values():
            entrance.close()

    def _carry_from(self, site: str, fields: Fields) -> bool:
        return self._is_kept(site, fields) and self.exit.take(site, fields)

    def _carry_to(self, site: str, fields: Fields) -> bool:
        return self._is_kept(site, fields) and self.entrances[site].take(fields)

    def _is_kept(self, site: str, fields: Fields) -> bool:
        self.carried.append((site, fields))
        return len(self.carried) not in self.losing


@dataclass(kw_only=True)
class Tunnelled(Served):
    """A transport whose sites connect to the entrance of a tunnel."""

    tunnel: Tunnel

    def address_of(self, site: str) -> str:
        return f"127.0.0.1:{self.tunnel.entrances[site].port}"


@contextmanager
def tunnelled(folder: Path, sites: Sequence[str] = ("anna", "bert")) -> Iterator[Tunnelled]:
    """Serve the transport of `served` through both ends that a job of NVFlare starts."""
    with served(folder, sites) as simulation:
        tunnel = Tunnel(simulation.address, sites)
        outcome = Tunnelled(
            simulation.tls,
            simulation.transport,
            simulation.secrets,
            simulation.events,
            simulation.nodes,
            tunnel=tunnel,
        )
        try:
            yield outcome
        finally:
            for name in list(outcome.nodes):
                outcome.stop_site(name)
            tunnel.close()
