"""Connections of a site, carried to its coordinator by a job of NVFlare."""
