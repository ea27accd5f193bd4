"""Signed audit trail of a party: annotators, disclosures and privacy costs, with times."""
