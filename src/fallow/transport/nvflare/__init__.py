"""NVFlare as transport between a coordinator and remote sites: a job that forwards HTTPS."""

from fallow.transport.nvflare.job import FOLDER, JOB, KEEP, write_job

__all__ = ["FOLDER", "JOB", "KEEP", "write_job"]
