"""All sites in this process, but every message crosses a byte boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from fallow.core.messages import Delivered, Request
from fallow.core.totals import sum_whole
from fallow.core.types import SiteId
from fallow.engine.executors import Executor
from fallow.network.wire import pack_request, unpack_request
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


@final
@dataclass
class Bytes:
    """`InProcess` with serialization: what works here does not rely on shared objects."""

    members: dict[SiteId, LocalSite]
    executor: Executor

    @property
    def sites(self) -> tuple[SiteId, ...]:
        """All sites, in sorted order."""
        return tuple(sorted(self.members))

    def exchange(
        self, requests: Mapping[SiteId, Request], routes: Routes | None = None
    ) -> Delivered:
        """What sites answer, after every message was packed and read again."""
        sent = {site: pack_request(request) for site, request in requests.items()}
        received = {site: unpack_request(blob) for site, blob in sent.items()}
        down = sum(len(blob) for blob in sent.values())
        before = collect_costs(self.members)
        done = perform(self.members, self.executor, received)
        replies = {site: pack(answer) for site, answer in done.items()}
        cost = find_largest_cost(before, collect_costs(self.members))
        answers = {site: unpack(blob) for site, blob in replies.items()}
        if is_relay(received):
            sizes = deliver(self.members, received, answers, routes or {})
            passed = sum_whole(sizes, "bytes")  # from site to site: up and down
            return Delivered(sizes, passed, down + passed, cost)
        up = sum(len(blob) for blob in replies.values())
        return Delivered(answers, up, down, cost)
