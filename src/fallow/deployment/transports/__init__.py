"""Transports, built from the folders of a coordinator and of a site."""
