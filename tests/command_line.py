"""The command as a shell sees it."""

from ensemble.__main__ import main


def exit_status(arguments):
    """The status, whether main returned it or argparse left with it."""
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code
