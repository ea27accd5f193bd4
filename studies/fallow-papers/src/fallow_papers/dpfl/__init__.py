"""DPFL (Kharrat, Canini & Horvath, AISTATS 2025)."""
