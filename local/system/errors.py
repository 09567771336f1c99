"""The errors of the local stack; each names the failure and a remedy."""


class StackError(Exception):
    """A step of the local stack failed.

    Args:
        what: the step that failed, and how it failed.
        remedy: what the user can try, as an instruction.
        log_tail: last lines of the log that explains the failure, if there is one.
    """

    def __init__(self, what: str, remedy: str = "", log_tail: str = "") -> None:
        self.what = what
        self.remedy = remedy
        self.log_tail = log_tail
        super().__init__(self.__str__())

    def __str__(self) -> str:
        parts = [self.what]
        if self.log_tail:
            parts.append("--- last lines of the log\n" + self.log_tail.rstrip() + "\n---")
        if self.remedy:
            parts.append(f"Try: {self.remedy}")
        return "\n".join(parts)


class BinaryError(StackError):
    """A program that the stack needs could not be found, downloaded or built."""


class PartError(StackError):
    """A part of the stack did not start, or did not become healthy in time."""


class NotRunningError(StackError):
    """The named stack does not exist or is not running."""
