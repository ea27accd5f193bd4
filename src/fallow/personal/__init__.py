"""Personalised federated learning: one model per site."""
