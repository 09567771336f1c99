"""The requirements of a real node: checks them on this machine, and installs Debian packages if possible."""

import os
import shutil
import subprocess
from pathlib import Path

from holdfast.local.programs.images import is_static
from holdfast.local.system.errors import StackError

DEBIAN_PACKAGES = {
    "runc": "runc",
    "CNI plugins": "containernetworking-plugins",
    "a static busybox": "busybox-static",
    "openssl": "openssl",
    "ip": "iproute2",
}
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))


def find_static_busybox() -> Path | None:
    """Return a busybox that runs in an empty image."""
    for name in ("busybox", "/bin/busybox", "/usr/bin/busybox"):
        found = shutil.which(name)
        if found and is_static(Path(found)):
            return Path(found)
    return None


def find_cni() -> Path | None:
    """Return the folder with the CNI plugins."""
    return next((folder for folder in CNI_FOLDERS if (folder / "bridge").exists()), None)


def missing_requirements() -> list[str]:
    """Return the requirements that the operating system does not meet; keys of `DEBIAN_PACKAGES`."""
    found = {
        "runc": shutil.which("runc"),
        "CNI plugins": find_cni(),
        "a static busybox": find_static_busybox(),
        "openssl": shutil.which("openssl"),
        "ip": shutil.which("ip"),
    }
    return [name for name, path in found.items() if not path]


def require() -> None:
    """Ensure that this machine can run a real node; install Debian packages if possible.

    Raises:
        StackError: it cannot; with the missing requirements.
    """
    if os.uname().sysname != "Linux":
        raise StackError("a real node needs Linux", "holdfast dev up without --real-node")
    if os.geteuid() != 0:
        raise StackError("a real node needs root: it mounts, and makes cgroups and network namespaces", "sudo")
    missing = missing_requirements()
    if not missing:
        return
    packages = [DEBIAN_PACKAGES[name] for name in missing]
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    said = "there is no apt-get"
    if shutil.which("apt-get"):
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode != 0:
            # The package lists of a fresh image are often missing or old.
            subprocess.run(["apt-get", "update"], capture_output=True, env=env, check=False)
            done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        said = done.stderr.strip()
    missing = missing_requirements()
    if missing:
        raise StackError(
            f"the real node needs {', '.join(missing)} ({said})",
            f"install the packages that provide them; on Debian: {' '.join(command)}",
        )
