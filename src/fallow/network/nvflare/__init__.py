"""NVFlare as the transport between a coordinator and real sites: a job of it carries HTTPS."""

from fallow.network.nvflare.job import FOLDER, JOB, KEEP, write_job

__all__ = ["FOLDER", "JOB", "KEEP", "write_job"]
