"""`trot --completion`: a script by which bash and zsh complete commands, and the tasks that some of them take first."""

from __future__ import annotations

from collections.abc import Iterable

TAKE_TASKS = ("train", "play", "view", "render", "try", "check", "compare", "tune")

SCRIPT = """\
if [ -n "$ZSH_VERSION" ]; then autoload -U +X compinit bashcompinit && compinit && bashcompinit; fi
_trot() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}"
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
  elif [ "$COMP_CWORD" -eq 2 ]; then
    case "${{COMP_WORDS[1]}}" in
      {take_tasks}) COMPREPLY=($(compgen -W "{tasks}" -- "$word"; compgen -f -- "$word")) ;;
    esac
  fi
}}
complete -o default -F _trot trot
"""


def completion_script(commands: Iterable[str], tasks: Iterable[str]) -> str:
    """For `eval "$(trot --completion)"`; whatever it does not know is completed as a file."""
    return SCRIPT.format(commands=" ".join(commands), tasks=" ".join(tasks), take_tasks="|".join(TAKE_TASKS))
