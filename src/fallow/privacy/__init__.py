"""Protection of everything that leaves a site."""

from fallow.privacy.guard import ReleaseGuard
from fallow.privacy.ledger import Released, ReleaseLedger
from fallow.privacy.secure_sum import SecureSum
from fallow.privacy.settings import Privacy, check_fit, masks_refusal, noise_refusal

__all__ = [
    "Privacy",
    "ReleaseGuard",
    "ReleaseLedger",
    "Released",
    "SecureSum",
    "check_fit",
    "masks_refusal",
    "noise_refusal",
]
