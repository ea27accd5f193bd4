"""``fallow completion``: shell completion of commands, options and names."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import typer

VARIABLE = "_FALLOW_COMPLETE"
"""The shell's script calls the command with this variable when Tab is pressed."""

Shell = Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Name of the shell")]


def completion(shell: Shell) -> None:
    """Print a shell completion script.

    For example:

    bash: fallow completion bash >> ~/.bashrc

    zsh: fallow completion zsh >> ~/.zshrc

    fish: fallow completion fish > ~/.config/fish/completions/fallow.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # no __all__ there

    script = get_completion_script(prog_name="fallow", complete_var=VARIABLE, shell=shell)
    typer.echo(script)


def prepare() -> None:
    """Answer completion requests of a shell script, if one is calling."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined] # no __all__ there

        completion_init()


def complete_config(incomplete: str) -> list[str]:
    """Return the names of configurations with a prefix."""
    from fallow.configs.find import list_configs

    return [name for name in list_configs() if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Return the settings with a prefix, as ``--set`` takes them."""
    from fallow.settings.listing import list_settings

    names = [setting.name for setting in list_settings()]
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def complete_strategies(incomplete: str) -> list[str]:
    """Return the strategies with a prefix, completing the last one of a comma-separated list."""
    from fallow.settings.components import components_of

    before, comma, last = incomplete.rpartition(",")
    words = [component.name for component in components_of("strategy")]
    return [f"{before}{comma}{word}" for word in sorted(words) if word.startswith(last)]
