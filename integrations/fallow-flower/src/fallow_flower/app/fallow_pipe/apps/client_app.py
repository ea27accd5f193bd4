"""Flower client app: passes one message to the site's process and returns its reply."""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ..pipe import MESSAGE, REPLY, connect, read, write


def query(message: Message, context: Context) -> Message:
    """Carry one message. A failure becomes Flower's error reply, and the message is sent again."""
    carried: Any = message.content["pipe"]["bytes"]
    try:
        with connect() as connection:
            write(connection, MESSAGE, carried)
            frame = read(connection)
    except OSError as error:
        raise ConnectionError("the process of the site does not run") from error
    if frame is None:
        raise ConnectionError("the process of the site ended before it answered")
    kind, payload = frame
    if kind != REPLY:
        raise ValueError(payload.decode(errors="replace"))
    return Message(RecordDict({"pipe": ConfigRecord({"bytes": payload})}), reply_to=message)


app = ClientApp()
app.query()(query)
