"""Flower as transport between a coordinator and remote sites (extra ``flower``)."""

from fallow.transport.flower.node_key import new_node_key
from fallow.transport.flower.sockets import SocketNode, private_socket, serve_socket
from fallow.transport.flower.superlink import Superlink
from fallow.transport.flower.supernode import Supernode
from fallow.transport.flower.transport import FlowerTransport

__all__ = [
    "FlowerTransport",
    "SocketNode",
    "Superlink",
    "Supernode",
    "new_node_key",
    "private_socket",
    "serve_socket",
]
