"""Tunnel of a site's connections to its coordinator through a job of NVFlare."""
