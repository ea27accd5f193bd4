"""Both ends of each link, made of the folders of a coordinator and of a site."""
