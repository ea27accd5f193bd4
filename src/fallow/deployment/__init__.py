"""Federation of real sites: several machines with their own data and annotators."""
