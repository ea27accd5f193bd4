"""Ends of the tunnel as components of an NVFlare job.

A request of NVFlare has the fields of `tunnel`: texts, a number and bytes. No types are registered
with NVFlare's serializer, so that received data cannot create other types.
"""

from __future__ import annotations

import time
from threading import Event, Thread

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.fqcn import FQCN

from .tunnel import Entrance, Exit, Fields, find_port

TOPIC = "fallow.tunnel"
PIECE_SECONDS = 60.0  # seconds until an unacknowledged piece counts as lost
POLL_SECONDS = 0.5  # seconds between checks for the end of the job
RETRY_SECONDS = 2.0  # seconds before a port in use is tried again
FIELDS = ("do", "name", "place", "bytes")


class ServerPart(Controller):
    """Component in the server process of the job. ``address`` is the coordinator's ``host:port``."""

    def __init__(self, address: str = "127.0.0.1:9092") -> None:
        super().__init__()
        self._exit = Exit(self._carry, address)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Register the handler of requests from sites."""
        self._engine.register_aux_message_handler(TOPIC, self._take)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run until the job is aborted."""
        self.log_info(fl_ctx, "connections of sites are carried to the coordinator")
        while not abort_signal.triggered:
            time.sleep(POLL_SECONDS)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Close every connection."""
        self._exit.close()

    def process_result_of_unknown_task(self, *args: object, **more: object) -> None:
        """Do nothing: this job has no tasks."""

    def _carry(self, site: str, fields: Fields) -> bool:
        with self._engine.new_context() as fl_ctx:
            replies = self._engine.send_aux_request(
                targets=[site],
                topic=TOPIC,
                request=_pack(fields),
                timeout=PIECE_SECONDS,
                fl_ctx=fl_ctx,
                optional=True,
            )
        return _is_taken(replies)

    def _take(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        peer = fl_ctx.get_peer_context()
        site = peer.get_identity_name() if peer else ""
        if not isinstance(site, str) or not site:
            return make_reply(ReturnCode.BAD_PEER_CONTEXT)
        return _reply(self._exit.take(site, _unpack(request)))


class SitePart(Executor):
    """Component in the site process of the job."""

    def __init__(self) -> None:
        super().__init__()
        self._entrance: Entrance | None = None
        self._is_over = Event()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Listen from the start of the job to its end."""
        if event_type == EventType.START_RUN:
            self._engine = fl_ctx.get_engine()
            self._engine.register_aux_message_handler(TOPIC, self._take)
            Thread(target=self._listen, name="listen", daemon=True).start()
        elif event_type == EventType.END_RUN:
            self._is_over.set()
            if self._entrance is not None:
                self._entrance.close()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Do nothing: this job has no tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _listen(self) -> None:
        """Listen as soon as possible. An error here would end the job of all sites."""
        while not self._is_over.is_set():
            try:
                self._entrance = Entrance(self._carry, find_port())
            except (OSError, ValueError) as error:
                self.logger.error(
                    f"the tunnel cannot listen here, and tries again: {error}"
                )
                self._is_over.wait(RETRY_SECONDS)
                continue
            self.logger.info(f"the coordinator is at 127.0.0.1:{self._entrance.port}")
            break
        if self._is_over.is_set() and self._entrance is not None:
            self._entrance.close()

    def _carry(self, fields: Fields) -> bool:
        with self._engine.new_context() as fl_ctx:
            replies = self._engine.send_aux_request(
                targets=[FQCN.ROOT_SERVER],
                topic=TOPIC,
                request=_pack(fields),
                timeout=PIECE_SECONDS,
                fl_ctx=fl_ctx,
                optional=True,
            )
        return _is_taken(replies)

    def _take(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        if self._entrance is None:
            return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
        return _reply(self._entrance.take(_unpack(request)))


def _pack(fields: Fields) -> Shareable:
    request = Shareable()
    request.update(fields)
    return request


def _unpack(request: Shareable) -> dict[str, object]:
    return {name: request[name] for name in FIELDS if name in request}


def _reply(is_taken: bool) -> Shareable:
    if is_taken:
        return make_reply(ReturnCode.OK)
    return make_reply(ReturnCode.BAD_REQUEST_DATA)


def _is_taken(replies: object) -> bool:
    """Return whether the receiver has acknowledged a request."""
    if not isinstance(replies, dict) or len(replies) != 1:
        return False
    (reply,) = replies.values()
    return isinstance(reply, Shareable) and reply.get_return_code() == ReturnCode.OK
