"""Site's end of HTTPS: fetches messages and sends replies, with outgoing requests only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import final

from fallow.core.types import SiteId
from fallow.transport.https.caller import Caller, ConnectionSettings, RequestFailed
from fallow.transport.https.signed import NONE, sum_of

# seconds before a failed request is repeated, doubled from the first to the last value
SHORTEST = 0.5
LONGEST = 15.0
GOODBYE = 5.0  # seconds for the thread to end
FAILED = "the process of the site failed to reply; it will retry"

Handle = Callable[[bytes], bytes]
"""Function that replies to a message."""


@final
class HttpsNode:
    """Connection of a site to its coordinator.

    ``problem`` is the connection error as a message, or None. One message is processed at a time,
    and the newest other one waits. The site continues to poll meanwhile, so that it remains online
    for the coordinator.
    """

    def __init__(
        self,
        calling: ConnectionSettings,
        site: SiteId,
        study: str,
        secret: bytes,
        handle: Handle,
    ) -> None:
        calling.check()
        self._calling = calling
        self._site = site
        self._study = study
        self._secret = secret
        self._handle = handle
        self._conversation: Conversation | None = None
        self._is_begun = Event()
        self._thread = Thread(target=self._run, name="https", daemon=True)

    @property
    def problem(self) -> str | None:
        """Return why the coordinator cannot be reached or rejects requests, or None."""
        conversation = self._conversation
        if conversation is None:
            return None
        return conversation.why_not_brought or conversation.why_not_asked

    def start(self) -> None:
        """Start to poll in the background."""
        self._thread.start()
        self._is_begun.wait()

    def stop(self) -> None:
        """Close every connection within seconds. An unfinished message is sent again later."""
        if self._conversation is not None:
            self._conversation.stop()
            self._thread.join(GOODBYE)

    def _run(self) -> None:
        asyncio.run(self._talk())

    async def _talk(self) -> None:
        caller = Caller(self._calling, self._site, self._study, self._secret)
        self._conversation = Conversation(caller, self._handle)
        self._is_begun.set()
        await self._conversation.go()


class Conversation:
    """Sequential requests of a site, concurrent with the processing of a message."""

    def __init__(self, caller: Caller, handle: Handle) -> None:
        self.why_not_asked: str | None = None
        self.why_not_brought: str | None = None
        self._caller = caller
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._is_stopped = asyncio.Event()
        self._at_work = NONE  # hash of the last accepted message
        self._next: bytes | None = None
        self._is_next = asyncio.Event()
        # a reply was lost, so its message is requested again
        self._is_lost = asyncio.Event()

    def stop(self) -> None:
        """Stop, from any thread."""
        with suppress(RuntimeError):  # it has already ended
            self._loop.call_soon_threadsafe(self._is_stopped.set)

    async def go(self) -> None:
        """Poll and reply until `stop`."""
        tasks = [
            asyncio.ensure_future(self._poll_for_ever()),
            asyncio.ensure_future(self._handle_messages()),
            asyncio.ensure_future(self._is_stopped.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            for end in ends:
                if isinstance(end, Exception):
                    self.why_not_asked = (
                        f"the connection has ended with {type(end).__name__}: {end}"
                    )
            await self._caller.close()

    async def _poll_for_ever(self) -> None:
        pause = SHORTEST
        clock = asyncio.get_running_loop()
        while True:
            began = clock.time()
            try:
                message = await self._poll()
            except RequestFailed as error:
                self.why_not_asked = str(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST)
                continue
            self.why_not_asked = None
            pause = SHORTEST
            if message:  # replaces a waiting message
                self._at_work = sum_of(message)
                self._next = message
                self._is_next.set()
            elif clock.time() - began < SHORTEST:
                # A coordinator holds a poll while it has no message. If it does not, the site must
                # not poll without a pause.
                await asyncio.sleep(SHORTEST)

    async def _poll(self) -> bytes:
        """Return the next message, or b"" if there is none or if a reply was lost."""
        asking = asyncio.ensure_future(self._caller.poll(self._at_work))
        lost = asyncio.ensure_future(self._is_lost.wait())
        try:
            await asyncio.wait({asking, lost}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            self._is_lost.clear()
            return b""
        finally:
            asking.cancel()
            lost.cancel()

    async def _handle_messages(self) -> None:
        pause = SHORTEST
        while True:
            await self._is_next.wait()
            self._is_next.clear()
            message = self._next
            if message is None:
                continue
            self._next = None
            instruction = sum_of(message)
            try:
                await self._caller.bring(instruction, await _call(self._handle, message))
            except RequestFailed as error:
                self.why_not_brought = str(error)
            else:
                self.why_not_brought = None
                pause = SHORTEST
            if self.why_not_brought is not None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST)
                self._is_lost.set()
            if self._at_work == instruction:
                self._at_work = NONE


async def _call(handle: Handle, message: bytes) -> bytes:
    """Return the reply to a message, computed in a daemon thread.

    Raises RequestFailed if there is none.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes | None] = loop.create_future()

    def settle(reply: bytes | None) -> None:
        if not done.done():
            done.set_result(reply)

    def work() -> None:
        reply = None
        # an error message may quote data and is discarded
        with suppress(Exception):
            reply = handle(message)
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, reply)

    Thread(target=work, name="instructions", daemon=True).start()
    reply = await done
    if reply is None:
        raise RequestFailed(FAILED)
    return reply
