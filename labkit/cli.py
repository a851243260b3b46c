"""The `labkit` command: parse, call, print."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labkit import __version__
from labkit.errors import BadInput, LabkitError

if TYPE_CHECKING:
    from labkit.bus.prepare import Settings
    from labkit.records import Run

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Measure what ML systems stand on, and say how far each number can be trusted.",
    epilog="Exit codes: 0 done, 1 a verdict falls short, 2 bad input, 3 not available here, 4 a child process failed.",
)

DataDir = Annotated[Path | None, typer.Option(help="Folder with runs/ and reference/ [default: the project's data].")]
Quick = Annotated[bool, typer.Option("--quick", help="Under a minute: the main core tier, shorter windows.")]
PeakGbs = Annotated[float | None, typer.Option(help="The memory bus's peak in GB/s (1e9 bytes/s), if you know it.")]


def main() -> None:
    """Run the command; end with the exit code of what went wrong, and one sentence instead of a traceback."""
    try:
        app()
    except LabkitError as error:
        print(f"labkit: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        # The system refused something that nobody foresaw: still a sentence.
        print(f"labkit: {error.strerror or error}: {error.filename or 'no file named'}", file=sys.stderr)
        sys.exit(3)


def _version(asked: bool) -> None:
    if asked:
        print(f"labkit {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


@app.command()
def machine(
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False, peak_gbs: PeakGbs = None
) -> None:
    """Show which machine this is and the state it is in, each fact with where it came from."""
    import msgspec

    from labkit.machine import describe, state

    here, now = describe(peak_gbs), state()
    if json:
        text = msgspec.json.encode({"machine": here, "state": now})
        print(msgspec.json.format(text, indent=2).decode())
        return
    from rich.console import Console

    from labkit.machine.show import print_machine

    print_machine(here, now, Console())


@app.command()
def bus(
    quick: Quick = False,
    threads: Annotated[str, typer.Option(help="Thread counts, as 1,2,4 [default: 1 to all cores].")] = "",
    peak_gbs: PeakGbs = None,
    kernels: Annotated[str, typer.Option(help="Read kernels to use.")] = "llvm,numpy",
    gpu: Annotated[bool | None, typer.Option(help="Also the GPU, alone and beside the CPU [default: if any].")] = None,
    budget: Annotated[
        float | None, typer.Option(min=1, help="Seconds for all repeats [default: 600, quick 36].")
    ] = None,
    wait: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait for a quiet machine [60, quick 15].")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random order and content [default: drawn].")] = None,
    data_dir: DataDir = None,
    json: Annotated[bool, typer.Option("--json", help="Print the series as JSON.")] = False,
) -> None:
    """Measure which share of the memory bus the CPU cores can read, and record it. Exit 1 unless the verdict is ok."""
    from msgspec.structs import replace

    from labkit.bus.prepare import QUICK, Settings

    settings = replace(
        QUICK if quick else Settings(),
        threads=_numbers("--threads", threads) if threads else None,
        kernels=tuple(name for name in kernels.split(",") if name),
        peak_gbs=peak_gbs,
        gpu=gpu,
        seed=seed,
    )
    if budget is not None:
        settings = replace(settings, budget_s=budget)
    if wait is not None:
        settings = replace(settings, quiet_s=wait)
    run = _measure(settings, data_dir)
    from labkit.bus.reach import analyse

    reach = analyse(run)
    if json:
        from labkit.bus.reach import table

        print(table(reach).to_json(orient="records", indent=1))
    else:
        from rich.console import Console

        from labkit.bus.show import print_reach

        print_reach(reach, Console())
        print(f"recorded: {run.path}")
    _stop_if_interrupted(run)
    if reach.verdict.status != "ok":
        raise typer.Exit(1)


@app.command()
def run(
    measure: Annotated[bool, typer.Option("--measure", help="First measure this machine (quick).")] = False,
    chip: Annotated[list[str] | None, typer.Option(help="Only this chip; may be given again.")] = None,
    notebook: Annotated[list[str] | None, typer.Option(help="Only this notebook; may be given again.")] = None,
    parameter: Annotated[list[str] | None, typer.Option("-p", "--parameter", help="NAME=VALUE for notebooks.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Notebooks at a time [default: usable cores].")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also what has not changed.")] = False,
    peak_gbs: PeakGbs = None,
    data_dir: DataDir = None,
    figures_dir: Annotated[Path | None, typer.Option(help="Where figures go [default: the project's].")] = None,
) -> None:
    """Run the notebooks for every chip that has data, as far as anything changed; then say what was found."""
    from labkit import batch, project

    given = dict(_assignment(text) for text in parameter or [])
    if peak_gbs is not None and not measure:
        raise BadInput("--peak-gbs belongs to a measurement: add --measure")
    data = data_dir or project.root() / "data"
    figures = figures_dir or project.root() / "figures"
    measured: Run | LabkitError | None = None
    if measure:
        from msgspec.structs import replace

        from labkit.bus.prepare import QUICK

        try:
            measured = _measure(replace(QUICK, peak_gbs=peak_gbs), data)
            _stop_if_interrupted(measured)
        except LabkitError as error:
            measured = error  # the figures of what is known already are drawn all the same
    report = batch.run(
        notebook, chip, data_dir=data.resolve(), figures_dir=figures.resolve(), parameters=given, jobs=jobs, force=force
    )
    from labkit.closing import closing_lines

    for line in closing_lines(data, figures, report, measured):
        print(line)
    raise typer.Exit(measured.exit_code if isinstance(measured, LabkitError) else report.exit_code)


def _measure(settings: "Settings", data_dir: Path | None) -> "Run":
    """Measure with live progress on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from labkit import project
    from labkit.bus.take import take

    columns = (TextColumn("{task.description:<40}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        return take(
            settings,
            data_dir or project.root() / "data",
            lambda what, done, planned: bar.update(
                task, description=what, completed=done, total=max(done, planned) or None
            ),
        )


def _stop_if_interrupted(run: "Run") -> None:
    if run.end is not None and run.end.status == "partial":
        print(f"labkit: interrupted; what was measured is kept as partial in {run.path}", file=sys.stderr)
        raise typer.Exit(130)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"{option} {text}: give whole numbers with commas, as in 1,2,4") from None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadInput(f"-p {text}: give NAME=VALUE, as in quick=true")
    return name, value
