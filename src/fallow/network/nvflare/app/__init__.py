"""What a job of NVFlare brings along: the code that runs in NVFlare's processes, and no other."""
