"""Local labeling page for the annotators of a site."""

from fallow.federation.page.app import create_app
from fallow.federation.page.desk import LabelQueue
from fallow.federation.page.login import open_proxy_door
from fallow.federation.page.serve import serve, serve_behind_proxy

__all__ = [
    "LabelQueue",
    "create_app",
    "open_proxy_door",
    "serve",
    "serve_behind_proxy",
]
