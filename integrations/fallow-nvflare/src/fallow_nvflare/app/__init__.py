"""Code of the NVFlare job, the only code that runs in NVFlare's processes."""
