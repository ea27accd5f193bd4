"""Flower as the transport between a coordinator and real sites; the extra ``flower``."""

from fallow.runtimes.flower.certificates import Tls, new_node_key, new_tls
from fallow.runtimes.flower.link import FlowerLink
from fallow.runtimes.flower.sockets import private_socket, serve_socket
from fallow.runtimes.flower.superlink import Superlink
from fallow.runtimes.flower.supernode import Supernode

__all__ = [
    "FlowerLink",
    "Superlink",
    "Supernode",
    "Tls",
    "new_node_key",
    "new_tls",
    "private_socket",
    "serve_socket",
]
