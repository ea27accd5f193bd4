"""A Flower app that passes bytes on.  Its files are all that Flower copies to a site."""
