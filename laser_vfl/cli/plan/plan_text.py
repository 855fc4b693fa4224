"""The text of `plan`, for a person."""

from typing import Any

from rich.console import Console

from laser_vfl.cli.terminal_tables import add_row, new_table, say


def print_plan(plan: dict[str, Any], console: Console) -> None:
    """Print what `make_plan` has found."""
    settings, samples, step = plan["settings"], plan["samples"], plan["step"]
    say(
        console,
        f"federation {plan['federation']}: {settings['method']}, {len(plan['clients'])} clients, "
        f"{len(plan['labels'])} with labels, rows {settings['representation_dim']} wide in "
        f"{settings['wire_precision']}, batches of {settings['batch_size']} "
        f"({settings['batching']})",
    )
    say(
        console,
        f"{samples['num']:,} training samples ({samples['source']}), "
        f"{samples['missing_share']:.1%} of their blocks missing; "
        f"{samples['num_test']:,} test samples",
    )
    line = plan["line"]
    rate, rtt = f"{line['bytes_per_s'] * 8 / 1e6:,.6g} Mbit/s", duration(line["rtt_s"])
    say(console, f"each client's line: {rate} each way, {rtt} to the others and back")
    say(console, f"computing: {plan['compute']['origin']}")
    _print_traffic(plan, console)
    parts = ", ".join(f"{name} {duration(step[f'{name}_s'])}" for name in _PARTS)
    say(console, f"a step: {duration(step['seconds'])} ({parts}); most of it is {step['bound_by']}")
    for stage in plan["stages"]:
        say(
            console,
            f"{stage['name']}: {stage['num_steps']:,} steps of {duration(stage['step_s'])}: "
            f"{duration(stage['seconds'])}",
        )
    run, alignment = plan["run"], plan["alignment"]
    say(
        console,
        f"the run: {duration(run['seconds'])}, {size(run['link_sent'])} sent by all clients "
        f"({size(run['payload_sent'])} of it are numbers)",
    )
    say(
        console,
        f"before it, the alignment ({alignment['scheme']}): about {duration(alignment['seconds'])}",
    )
    for hint in plan["hints"]:
        say(
            console,
            f"with {hint['key']}: {hint['value']} it would be {duration(hint['seconds'])} and "
            f"{size(hint['link_sent'])} ({hint['note']})",
        )
    if (suits := plan["recommended"]) is not None:
        keys = ", ".join(f"training.{key}: {value}" for key, value in suits["training"].items())
        rate = suits["rate_factor"]
        say(
            console,
            f"recommended for this line: {keys}; then an epoch takes {duration(suits['epoch_s'])} "
            f"in place of {duration(plan['epoch']['seconds'])}, in steps of "
            f"{duration(suits['step_s'])}"
            + (f"; multiply optimizer.lr by up to {rate:g}" if rate > 1 else ""),
        )


_PARTS = ("compute", "latency", "bandwidth")


def _print_traffic(plan: dict[str, Any], console: Console) -> None:
    periods = ("step", "epoch", "run")
    names = [f">{period} {arrow}" for period in periods for arrow in "↑↓"]
    table = new_table("client", "head", *names)
    for client in plan["clients"]:
        name = client["client"]
        values = [size(client[p][f"link_{way}"]) for p in periods for way in ("up", "down")]
        add_row(table, name, "yes" if name in plan["heads"] else "", *values)
    console.print(table)


def size(num_bytes: float) -> str:
    """Return a number of bytes as people read it."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= 1e3 * each:
            return f"{num_bytes / each:,.0f} {unit}"
        if num_bytes >= each:
            return f"{num_bytes / each:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Return a time as people read it."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms" if seconds else "0 ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"
