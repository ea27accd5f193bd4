"""A page on this machine, for the people who label a site's samples."""

from fallow.federation.page.app import create_app
from fallow.federation.page.desk import LabelQueue
from fallow.federation.page.serve import serve

__all__ = ["LabelQueue", "create_app", "serve"]
