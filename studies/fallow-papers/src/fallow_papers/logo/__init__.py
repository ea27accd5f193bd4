"""LoGo (Kim et al., CVPR 2023): its protocol."""
