"""Forwarding of uninterpreted bytes."""
