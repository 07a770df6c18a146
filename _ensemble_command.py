"""The entry point of the `ensemble` command, outside the package so that it can look after the package's import."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Import the library and run the process's command line; returns the exit status.

    During the import, which computes nothing, Ctrl-C ends the process by the signal, as it
    ends any program without a handler.
    """
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ensemble.__main__ import main as command

    if handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return command()
    except KeyboardInterrupt:  # before the command line was read
        return 130


if __name__ == "__main__":
    sys.exit(main())
