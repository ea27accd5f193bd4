"""In-process sites with serialized messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from fallow.core.aggregation import sum_whole
from fallow.core.messages import Delivered, Request
from fallow.core.types import SiteId
from fallow.engine.executors import Executor
from fallow.sites.in_process import (
    Routes,
    collect_costs,
    deliver,
    find_largest_cost,
    is_relay,
    perform,
)
from fallow.sites.site import LocalSite
from fallow.storage.packing import pack, unpack
from fallow.transport.wire import pack_request, unpack_request


@final
@dataclass
class SerializingChannel:
    """In-process sites with serialized messages; detects a dependence on shared objects."""

    members: dict[SiteId, LocalSite]
    executor: Executor

    @property
    def sites(self) -> tuple[SiteId, ...]:
        """Return all sites in sorted order."""
        return tuple(sorted(self.members))

    def exchange(
        self, requests: Mapping[SiteId, Request], routes: Routes | None = None
    ) -> Delivered:
        """Return the replies of the sites. All messages are serialized and parsed."""
        sent = {site: pack_request(request) for site, request in requests.items()}
        received = {site: unpack_request(blob) for site, blob in sent.items()}
        down = sum(len(blob) for blob in sent.values())
        before = collect_costs(self.members)
        done = perform(self.members, self.executor, received)
        blobs = {site: pack(reply) for site, reply in done.items()}
        cost = find_largest_cost(before, collect_costs(self.members))
        replies = {site: unpack(blob) for site, blob in blobs.items()}
        if is_relay(received):
            sizes = deliver(self.members, received, replies, routes or {})
            passed = sum_whole(sizes, "bytes")  # peer messages are uploaded and downloaded
            return Delivered(sizes, passed, down + passed, cost)
        up = sum(len(blob) for blob in blobs.values())
        return Delivered(replies, up, down, cost)
