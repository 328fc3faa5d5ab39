"""The command line: a table of stages and verbs that imports a stage only when one of its verbs is called."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from webtext import __version__
from webtext.base.errors import ConfigError, DryRun, MachineError, WebtextError, did_you_mean, missing_extra, one_line

if TYPE_CHECKING:
    from webtext.base.console import Console

STAGES = {
    "crawl": ("webtext.crawl.command:group", "Collect links from votes; fetch their pages."),
    "clean": ("webtext.clean.command:group", "Turn pages into a corpus: extract, filter, deduplicate."),
    "tokenizer": ("webtext.tokenizer.command:group", "Train and apply a byte-level BPE."),
    "shards": ("webtext.shards.command:group", "Pack a corpus into token shards and inspect them."),
    "train": ("webtext.train.command:group", "Plan, train, evaluate, sample and export a GPT-2."),
    "build": ("webtext.app.command:build", "Links to tokens, all stages; skips what is done."),
    "pretrain": ("webtext.app.command:pretrain", "Build, then train and evaluate: the whole pipeline."),
    "inspect": ("webtext.app.command:inspect", "Show why a record is kept or dropped."),
    "report": ("webtext.app.command:report", "Write a build's report.html and report.json."),
    "view": ("webtext.app.command:view", "Show a build in a browser, on this machine alone."),
    "demo": ("webtext.app.command:demo", "Run the whole pipeline on a small web served by this machine."),
}
"""Name -> (import path of the command, its help line), in the order shown by --help."""

EXTRA_OF_PACKAGE = {"s3fs": "s3", "lm_eval": "tasks", "sklearn": "score", "duckdb": "view"}
EXTRA_OF_PACKAGE |= dict.fromkeys(("torch", "safetensors", "scipy"), "train")
INTERRUPTED = 130  # 128 + SIGINT, as shells count
SHOW_TRACEBACK = "WEBTEXT_TRACEBACK"  # environment variable: when it isn't empty, unexpected errors show a traceback
MAX_CAUSE_CHARACTERS = 300


class CommandTable(click.Group):
    """A group whose commands are imported when they are called, so that `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(STAGES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in STAGES:
            return None
        module, _, attribute = STAGES[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Resolve as click does, with a did-you-mean."""
        if args and not args[0].startswith("-") and args[0] not in STAGES:
            raise ConfigError(f"unknown command '{args[0]}'", did_you_mean(args[0], STAGES))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in STAGES.items()])


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="webtext")
def cli() -> None:
    """Rebuild WebText from the links people voted for, and pretrain GPT-2 on it.

    \b
      webtext demo                      the whole pipeline in a few minutes, on this machine alone
      webtext build build.toml          links to tokens
      webtext pretrain build.toml       links to a trained and evaluated GPT-2
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a code of the table in app/README.md."""
    _open_closed_streams()
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(run(arguments))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Make SIGTERM act like Ctrl-C, even when a shell started us in the background with Ctrl-C ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _open_closed_streams() -> None:
    """Point closed standard streams (`>&-`) at /dev/null, so that no file opened later takes their descriptors."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code; every error is printed in at most three lines."""
    from webtext.base.console import Console

    console = Console()
    try:
        return _run(arguments, console)
    except OSError as error:  # about a user's file; no stage had a more specific error
        console.error(MachineError(_os_error_text(error), "check that path, its permissions and the free space"))
        return MachineError.exit_code
    except Exception as error:  # the outermost boundary: a bug in webtext, or a remote service's fault
        if os.environ.get(SHOW_TRACEBACK):
            raise
        console.error(
            WebtextError(
                f"unexpected {type(error).__name__}: {one_line(error, MAX_CAUSE_CHARACTERS)}",
                f"to see where, for a bug report: {SHOW_TRACEBACK}=1 webtext ...",
            )
        )
        return WebtextError.exit_code


def _run(arguments: list[str] | None, console: Console) -> int:
    try:
        result = cli.main(args=arguments, prog_name="webtext", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except DryRun:
        return 0
    except WebtextError as error:
        console.error(error)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return 0
    except click.UsageError as error:
        console.error(_usage_error(error))
        return ConfigError.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        console.error(WebtextError("interrupted"))  # before a verb began
        return INTERRUPTED
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "webtext"):
            raise
        console.error(missing_extra(package, EXTRA_OF_PACKAGE.get(package, "build")))
        return MachineError.exit_code
    except (BrokenPipeError, SystemExit):  # the reader of `webtext ... | head` closed the pipe: for click, an exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _os_error_text(error: OSError) -> str:
    reason = (os.strerror(error.errno) if error.errno else str(error))[:MAX_CAUSE_CHARACTERS]
    return f"{reason}: '{os.fsdecode(error.filename)}'" if isinstance(error.filename, (str, bytes)) else reason


def _usage_error(error: click.UsageError) -> ConfigError:
    hint = [f"see '{error.ctx.command_path} --help'"] if error.ctx is not None else []
    if isinstance(error, click.NoSuchOption) and error.ctx and (meant := _option_meant(error.option_name, error.ctx)):
        return ConfigError(f"{error.message} Did you mean '{meant}'?", *hint)
    return ConfigError(error.format_message(), *hint)


def _option_meant(name: str, ctx: click.Context) -> str | None:
    """Return the option whose words begin with the letters of an unknown one, as in --lr, or the setting of its name."""
    flags = {flag: flag for param in ctx.command.params for flag in param.opts}
    of_file = getattr(ctx.command, "without_flag", ())
    flags |= {f"--{key.rpartition('.')[2].replace('_', '-')}": f"--set {key}=VALUE" for key in of_file}
    short = {"--" + "".join(word[:1] for word in flag[2:].split("-")): meant for flag, meant in flags.items()}
    return (short | flags).get(name)


if __name__ == "__main__":
    main()
