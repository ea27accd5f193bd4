"""Bytes in, bytes out: nothing here knows what they mean."""
