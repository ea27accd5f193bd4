"""HTTPS as transport between a coordinator and remote sites, with requests from sites only."""

from fallow.transport.https.caller import ConnectionSettings
from fallow.transport.https.node import HttpsNode
from fallow.transport.https.transport import HttpsTransport, Listening
from fallow.transport.tls import Pair

__all__ = ["ConnectionSettings", "HttpsNode", "HttpsTransport", "Listening", "Pair"]
