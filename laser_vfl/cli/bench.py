"""`bench`: the options of the benchmarks."""

from typing import Annotated

import typer

from laser_vfl.cli.options import Format, FormatOption

bench_app = typer.Typer(
    help="Benchmarks; each prints ratios measured in one run.", no_args_is_help=True
)


@bench_app.command("align")
def bench_align(
    ids: Annotated[
        list[int], typer.Option(min=1, help="Ids at each client; may be given several times.")
    ] = [10_000],  # noqa: B006
    clients: Annotated[int, typer.Option(min=1, max=16, help="How many clients.")] = 4,
    repeats: Annotated[int, typer.Option(min=1, help="How often.")] = 3,
    output: FormatOption = Format.TEXT,
) -> None:
    """Measure a private alignment against the bare multiplications that it consists of."""
    from laser_vfl.cli.bench_align import BenchOptions, run_bench_align

    run_bench_align(BenchOptions(ids, clients, repeats), as_json=output is Format.JSON)


@bench_app.command("predict")
def bench_predict(
    requests: Annotated[int, typer.Option(min=100, help="One-sample requests to time.")] = 1000,
    clients: Annotated[int, typer.Option(min=1, max=16, help="How many organisations.")] = 4,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time predictions of a real federation beside bare gRPC and one process."""
    from laser_vfl.cli.bench_predict import BenchOptions, run_bench_predict

    run_bench_predict(BenchOptions(requests, clients), as_json=output is Format.JSON)


@bench_app.command("recover")
def bench_recover(
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; medians are reported.")] = 5,
    clients: Annotated[int, typer.Option(min=2, max=16, help="How many organisations.")] = 4,
    steps: Annotated[int, typer.Option(min=50, help="Steps to time with checkpoints.")] = 1000,
    deadline: Annotated[
        float, typer.Option(min=1.0, help="Seconds for a step, where a client hangs.")
    ] = 5.0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time how a real federation goes on when a client crashes or hangs, and comes back."""
    from laser_vfl.cli.bench_recover import BenchOptions, run_bench_recover

    options = BenchOptions(repeats, clients, steps, deadline)
    run_bench_recover(options, as_json=output is Format.JSON)


@bench_app.command("step")
def bench_step(
    steps: Annotated[int, typer.Option(min=50, help="Steps in each repetition.")] = 500,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; medians are reported.")] = 3,
    clients: Annotated[int, typer.Option(min=1, max=16, help="How many organisations.")] = 4,
    tls: Annotated[bool, typer.Option("--tls", help="Time it with mutual TLS, too.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time a training step of a real federation against the single-process oracle."""
    from laser_vfl.cli.bench_step import BenchOptions, run_bench_step

    run_bench_step(BenchOptions(steps, repeats, clients, tls), as_json=output is Format.JSON)


@bench_app.command("tasks")
def bench_tasks(
    steps: Annotated[int, typer.Option(min=5, help="Steps in each repetition.")] = 40,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; medians are reported.")] = 7,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time all tasks of a head at once against one after another, and 8 clients against 4."""
    from laser_vfl.cli.bench_tasks import BenchOptions, run_bench_tasks

    run_bench_tasks(BenchOptions(steps, repeats), as_json=output is Format.JSON)
