"""Key that authenticates a SuperNode at Flower's SuperLink."""

from __future__ import annotations

from pathlib import Path

from fallow.core.optional import import_privacy
from fallow.transport.tls import encode_key, write_new_file

PURPOSE = "a key of a node"


def new_node_key(path: Path) -> str:
    """Write the private key of a SuperNode and return the public key, also written to .pub.

    Flower accepts elliptic-curve keys of a NIST curve in OpenSSH format.
    """
    elliptic = import_privacy("cryptography.hazmat.primitives.asymmetric.ec", PURPOSE)
    formats = import_privacy("cryptography.hazmat.primitives.serialization", PURPOSE)
    secret = elliptic.generate_private_key(elliptic.SECP384R1())
    public = secret.public_key().public_bytes(
        formats.Encoding.OpenSSH, formats.PublicFormat.OpenSSH
    )
    write_new_file(path, encode_key(secret, "OpenSSH"))
    write_new_file(path.with_name(path.name + ".pub"), public + b"\n")
    return str(public.decode())
