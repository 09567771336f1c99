"""A worker that does as its test says. It holds a socket to it, whose end is the proof that the process has ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(path: str, name: str) -> None:
    """Say who this is, then do what is said, one order a line, and answer each."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(path)

    def say(word: object) -> None:
        channel.sendall(json.dumps(word).encode() + b"\n")

    say({"name": name, "pid": os.getpid(), "session": os.getsid(0), "environment": dict(os.environ), "argv": sys.argv})
    for line in channel.makefile():
        order = json.loads(line)
        match order["do"]:
            case "exit":
                os._exit(order["code"])
            case "signal":
                os.kill(os.getpid(), order["number"])
            case "trap":
                # With no code it says that it was asked, and stays.
                code = order.get("code")
                signal.signal(signal.SIGTERM, lambda *_, code=code: (say("TERM"), code is None or os._exit(code)))
            case "write":
                with open(order["path"], "w", encoding="utf-8") as file:
                    file.write(order["text"])
            case "fork":
                if os.fork() == 0:
                    channel.close()
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    if order.get("session"):
                        os.setsid()
                    main(path, order["name"])
                    os._exit(0)
        say("done")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
