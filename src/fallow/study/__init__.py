"""Studies: experiments with several query strategies and seeds, their records and statistics."""
