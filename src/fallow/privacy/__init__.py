"""The part of the door that protects what leaves a site."""
