"""The `turnlog` command: what each subcommand does lies in a module of its own, imported when it is run.

Exit codes: 0 fine, 1 it ran and found something wrong, 2 it could not run (one line says why and what to do).
"""

import sys

from cyclopts import App, CycloptsError, Parameter

from domain.errors import TurnlogError
from services.cli.failures import COULD_NOT_RUN, FINE, CannotRun, one_line, say
from services.paths import UnloadableObject

app = App(
    name="turnlog",
    help="The durable backend of agent chat: submit, execute one at a time, watch from anywhere.",
    help_epilogue="Exit codes: 0 fine, 1 it ran and found something wrong, 2 it could not run.",
    version_flags=["--version"],
    default_parameter=Parameter(negative=()),
)
_COMMANDS = {
    "up": ("services.cli.up:up", "Start everything on this machine: PostgreSQL, NATS and the four roles, supervised."),
    "gateway": ("services.cli.roles:gateway", "Run a gateway: public HTTP, auth, streams."),
    "agent": ("services.cli.roles:agent", "Run an agent service: commands, queries and replay for gateways."),
    "worker": ("services.cli.roles:worker", "Run a worker: execute turns."),
    "projector": ("services.cli.roles:projector", "Run a projector: the relay and feed projections."),
    "migrate": ("services.cli.migrations:migrate", "Bring the databases to this release."),
    "chat": ("services.cli.talking:chat", "Type and watch the answer stream; Ctrl-C interrupts the turn."),
    "tail": ("services.cli.talking:tail", "Print the committed events of a session as they come."),
    "status": ("services.cli.status:status", "Show what a gateway says about itself, or about one session."),
    "projections": ("services.cli.projections:app", "Feed projections: how far they are, what they set aside."),
    "rebuild": ("services.cli.rebuild:rebuild", "Rebuild a read model from event zero while everything goes on."),
    "audit": ("services.cli.audit:audit", "Replay every event from zero and check everything that is stored."),
    "export": ("services.cli.export:export", "Write a session as lines that a stranger can check."),
    "replay": ("services.cli.replay:replay", "Show a session as a viewer saw it, from the log alone."),
    "erase": ("services.cli.erase:erase", "Remove what was written in a session, for good; its chain stays."),
    "restore-stamp": (
        "services.cli.restore:restore_stamp",
        "After a restore: give the feed its order, raise the epoch.",
    ),
    "config": ("services.cli.about:config", "Print every setting with its source, secrets masked."),
    "version": ("services.cli.about:version", "Print versions."),
}
"""Name -> where it is (imported when it is run) and its line in the list."""

for _name, (_place, _help) in _COMMANDS.items():
    app.command(_place, name=_name, help=_help)


def run(words: list[str] | None = None) -> int:
    """Run one command line; returns its exit code. What goes wrong on purpose is one line on standard error."""
    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        say(f"{one_line(error)} (see turnlog --help)")
        return COULD_NOT_RUN
    except (CannotRun, TurnlogError, UnloadableObject) as error:
        say(one_line(error))
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        return FINE
    except BrokenPipeError:
        # Whoever read our output has gone (`turnlog tail … | head`); Python would complain once more when it flushes.
        sys.stdout = None
        return FINE
    return code if isinstance(code, int) else FINE


def main() -> None:
    """Entry of the console script."""
    sys.exit(run())
