"""What papers conclude from such studies, computed again from the records of one or several."""
