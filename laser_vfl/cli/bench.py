"""`bench`: the options of the benchmarks, and how their figures are printed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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
    from laser_vfl.bench.alignment_bench import AlignmentBenchOptions, measure_alignment

    found = measure_alignment(AlignmentBenchOptions(ids, clients, repeats))
    if output is Format.JSON:
        print(json.dumps(found))
        return
    from rich.console import Console

    for size in found["sizes"]:
        Console().print(", ".join(f"{key} {value}" for key, value in size.items()))


@bench_app.command("predict")
def bench_predict(
    requests: Annotated[int, typer.Option(min=100, help="One-sample requests to time.")] = 1000,
    clients: Annotated[int, typer.Option(min=1, max=16, help="How many organisations.")] = 4,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time predictions of a real federation beside bare gRPC and one process."""
    from laser_vfl.bench.prediction_bench import PredictionBenchOptions, measure_predictions

    _print(measure_predictions(PredictionBenchOptions(requests, clients)), output, width=32)


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
    from laser_vfl.bench.recovery_bench import RecoveryBenchOptions, measure_recovery

    _print(measure_recovery(RecoveryBenchOptions(repeats, clients, steps, deadline)), output)


@bench_app.command("scale")
def bench_scale(
    clients: Annotated[
        list[int],
        typer.Option(min=1, max=64, help="How many organisations; may be given several times."),
    ] = [2, 4, 8, 16, 32],  # noqa: B006
    steps: Annotated[int, typer.Option(min=10, help="Steps of each training.")] = 100,
    requests: Annotated[int, typer.Option(min=1, help="One-sample requests to time.")] = 100,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time small federations of more and more clients on this machine, in training and serving."""
    from laser_vfl.bench.scaling_bench import ScalingBenchOptions, measure_scaling

    found = measure_scaling(ScalingBenchOptions(clients, steps, requests))
    if output is Format.JSON:
        print(json.dumps(found))
        return
    for point in found.pop("curve"):
        print(", ".join(f"{key} {value}" for key, value in point.items()))
    _print(found, output)


@bench_app.command("start")
def bench_start(
    clients: Annotated[int, typer.Option(min=1, max=16, help="How many organisations.")] = 4,
    rows: Annotated[int, typer.Option(min=100, help="Rows in the table of each.")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; medians are reported.")] = 3,
    tls: Annotated[bool, typer.Option("--tls", help="With mutual TLS.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time a federation from starting its processes to its first step, phase by phase."""
    from laser_vfl.bench.start_bench import StartBenchOptions, measure_start

    _print(measure_start(StartBenchOptions(clients, rows, repeats, tls)), output)


@bench_app.command("step")
def bench_step(
    steps: Annotated[int, typer.Option(min=50, help="Steps in each repetition.")] = 500,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; medians are reported.")] = 3,
    clients: Annotated[int, typer.Option(min=1, max=16, help="How many organisations.")] = 4,
    tls: Annotated[bool, typer.Option("--tls", help="Time it with mutual TLS, too.")] = False,
    pipeline: Annotated[
        int, typer.Option(min=0, max=7, help="Steps under way besides the oldest one.")
    ] = 0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time a training step of a real federation against the single-process oracle."""
    from laser_vfl.bench.step_bench import StepBenchOptions, measure_steps

    _print(measure_steps(StepBenchOptions(steps, repeats, clients, tls, pipeline)), output)


@bench_app.command("tasks")
def bench_tasks(
    steps: Annotated[int, typer.Option(min=5, help="Steps in each repetition.")] = 40,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; medians are reported.")] = 7,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time all tasks of a head at once against one after another, and 8 clients against 4."""
    from laser_vfl.bench.tasks_bench import FEW, MANY, TasksBenchOptions, measure_tasks

    found = measure_tasks(TasksBenchOptions(steps, repeats))
    if output is Format.JSON:
        print(json.dumps(found))
        return
    print(
        f"{MANY} clients, paper's preset: {found['batched_ms']:.2f} ms a step with all tasks at "
        f"once, {found['looped_ms']:.2f} ms one after another: {found['loop_to_batched']:.2f}×"
    )
    print(
        f"a client's step: {found['few_ms']:.3f} ms with {FEW} clients, "
        f"{found['many_ms']:.3f} ms with {MANY}: {found['many_to_few']:.2f}×"
    )


@bench_app.command("wan")
def bench_wan(
    rtt: Annotated[
        str, typer.Option(metavar="TIME", help="From one client to the other and back.")
    ] = "50ms",
    bandwidth: Annotated[
        str, typer.Option(metavar="RATE", help="Of the line between them, each way.")
    ] = "50mbit",
    dataset: Annotated[str, typer.Option(metavar="SET", help="See laser-vfl data list.")] = "hapt",
    target: Annotated[float, typer.Option(min=0, max=1, help="Which accuracy to wait for.")] = 0.92,
    epochs: Annotated[int, typer.Option(min=1, help="How long to train, both ways.")] = 8,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the files are; else LASER_VFL_DATA."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Time two clients on a slow line until a score, as published and as recommended."""
    from laser_vfl.bench.wan_bench import WanBenchOptions, measure_wan
    from laser_vfl.cli.option_parsers import parse_bandwidth, parse_latency
    from laser_vfl.planning.clocks import NetworkLine

    line = NetworkLine(parse_bandwidth(bandwidth, "--bandwidth"), parse_latency(rtt, "--rtt"))
    _print(measure_wan(WanBenchOptions(line, dataset, target, epochs, data=data)), output)


def _print(found: Mapping[str, Any], output: Format, *, width: int = 24) -> None:
    """Print figures as one JSON object, or as a line each."""
    if output is Format.JSON:
        print(json.dumps(found))
        return
    from rich.console import Console

    for key, value in found.items():
        Console().print(f"{key:{width}} {value}")
