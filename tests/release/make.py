"""Builds all parts of a release from a tag into `dist/`: `make release TAG=v0.2.0` (docs/how-to/release.md).

    python -m tests.release.make --tag v0.2.0

The sources are checked out anew, so that nothing of this tree gets in. All times in the parts are the tag's own: built
again with the same tools, each part has the same bytes. Only the image is not: it needs a builder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.chart.helm import helm
from tests.release.archives import checksums, repack
from tests.release.version import ROOT, version

TOOLS = ROOT / ".venv-release" / "bin"
_BUILDERS = {"docker": ("buildx", "inspect"), "podman": ("info",), "buildah": ("info",)}
"""What builds images, and what each answers where it works."""


class Refused(Exception):
    """What is asked for cannot be released."""


def check(sources: Path, tag: str) -> str:
    """Return the version of the sources.

    Raises:
        Refused: if the tag is of another version, or the changelog does not tell of this one.
    """
    found = version(sources)
    if tag.startswith("v") and tag != f"v{found}":
        raise Refused(f"tag {tag}: holdfast/__init__.py says {found}: expected v{found}")
    if not re.search(rf"^## {re.escape(found)} - \d{{4}}-\d\d-\d\d$", (sources / "CHANGELOG.md").read_text(), re.M):
        raise Refused(f"CHANGELOG.md: expected a section `## {found} - <date>`")
    return found


def build(sources: Path, out: Path, epoch: int) -> None:
    """Build wheel, sdist and chart."""
    env = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", str(out)]
    subprocess.run([*command, str(sources)], env=env, check=True, stdout=subprocess.DEVNULL)
    chart = str(sources / "deploy" / "chart")
    helm("lint", "--strict", chart, "--set", "cluster=prod,temporal.address=temporal:7233")
    helm("package", chart, "--destination", str(out))
    for archive in (*out.glob("*.tar.gz"), *out.glob("*.tgz")):
        repack(archive, epoch)


def describe(sources: Path, out: Path, name: str) -> None:
    """Install the wheel with its locked dependencies and start it; write what they are, and by which licences.

    Raises:
        Refused: if the installed command does not say this version.
    """
    (wheel,) = out.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = f"{folder}/bin/python"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        lock = str(sources / "requirements" / "runtime.lock")
        subprocess.run([*pip, "--require-hashes", "--only-binary", ":all:", "-r", lock], check=True)
        subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
        said = subprocess.run(
            [f"{folder}/bin/holdfast", "--version"], capture_output=True, text=True, check=True
        ).stdout
        if said != f"{name.replace('-', ' ')}\n":
            raise Refused(f"{wheel.name}: holdfast --version says {said!r}")
        # What installs is no part of what is installed.
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip"], check=True)
        bill = out / f"{name}.cdx.json"
        subprocess.run(
            [str(TOOLS / "cyclonedx-py"), "environment", "--output-reproducible", "--output-file", str(bill), python],
            check=True,
        )
        _without_paths(bill)
        with (out / f"{name}-licences.txt").open("w") as licences:
            options = ["--format", "plain-vertical", "--with-license-file", "--no-license-path", "--with-urls"]
            command = [str(TOOLS / "pip-licenses"), "--python", python, *options]
            subprocess.run(command, stdout=licences, stderr=subprocess.DEVNULL, check=True)


def _without_paths(bill: Path) -> None:
    """Take out where this machine has the wheel: it says nothing to anybody else, and differs."""
    text = json.loads(bill.read_text())
    for one in (text.get("metadata", {}).get("component", {}), *text["components"]):
        references = [each for each in one.get("externalReferences", ()) if not each["url"].startswith("file:")]
        if "externalReferences" in one:
            one["externalReferences"] = references
    bill.write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")


def _works(builder: str) -> bool:
    if shutil.which(builder) is None:
        return False
    return subprocess.run([builder, *_BUILDERS[builder]], capture_output=True, check=False).returncode == 0


def image(sources: Path, out: Path, name: str, epoch: int) -> str:
    """Build the image as an OCI archive, if this machine has a builder; return what was done."""
    builder = next((one for one in _BUILDERS if _works(one)), None)
    if builder is None:
        return f"no image: expected a working {' or '.join(_BUILDERS)}; docs/how-to/release.md has the step by hand"
    archive = out / f"{name}-image.tar"
    tag = f"holdfast:{name.removeprefix('holdfast-')}"
    if builder == "docker":
        options = ["buildx", "build", "--output", f"type=oci,rewrite-timestamp=true,dest={archive}"]
        options += ["--build-arg", f"SOURCE_DATE_EPOCH={epoch}", "--tag", tag]
        subprocess.run([builder, *options, str(sources)], check=True)
    else:
        subprocess.run([builder, "build", "--timestamp", str(epoch), "--tag", tag, str(sources)], check=True)
        subprocess.run([builder, "push", tag, f"oci-archive:{archive}"], check=True)
    return f"image: {archive.name}"


def release(tag: str, out: Path) -> str:
    """Build everything from a tag or another commit into an empty folder; return what came of the image.

    Raises:
        Refused: if the tag cannot be released.
        subprocess.CalledProcessError: if a part cannot be built.
    """
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise Refused(f"{out}: expected an empty folder: make clean")
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "holdfast"
        sources.mkdir()
        packed = subprocess.run(["git", "archive", tag], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "--extract", "--directory", str(sources)], input=packed, check=True)
        shown = subprocess.run(["git", "log", "-1", "--format=%ct", tag], cwd=ROOT, capture_output=True, check=True)
        epoch, name = int(shown.stdout), f"holdfast-{check(sources, tag)}"
        build(sources, out, epoch)
        describe(sources, out, name)
        done = image(sources, out, name, epoch)
    (out / "SHA256SUMS").write_text(checksums(out))
    return done


def main(argv: Sequence[str] | None = None) -> int:
    """Build a release; 1 if it is refused."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.release.make", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--tag", required=True, help="the tag, v and the version; another commit to try it out")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args(argv)
    try:
        print(release(given.tag, given.out))
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    print((given.out / "SHA256SUMS").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
