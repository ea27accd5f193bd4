"""Flower as transport between a coordinator and remote sites (extra ``flower``)."""

from fallow.network.flower.link import FlowerLink
from fallow.network.flower.node_key import new_node_key
from fallow.network.flower.sockets import SocketNode, private_socket, serve_socket
from fallow.network.flower.superlink import Superlink
from fallow.network.flower.supernode import Supernode

__all__ = [
    "FlowerLink",
    "SocketNode",
    "Superlink",
    "Supernode",
    "new_node_key",
    "private_socket",
    "serve_socket",
]
