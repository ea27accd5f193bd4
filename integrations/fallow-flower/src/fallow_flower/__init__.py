"""Flower as transport between a coordinator and remote sites."""

from fallow_flower.channel import FlowerTransport
from fallow_flower.node_key import new_node_key
from fallow_flower.sockets import SocketNode, private_socket, serve_socket
from fallow_flower.superlink import Superlink
from fallow_flower.supernode import Supernode
from fallow_flower.transport import Flower

__all__ = [
    "Flower",
    "FlowerTransport",
    "SocketNode",
    "Superlink",
    "Supernode",
    "new_node_key",
    "private_socket",
    "serve_socket",
]
