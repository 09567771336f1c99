"""What becomes of every example file that JobSet and AppWrapper publish: `python -m tests.published` writes the page.

The files are read as `holdfast submit` reads them. A file that is not accepted needs a reason here (row J26).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from holdfast import formats
from holdfast.errors import HoldfastError

ROOT: Final = Path(__file__).parent / "formats" / "published"
PAGE: Final = Path("docs/reference/published-examples.md")
SUITES: Final = {
    "jobset": "JobSet, `site/static/examples` at commit 08dfbdfd (after 0.12)",
    "appwrapper": "AppWrapper 1.2.1, `samples`",
}
_KIND: Final = "no workload: the configuration of a kind cluster, which is no object of Kubernetes"
_GROUP: Final = "no workload: it describes a group of pods to the scheduler; apply it with kubectl"
_PRIORITY: Final = "no workload: a PriorityClass; apply it with kubectl"
REASONS: Final = {
    "jobset/argo-workflow/rbac.yaml": "no workload: rights for Argo; apply them with kubectl",
    "jobset/argo-workflow/workflow.yaml": "no workload: an Argo Workflow, whose step creates a JobSet itself",
    "jobset/in-place-restart/jobset-main-container-mode.yaml": (
        "refused: its agent runs the program itself, and waits for a status that Holdfast does not write; "
        "[use a sidecar](../how-to/jobsets.md#restart-containers-and-keep-the-pods)"
    ),
    "jobset/in-place-restart/service-account.yaml": "no workload: rights for its agent; apply them with kubectl",
    "jobset/prometheus-operator/prometheus.yaml": "no workload: it monitors JobSet's own controller",
    "jobset/tpu-multislice/kueue-config.yaml": "no workload: the configuration of Kueue; apply it with kubectl",
    "jobset/workload-aware-scheduling/dra/kind.yaml": _KIND,
    "jobset/workload-aware-scheduling/dra/podgroup.yaml": _GROUP,
    "jobset/workload-aware-scheduling/dra/resourceclaimtemplate.yaml": (
        "no workload: a ResourceClaimTemplate; apply it with kubectl"
    ),
    "jobset/workload-aware-scheduling/dra/workload.yaml": _GROUP,
    "jobset/workload-aware-scheduling/kind.yaml": _KIND,
    "jobset/workload-aware-scheduling/podgroup.yaml": _GROUP,
    "jobset/workload-aware-scheduling/preemption/high-priority.yaml": _PRIORITY,
    "jobset/workload-aware-scheduling/preemption/low-priority.yaml": _PRIORITY,
    "jobset/workload-aware-scheduling/tas/podgroup.yaml": _GROUP,
    "jobset/workload-aware-scheduling/tas/workload.yaml": _GROUP,
    "jobset/workload-aware-scheduling/workload.yaml": _GROUP,
}
"""Why a file is not accepted, by its path."""
HEAD: Final = """# Published examples
Every example file of JobSet and of AppWrapper, and whether Holdfast accepts it.

- **accepted**: Holdfast takes it as it is, as `holdfast validate` says. No API server was asked.
- **no workload**: the file brings no pods. It belongs to another program, or prepares the cluster.
- **refused**: with the reason.

Written by `python -m tests.published`; do not edit. `tests/formats/test_published.py` holds it against the files.
"""


class Verdict(NamedTuple):
    """What becomes of one file."""

    path: str
    kinds: tuple[str, ...]
    accepted: bool
    says: str


def verdicts(suite: str) -> Iterator[Verdict]:
    """Yield the verdict on each file of a suite.

    Raises:
        ValueError: if a file that is not accepted has no reason, or one that is accepted has one.
    """
    for file in sorted((ROOT / suite).rglob("*.yaml")):
        path, text = str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
        documents: list[Any] = list(yaml.safe_load_all(text))
        kinds = tuple(dict.fromkeys(str(one["kind"]) for one in documents if one))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                formats.read(text, cluster="dev")
                accepted = True
            except HoldfastError:
                accepted = False
        if accepted is (path in REASONS):
            raise ValueError(f"{path}: {'is accepted, and has a reason' if accepted else 'has no reason'}: {REASONS=}")
        left = [str(one.message).partition(" (line")[0] for one in told if "is not created" in str(one.message)]
        beside = f"; {' and '.join(f'`{one}`' for one in left)} beside it: apply with kubectl" if left else ""
        yield Verdict(path.partition("/")[2], kinds, accepted, f"accepted{beside}" if accepted else REASONS[path])


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for suite, title in SUITES.items():
        found = list(verdicts(suite))
        parts.append(f"\n## {title}\n{sum(one.accepted for one in found)} of {len(found)} files are accepted.\n")
        parts.append("\n| file | kinds | verdict |\n|---|---|---|\n")
        parts += [f"| `{one.path}` | {', '.join(one.kinds)} | {one.says} |\n" for one in found]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
