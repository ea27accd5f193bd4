"""Client app and server app, which Flower starts. Only these modules import Flower."""
