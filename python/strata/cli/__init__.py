"""The command `strata`. One file per subcommand; `main` turns every outcome into an exit code and a last line.

Results go to stdout, everything for people (memory plan, progress, summary, errors) to stderr.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import NoReturn

import click

from strata import __version__
from strata.cli.cache import cache_command
from strata.cli.config import config_command
from strata.cli.doctor import doctor_command
from strata.cli.dump_compare import dump_compare_command
from strata.cli.explain import explain_command
from strata.cli.inspect import inspect_command
from strata.cli.kld import kld_command
from strata.cli.parity import kernel_parity_command, route_parity_command
from strata.cli.plan import plan_command
from strata.cli.prefill import prefill_command
from strata.cli.replay import replay_command
from strata.cli.run import run_command
from strata.cli.ssd import ssd_command
from strata.cli.synth import synth_command
from strata.config import ConfigWarning
from strata.errors import OutOfMemoryPlanError, StrataError

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

EPILOG = """\b
Examples:
  strata run --demo -p "Once upon a time" -n 60
  strata inspect model.gguf
  strata plan model.gguf --ram 24G

\b
Exit codes: 0 done; 1 an error (one sentence on stderr; STRATA_DEBUG=1 adds a
traceback); 2 wrong usage; 130 interrupted. Results go to stdout, everything
else to stderr. A file named - is stdin. NO_COLOR is respected.

\b
Completion for bash (or zsh, fish): eval "$(_STRATA_COMPLETE=bash_source strata)"
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="strata")
def strata() -> None:
    """Runs mixture-of-experts models larger than memory: experts are read from the SSD as they are needed."""


strata.add_command(prefill_command)
strata.add_command(run_command)
strata.add_command(inspect_command)
strata.add_command(explain_command)
strata.add_command(config_command)
strata.add_command(doctor_command)
strata.add_command(cache_command)
strata.add_command(dump_compare_command)
strata.add_command(kld_command)
strata.add_command(route_parity_command)
strata.add_command(kernel_parity_command)
strata.add_command(plan_command)
strata.add_command(replay_command)
strata.add_command(ssd_command)
strata.add_command(synth_command)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line (default sys.argv) and exits the process."""
    sys.exit(run_guarded(strata, args, "strata"))


def run_guarded(command: click.Command, args: Sequence[str] | None, name: str) -> int:
    """Runs a command; whatever comes of it is an exit code, and one line on stderr when it is an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a text in another alphabet than the terminal's is no error
    with warnings.catch_warnings(), _second_interrupt_ends():
        warnings.simplefilter("always", ConfigWarning)
        warnings.showwarning = _show_warning
        return _run(command, args, name)


@contextlib.contextmanager
def _second_interrupt_ends() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt once; after that the system's own way is back, which ends the process at once.

    So it ends even while the first one waits for a drive that does not answer.
    """
    before = signal.getsignal(signal.SIGINT)
    main_thread = threading.current_thread() is threading.main_thread()
    if before is not signal.default_int_handler or not main_thread:  # ignored, as under nohup, or somebody else's
        yield
        return

    def once(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run(command: click.Command, args: Sequence[str] | None, name: str) -> int:
    try:
        code = command.main(args, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_OK
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted.", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout has gone, as `| head` does: no error to tell, and nothing left to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except OutOfMemoryPlanError as e:
        if e.plan:
            click.echo(e.plan.rstrip("\n"), err=True)
        sentence = str(e).removesuffix(e.plan).rstrip()  # the core's message ends with the table
        return _fail(f"error: {sentence}", EXIT_ERROR)
    except (StrataError, OSError) as e:
        return _fail(f"error: {e}", EXIT_ERROR)
    except Exception as e:
        text = f"internal error: {type(e).__name__}: {e} (STRATA_DEBUG=1 shows where; please report it)"
        return _fail(text, EXIT_ERROR)


def _fail(line: str, code: int) -> int:
    if os.environ.get("STRATA_DEBUG"):
        traceback.print_exc()
    click.echo(line, err=True)
    return code


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(f"warning: {message}", err=True)
