"""The commands, and how each of them ends: a result on stdout, or one line on stderr and a code."""

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from laser_vfl.cli.bench import bench_app
from laser_vfl.cli.certs.certs_command import certs_app
from laser_vfl.cli.data.data_command import data_app
from laser_vfl.cli.experiment.experiment_command import experiment_app
from laser_vfl.cli.options import (
    CaPath,
    CertPath,
    CoordinatorAddress,
    Format,
    FormatOption,
    KeyPath,
    OwnConfigPath,
    Score,
    StartTimeout,
)
from laser_vfl.cli.runs.runs_command import runs_app
from laser_vfl.cli.tokens.tokens_command import tokens_app
from laser_vfl.core.errors import ExitCode, LaserError
from laser_vfl.core.release import __version__

# gRPC's own log would break the promise of one line per error; set before it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

app = typer.Typer(
    name="laser-vfl",
    help="Vertical federated learning when blocks of features are missing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
coordinator_app = typer.Typer(help="The coordinator daemon.", no_args_is_help=True)
client_app = typer.Typer(help="The client daemon of one organisation.", no_args_is_help=True)
app.add_typer(coordinator_app, name="coordinator")
app.add_typer(client_app, name="client")
app.add_typer(certs_app, name="certs")
app.add_typer(tokens_app, name="tokens")
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.add_typer(experiment_app, name="experiment")
app.add_typer(runs_app, name="runs")


ConfigPath = Annotated[Path, typer.Option("--config", help="The YAML file of this daemon.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow plaintext; only on loopback, to try things out.")
]
MetricsListen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        envvar="LASER_VFL_METRICS_LISTEN",
        help="Where to serve metrics for Prometheus, in place of metrics_listen.",
    ),
]


def main() -> None:
    """Run a command and exit with its documented code."""
    try:
        app()
    except LaserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception:
        logging.getLogger("laser_vfl").exception("internal error; this is a bug")
        sys.exit(ExitCode.INTERNAL)


def _end_cleanly_on_sigterm() -> None:
    """End with 0 on SIGTERM also before the daemon handles signals, and after it has stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.OK))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"laser-vfl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    pass


@coordinator_app.command("run")
def coordinator_run(
    config: ConfigPath, insecure: Insecure = False, metrics_listen: MetricsListen = None
) -> None:
    """Serve a federation until SIGTERM."""
    _end_cleanly_on_sigterm()
    from laser_vfl.cli.daemon_config import load_coordinator_config
    from laser_vfl.cli.daemon_process import listening_at, run_until_signal, say_ready
    from laser_vfl.coordinator.daemon import run_coordinator

    settings = listening_at(metrics_listen, load_coordinator_config(config))
    ready = say_ready("coordinator", settings.federation)
    run_until_signal(
        run_coordinator(settings, insecure=insecure, ready=ready), "coordinator", settings.log_level
    )


@client_app.command("run")
def client_run(
    config: ConfigPath,
    insecure: Insecure = False,
    exit_after_training: Annotated[
        bool, typer.Option("--exit-after-training", help="End when all clients have finished.")
    ] = False,
    metrics_listen: MetricsListen = None,
) -> None:
    """Train with the federation, then stay up, until SIGTERM."""
    _end_cleanly_on_sigterm()
    from laser_vfl.cli.daemon_config import load_client_config
    from laser_vfl.cli.daemon_process import importing, listening_at, run_until_signal, say_ready

    settings = listening_at(metrics_listen, load_client_config(config))
    with importing():
        from laser_vfl.client.daemon import run_client

    daemon = run_client(
        settings,
        insecure=insecure,
        exit_after_training=exit_after_training,
        ready=say_ready("client", settings.name),
    )
    run_until_signal(daemon, settings.name, settings.log_level)


@app.command()
def predict(
    ids: Annotated[
        Path, typer.Option(help='A CSV file: its only column, data.id of --config, or "id".')
    ],
    config: OwnConfigPath = None,
    client: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where a client predicts.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="How long a request may take, as 200ms or 1.5s.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write rows to this .csv or .parquet, not to stdout.")
    ] = None,
    require_blocks: Annotated[
        bool,
        typer.Option(
            "--require-blocks", help="Fail if a sample lacks a block of a client that is up."
        ),
    ] = False,
    output: FormatOption = Format.TEXT,
    ca: CaPath = None,
    cert: CertPath = None,
    key: KeyPath = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token to show instead of a certificate.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="With a token: whom to expect, as bank.client.churn.")
    ] = None,
) -> None:
    """Predict the samples of a file with a running client and whichever peers answer."""
    from laser_vfl.cli.predict.predict_command import PredictOptions, run_predict

    options = PredictOptions(
        ids,
        client=client,
        config=config,
        deadline=deadline,
        out=out,
        require_blocks=require_blocks,
        ca=ca,
        cert=cert,
        key=key,
        token_file=token_file,
        name=name,
    )
    run_predict(options, as_json=output is Format.JSON)


@app.command()
def status(
    coordinator: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A coordinator to ask.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A client to ask, where it predicts.")
    ] = None,
    config: OwnConfigPath = None,
    output: FormatOption = Format.TEXT,
    ca: CaPath = None,
    cert: CertPath = None,
    key: KeyPath = None,
) -> None:
    """Show how a federation or a client is doing."""
    from laser_vfl.cli.status import run_status

    run_status(coordinator, client, config, (ca, cert, key), as_json=output is Format.JSON)


@app.command()
def retrain(
    config: OwnConfigPath = None,
    coordinator: CoordinatorAddress = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The new run's seed; drawn if left out.")
    ] = None,
    timeout: StartTimeout = "60s",
    output: FormatOption = Format.TEXT,
    ca: CaPath = None,
    cert: CertPath = None,
    key: KeyPath = None,
) -> None:
    """Ask for a new training run of everybody."""
    from laser_vfl.cli.retrain import run_retrain

    run_retrain(coordinator, config, seed, timeout, (ca, cert, key), as_json=output is Format.JSON)


@app.command()
def align(
    config: ConfigPath,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Align and train nothing; a run aligns by itself.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the overlaps to this .png, .svg or .pdf, too.")
    ] = None,
    timeout: Annotated[str, typer.Option(help="How long to wait for the others.")] = "3600s",
    output: FormatOption = Format.TEXT,
) -> None:
    """Show how many samples have which blocks, with the daemons up."""
    from laser_vfl.cli.align.align_command import AlignOptions, run_align

    options = AlignOptions(config, dry_run, plot, timeout)
    run_align(options, as_json=output is Format.JSON)


@app.command()
def report(
    config: Annotated[
        list[Path],
        typer.Option("--config", help="The YAML file of a client; of each, for all together."),
    ] = [],  # noqa: B006
    with_reports: Annotated[
        list[Path],
        typer.Option("--with", help="The report.json of another organisation, to go with it."),
    ] = [],  # noqa: B006
    score: Annotated[Score | None, typer.Option(help="What to compare by.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write report.json, .md and .png to this directory, too.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show what each subset of blocks can do, and what each block is worth."""
    from laser_vfl.cli.report.report_command import ReportOptions, run_report

    options = ReportOptions(config, with_reports, score, out)
    run_report(options, as_json=output is Format.JSON)


@app.command()
def forget(
    config: ConfigPath,
    ids: Annotated[
        Path | None, typer.Option(help='A CSV file: its column "id", or its only one.')
    ] = None,
    list_count: Annotated[
        bool, typer.Option("--list-count", help="Only show how many are forgotten.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Remove people from what this client serves and from later runs; it cannot be undone."""
    from laser_vfl.cli.forget import run_forget

    run_forget(config, ids, list_count=list_count, as_json=output is Format.JSON)


@app.command()
def epsilon(
    noise: Annotated[float, typer.Option(min=1e-6, help="As privacy.noise of a client.")],
    releases: Annotated[
        int, typer.Option(min=1, help="How often a person is let out: epochs + 1 for a run.")
    ],
    delta: Annotated[float, typer.Option(min=1e-300, max=0.5, help="As privacy.delta.")] = 1e-5,
    output: FormatOption = Format.TEXT,
) -> None:
    """Say what noise on representations promises about one person's features."""
    from laser_vfl.cli.epsilon import print_epsilon

    print_epsilon(noise, releases, delta, as_json=output is Format.JSON)


@app.command()
def doctor(
    config: ConfigPath, insecure: Insecure = False, output: FormatOption = Format.TEXT
) -> None:
    """Check what a daemon needs, from its files to its peers; nothing is changed."""
    from laser_vfl.cli.doctor.doctor_command import run_doctor

    raise typer.Exit(run_doctor(config, insecure=insecure, as_json=output is Format.JSON))


@app.command()
def health(
    config: ConfigPath,
    output: FormatOption = Format.TEXT,
    alive: Annotated[
        bool, typer.Option("--alive", help="Fail only if starting it again might help.")
    ] = False,
) -> None:
    """Ask the daemon of a configuration whether it serves; 0 if so, for supervisors."""
    from laser_vfl.cli.health import run_alive, run_health

    ask = run_alive if alive else run_health
    ask(config, as_json=output is Format.JSON)


@app.command()
def plan(
    config: Annotated[Path, typer.Option("--config", help="The YAML file of the coordinator.")],
    bandwidth: Annotated[
        str, typer.Option(help="Of each client's line, each way: 100mbit, 1gbit or 12.5MB/s.")
    ],
    rtt: Annotated[str, typer.Option(help="From one client to another and back: 20ms.")],
    samples: Annotated[
        int | None, typer.Option(min=1, help="Training samples that anybody holds.")
    ] = None,
    test_samples: Annotated[int, typer.Option(min=0, help="Samples of the test tables.")] = 0,
    p_missing: Annotated[
        str | None,
        typer.Option(help="Chance that a block of a sample is missing: 0.3, or bank=0.1,shop=0.5."),
    ] = None,
    overlaps: Annotated[
        Path | None, typer.Option(help="What `align --dry-run --format json` printed, instead.")
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="Ask the coordinator about its last run, instead.")
    ] = False,
    labels: Annotated[
        str | None, typer.Option(help="Who has labels, as bank,shop. Everybody if left out.")
    ] = None,
    compute: Annotated[
        str | None,
        typer.Option(help="What a client computes at a step: 8ms. Measured if left out."),
    ] = None,
    client_config: Annotated[
        Path | None, typer.Option(help="A client whose model and data to measure it with.")
    ] = None,
    features: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Without one: how many features a client has.")
    ] = 64,
    cores: Annotated[
        int | None, typer.Option(min=1, help="All clients share one machine with so many cores.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Say what a run will send and how long it will take, before it is started."""
    from laser_vfl.cli.plan.plan_command import PlanOptions, run_plan

    options = PlanOptions(
        config=config,
        bandwidth=bandwidth,
        rtt=rtt,
        samples=samples,
        test_samples=test_samples,
        p_missing=p_missing,
        overlaps=overlaps,
        running=running,
        labels=labels,
        compute=compute,
        client_config=client_config,
        features=features,
        cores=cores,
    )
    run_plan(options, as_json=output is Format.JSON)


@app.command()
def demo(
    clients: Annotated[int, typer.Option(min=1, max=8, help="How many organisations.")] = 4,
    p_miss: Annotated[
        float, typer.Option(min=0.0, max=0.95, help="Chance that a block of a sample is missing.")
    ] = 0.3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training samples.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="The federation's seed.")] = 7,
    keep: Annotated[
        Path | None, typer.Option(help="Leave configs, logs and models in this directory.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Train a federation of real processes on loopback; show what each subset can do."""
    from laser_vfl.cli.demo.demo_command import DemoOptions, run_demo

    run_demo(DemoOptions(clients, p_miss, epochs, seed, keep), as_json=output is Format.JSON)
