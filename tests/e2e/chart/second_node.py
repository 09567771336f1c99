"""A second real node beside a stack's own, for tests that lose one: a containerd and a kubelet of its own."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.local import Stack
from holdfast.local.node.real_node import PORTS, RealNode, import_images, parts, prepare
from holdfast.local.node.sweep import sweep
from holdfast.local.system.parts import Layout
from holdfast.local.system.runner import Runner
from holdfast.local.system.state import StackState

NAME: Final = "real-2"


class SecondNode:
    """The node. It registers with the label and the taint of the stack's own."""

    def __init__(self, stack: Stack) -> None:
        layout = Layout(stack.directory / "second")
        layout.directory.mkdir()
        (layout.directory / "pki").symlink_to(stack.layout.pki)
        self.real = RealNode(layout.directory)
        """Its paths."""
        self._stack = stack
        self._runner = Runner(layout, StackState(f"{stack.name}-second"))

    @property
    def runs(self) -> bool:
        """Whether it is there."""
        return self._runner.process("kubelet") is not None

    def start(self, *archives: Path) -> None:
        """Start its parts with the images of these archives beside its own, and wait until it is ready."""
        stack, runner = self._stack, self._runner
        prepare(self.real, stack.binary("containerd-shim-runc-v2"))
        self._lead_out()
        runner.settle_ports(PORTS, dict.fromkeys(PORTS, "kubelet"))
        binaries = {name: str(stack.binary(name)) for name in ("containerd", "kubelet")}
        own = {"--hostname-override": NAME, "--kubeconfig": str(stack.kubeconfig)}

        def mine(word: str) -> str:
            option = word.partition("=")[0]
            return f"{option}={own[option]}" if option in own else word

        for part in parts(runner.layout, self.real, binaries, runner.state.ports):
            runner.start(replace(part, argv=tuple(map(mine, part.argv))))
            if part.name == "containerd":
                for archive in (None, *archives):
                    import_images(self.real, stack.binary("ctr"), archive)
        stack.kubectl("wait", "--for=create", "--timeout=60s", f"node/{NAME}")
        stack.kubectl("wait", "--for=condition=Ready", "--timeout=60s", f"node/{NAME}")

    def lose(self) -> None:
        """Lose it as when its power fails: first nothing that it sends arrives, then nothing of it is there."""
        subprocess.run(["ip", "link", "set", self.real.bridge, "down"], check=True)
        self.remove()

    def remove(self) -> None:
        """Kill its parts and containers, and remove what it left on this machine."""
        for name in ("kubelet", "containerd"):
            if self._runner.process(name):
                self._runner.stop(name, signal.SIGKILL)
        sweep(self.real)

    def _lead_out(self) -> None:
        """Let its pods reach the address of the stack's own node, where the servers are."""
        file = self.real.data / "cni" / "10-holdfast.conflist"
        config = json.loads(file.read_text())
        config["plugins"][0]["isDefaultGateway"] = True
        file.write_text(json.dumps(config))
