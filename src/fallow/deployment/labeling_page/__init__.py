"""Local labeling page for the annotators of a site."""

from fallow.deployment.labeling_page.app import create_app
from fallow.deployment.labeling_page.label_queue import LabelQueue
from fallow.deployment.labeling_page.login import open_proxy_access
from fallow.deployment.labeling_page.serve import serve, serve_behind_proxy

__all__ = [
    "LabelQueue",
    "create_app",
    "open_proxy_access",
    "serve",
    "serve_behind_proxy",
]
