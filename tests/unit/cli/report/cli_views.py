"""What clients tell a report: games with known values, as manifests have them."""

from laser_vfl.cli.report.report_views import ReportSource
from laser_vfl.core.evaluation.shapley import prefixes, random_orders
from laser_vfl.core.subsets import subset_name, subsets_containing

RUN = "0123456789abcdef0123456789abcdef"


def scores_of(client, roster, value, *, paired=90, without=(), constant=0.5, score="accuracy"):
    """Return scores.json of a client: `value(client, mask)` of each subset but `without`."""
    every = 2 ** len(roster) - 1
    if len(roster) <= 10:
        orders, subsets = [], subsets_containing(client, every)
    else:
        orders = random_orders(len(roster), seed=3)
        subsets = sorted({p | 1 << client for order in orders for p in prefixes(order, every)})
    entries = {
        subset_name(mask, roster): {score: value(client, mask)}
        for mask in subsets
        if mask not in without
    }
    counts = {name: 200 - 10 * (1 + name.count(",")) for name in entries}
    return {
        "by_subset": {n: {**e, "num_samples": counts[n]} for n, e in entries.items()},
        "constant": {score: constant},
        "fully_observed": {
            "blocks": ",".join(roster),
            "num_samples": paired,
            "constant": {score: constant},
            "by_subset": entries,
        }
        if paired
        else None,
        "orders": [[roster[k] for k in order] for order in orders],
    }


def view_of(client, roster, value, *, heads=None, task="multiclass", scores=True, **options):
    """Return the view of a client of the roster, by its place."""
    return ReportSource.model_validate(
        {
            "federation": "churn",
            "client": roster[client],
            "run": RUN,
            "roster": roster,
            "heads": list(heads or roster),
            "task": task,
            "scores": scores_of(client, roster, value, **options) if scores else None,
        }
    )


def additive(client, mask):
    """Each block adds a hundredth more than the one before; client 0 is a bit better."""
    gain = sum((place + 1) / 100 for place in range(mask.bit_length()) if mask >> place & 1)
    return 0.5 + gain + (0.004 if client == 0 else 0.0)
