"""Where tables and progress are printed."""

from rich.console import Console

_WIDTH_WITHOUT_TERMINAL = 150
"""A file or a pipe has no width of its own, and the default of 80 would break tables."""


def stdout_console(*, markup: bool = False) -> Console:
    """Return a console on standard output, wide enough where that is no terminal.

    Args:
        markup: whether ``[red]`` and the like are colours; paths and settings may hold brackets of their own.
    """
    console = Console(markup=markup)
    return console if console.is_terminal else Console(markup=markup, width=_WIDTH_WITHOUT_TERMINAL)
