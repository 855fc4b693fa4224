"""What an alignment has found, as `operations.align` returns it."""


def found(roster, patterns, *, client="bank", absent=(), table="train"):
    """Return an alignment with these patterns, each with its names and its count."""
    total = sum(count for _, count in patterns)
    return {
        "client": client,
        "scheme": "hmac",
        "roster": list(roster),
        "members": [name for name in roster if name not in absent],
        "absent": list(absent),
        "seconds": 0.25,
        "tables": {
            table: {
                "num_rows": 40,
                "num_samples": total,
                "num_shared": 30,
                "missing_share": 0.5 if total else None,
                "patterns": [
                    {"blocks": list(blocks), "num_samples": count, "share": count / total}
                    for blocks, count in patterns
                ],
            }
        },
    }
