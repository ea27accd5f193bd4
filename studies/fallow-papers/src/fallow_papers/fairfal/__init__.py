"""FairFAL (Zong & Huang, CVPR 2026)."""
