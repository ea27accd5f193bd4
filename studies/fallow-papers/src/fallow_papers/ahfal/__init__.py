"""AHFAL (Federated Active Learning via Class-Adaptive Local-Global Balancing)."""
