"""The transport ``flower``: a SuperLink at the coordinator, a SuperNode at each site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from fallow.core.events import EventHandler
from fallow.privacy.signing import decode_text
from fallow.storage.errors import StorageError
from fallow.transport.factory import (
    CoordinatorEnd,
    Handle,
    ServedTransport,
    SiteEnd,
    SiteNode,
    TransportFactory,
)
from fallow_flower.channel import FlowerTransport
from fallow_flower.node_key import new_node_key
from fallow_flower.sockets import SocketNode
from fallow_flower.supernode import Supernode

FOLDER = "flower"
"""Folder of Flower's files in the folder of a coordinator or a site."""
NODE = "node"
PUBLIC = re.compile(r"ecdsa-sha2-nistp\d+ (?P<key>[A-Za-z0-9+/]+=*)")
"""Form of a public key that Flower accepts, without a comment: each key has one text."""


class Flower(TransportFactory):
    """Flower over TLS."""

    title: ClassVar[str] = "Flower, over TLS"

    @staticmethod
    def open(end: CoordinatorEnd, notify: EventHandler) -> ServedTransport:
        """Start a SuperLink and its dependencies."""
        if end.tls is None:
            raise ValueError("Flower needs the certificate of the coordinator")
        nodes = dict(end.transport_keys)
        return FlowerTransport(end.folder / FOLDER, end.address, end.tls, nodes, notify)

    @staticmethod
    def connect(end: SiteEnd, handle: Handle) -> SiteNode:
        """Start a SuperNode, which passes instructions to a local socket."""

        def make_node(at: Path) -> Supernode:
            return Supernode(
                folder=end.folder / FOLDER,
                site=end.name,
                superlink=end.address,
                key=end.keys / NODE,
                socket=at,
                authority=end.authority,
            )

        return SocketNode(end.folder, handle, make_node)

    @staticmethod
    def make_key(keys: Path) -> str:
        """Create the key of a SuperNode, unless it exists, and return the public key."""
        public = keys / f"{NODE}.pub"
        if not (public.exists() and public.read_text().strip()):
            (keys / NODE).unlink(missing_ok=True)
            public.unlink(missing_ok=True)
            new_node_key(keys / NODE)
        kind, key, *_ = public.read_text().split()
        return f"{kind} {key}"

    @staticmethod
    def check_key(key: str) -> None:
        """Raise ValueError unless Flower accepts the public key of a SuperNode."""
        match = PUBLIC.fullmatch(key)
        if match is None or not decode_text(match["key"]):
            raise ValueError("is not a public key of a Flower node")

    @staticmethod
    def check_site(keys: Path) -> None:
        """Raise StorageError without the key of the SuperNode."""
        file = keys / NODE
        if not file.is_file():
            raise StorageError(
                f"{file} is missing: restore it from a backup, or create the site's folder again "
                "and send the coordinator its join.json"
            )
