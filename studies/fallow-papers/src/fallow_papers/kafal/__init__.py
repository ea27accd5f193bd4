"""KAFAL (Cao et al., ICCV 2023): its protocol."""
