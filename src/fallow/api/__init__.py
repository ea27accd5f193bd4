"""The front door: objects in, data frames out.  What `fallow` itself offers is made here."""
