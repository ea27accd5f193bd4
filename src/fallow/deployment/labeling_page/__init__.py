"""Local labeling page for the annotators of a site."""

from fallow.deployment.labeling_page.app import create_app
from fallow.deployment.labeling_page.desk import LabelQueue
from fallow.deployment.labeling_page.login import open_proxy_door
from fallow.deployment.labeling_page.serve import serve, serve_behind_proxy

__all__ = [
    "LabelQueue",
    "create_app",
    "open_proxy_door",
    "serve",
    "serve_behind_proxy",
]
