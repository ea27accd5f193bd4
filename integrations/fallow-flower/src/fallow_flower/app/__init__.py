"""Flower app that passes bytes. Flower copies its files to each site."""
