"""How orders reach sites in other processes: envelopes, checks of answers, relays, links."""
