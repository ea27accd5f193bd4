"""NVFlare as transport between a coordinator and remote sites: a job that forwards HTTPS."""

from fallow_nvflare.job import FOLDER, JOB, KEEP, write_job
from fallow_nvflare.transport import NVFlare

__all__ = ["FOLDER", "JOB", "KEEP", "NVFlare", "write_job"]
