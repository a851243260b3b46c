"""What can go wrong, by kind. Each kind has the exit code that the command line ends with."""


class LabkitError(Exception):
    """A mistake or a limit that a user can act on; its message says what, where, and what to do."""

    exit_code = 2

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: a notebook shows the sentence, not a traceback."""
        return [f"{type(self).__name__}: {self}"]


class Refused(LabkitError):
    """labkit will not produce this result because it could not stand behind it."""

    exit_code = 1


class BadInput(LabkitError):
    """An argument, a parameter or a file is wrong."""

    exit_code = 2


class NotAvailable(LabkitError):
    """This machine or this installation cannot do what was asked."""

    exit_code = 3


class ChildFailed(LabkitError):
    """A rank or another child process failed."""

    exit_code = 4
