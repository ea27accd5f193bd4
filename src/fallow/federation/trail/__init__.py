"""The audit trail of a party: who labeled, what left, what noise cost, with times; signed."""
