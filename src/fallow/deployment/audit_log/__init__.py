"""Signed audit log of a party: annotators, disclosures and privacy costs, with times."""
