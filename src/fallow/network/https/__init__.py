"""HTTPS as the transport between a coordinator and real sites: sites call, and never are called."""

from fallow.network.https.link import HttpsLink
from fallow.network.https.node import HttpsNode

__all__ = ["HttpsLink", "HttpsNode"]
