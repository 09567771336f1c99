"""Creates tokens, keys and kubeconfig files of a local cluster, with nothing but the standard library."""

import base64
import secrets
import tempfile
from pathlib import Path

import yaml

# Every control plane program has its own user name, so that the audit log shows who sent a request.
USERS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", "system:masters"),
    "kwok": ("kwok", "system:masters"),
    "kubelet": ("system:node:real", "system:nodes"),
}

_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_P256_OID = bytes.fromhex("06082a8648ce3d030107")


def ensure_tokens(path: Path) -> dict[str, str]:
    """Return the token of each user from the API server's token file; write the file on first use.

    Returns:
        Token by key of `USERS`.
    """
    if not path.exists():
        rows = [f'{secrets.token_urlsafe(32)},{user},{key},"{group}"\n' for key, (user, group) in USERS.items()]
        write_private(path, "".join(rows))
    tokens = {line.split(",")[2]: line.split(",")[0] for line in path.read_text().splitlines() if line}
    return {key: tokens[key] for key in USERS}


def ensure_signing_key(path: Path) -> None:
    """Write a fresh P-256 private key to sign service account tokens, unless one exists."""
    if path.exists():
        return
    number = (1 + secrets.randbelow(_P256_ORDER - 1)).to_bytes(32, "big")
    # SEC 1 ECPrivateKey without the optional public key: version 1, the number, and [0] the curve.
    body = b"\x02\x01\x01" + _der(0x04, number) + _der(0xA0, _P256_OID)
    text = base64.encodebytes(_der(0x30, body)).decode()
    write_private(path, f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n")


def _der(tag: int, content: bytes) -> bytes:
    return bytes([tag, len(content)]) + content


def kubeconfig(server: str, authority: bytes, token: str, name: str) -> str:
    """Return the text of a kubeconfig.

    Args:
        server: address of the API server.
        authority: PEM certificate to verify the server's certificate.
        token: the bearer token.
        name: name of the cluster and of the context.
    """
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": base64.b64encode(authority).decode(),
                    },
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "users": [{"name": name, "user": {"token": token}}],
        },
        sort_keys=False,
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in one step; keep an unchanged file."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Use a unique name, readable by its owner alone, because two processes may write the same file at once.
    handle, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(handle, "w") as file:
        file.write(text)
    Path(fresh).replace(path)
