"""Errors meant for the person at the terminal."""


class UserError(Exception):
    """A mistake in what was asked for: one line naming the key or file, what was found, and what is allowed.

    Command lines print the message without a traceback and exit with status 2.
    """
