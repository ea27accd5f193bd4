"""The audit trail of a party: who labelled, what left, what noise cost, with times; signed."""
