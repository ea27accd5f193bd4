"""Flower server app: sends the coordinator's messages to nodes and returns their replies."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from ..pipe import LOST, NODE, NODES, NUMBER, REPLY, connect, read, write

TURN = 0.25  # seconds between polls; Flower's own loop takes 3
LOOK = 4  # polls between checks of the connected nodes


def main(grid: Grid, context: Context) -> None:
    """Carry messages until the coordinator closes the connection."""
    waiting: dict[str, bytes] = {}  # Flower's id of a message -> the coordinator's number
    shown = ""
    turn = 0
    with connect() as connection:
        while True:
            if select.select([connection], [], [], TURN)[0]:
                frame = read(connection)
                if frame is None:
                    return
                push(grid, connection, frame[1], waiting)
                continue
            if waiting:
                for reply in grid.pull_messages(list(waiting)):
                    give(connection, reply, waiting)
            if turn % LOOK == 0 and (seen := online(grid)) != shown:
                shown = seen
                write(connection, NODES, seen.encode())
            turn += 1


def push(
    grid: Grid, connection: socket.socket, payload: bytes, waiting: dict[str, bytes]
) -> None:
    """Send one message with Flower."""
    number, node = NODE.unpack_from(payload)
    content = RecordDict({"pipe": ConfigRecord({"bytes": payload[NODE.size :]})})
    (value,) = grid.push_messages([Message(content, node, MessageType.QUERY)])
    if value:
        waiting[value] = NUMBER.pack(number)
    else:
        write(connection, LOST, NUMBER.pack(number) + b"Flower did not take the message")


def give(connection: socket.socket, reply: Message, waiting: dict[str, bytes]) -> None:
    """Pass on a reply. Errors may come from the SuperLink instead of the node."""
    number = waiting.pop(reply.metadata.reply_to_message_id, None)
    if number is None:
        return
    if reply.has_error():
        write(
            connection, LOST, number + f"{reply.error.reason or reply.error.code}".encode()
        )
    else:
        carried: Any = reply.content["pipe"]["bytes"]
        write(connection, REPLY, number + carried)


def online(grid: Grid) -> str:
    """Return the connected nodes. A node's name was bound to its key at registration."""
    nodes = [[node.node_id, node.name, node.last_activated_at] for node in grid.get_nodes()]
    return json.dumps(sorted(nodes))


app = ServerApp()
app.main()(main)
