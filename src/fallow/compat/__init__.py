"""What a paper's public code did differently from the paper; never the default."""
