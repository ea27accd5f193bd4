"""Real sites: several machines, each with its own data and people, run one study together."""
