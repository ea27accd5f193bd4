"""HTTPS as transport between a coordinator and remote sites, with requests from sites only."""

from fallow.network.https.caller import Calling
from fallow.network.https.link import HttpsLink, Listening
from fallow.network.https.node import HttpsNode
from fallow.network.tls import Pair

__all__ = ["Calling", "HttpsLink", "HttpsNode", "Listening", "Pair"]
