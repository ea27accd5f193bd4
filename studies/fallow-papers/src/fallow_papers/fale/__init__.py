"""FALE (Tang et al., ICML 2025)."""
