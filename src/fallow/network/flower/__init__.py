"""Flower as the transport between a coordinator and real sites; the extra ``flower``."""

from fallow.network.flower.certificates import Tls, new_node_key, new_tls
from fallow.network.flower.link import FlowerLink
from fallow.network.flower.sockets import SocketNode, private_socket, serve_socket
from fallow.network.flower.superlink import Superlink
from fallow.network.flower.supernode import Supernode

__all__ = [
    "FlowerLink",
    "SocketNode",
    "Superlink",
    "Supernode",
    "Tls",
    "new_node_key",
    "new_tls",
    "private_socket",
    "serve_socket",
]
