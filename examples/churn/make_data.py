"""Make the tables of the three organisations: made-up customers, some known to one, some to all.

`python make_data.py [directory]` writes six CSV files, always the same ones. Only sums and products
of `Random.random()` are used: its stream is the same in every version of Python.
"""

import csv
import sys
from pathlib import Path
from random import Random

SEED = 20
NUM_TRAIN, NUM_TEST = 800, 500
HELD = {"bank": 0.75, "shop": 0.65, "telco": 0.6}
LEAVES_ABOVE = 1.1


class Customer:
    """One person. Each organisation sees one reason to leave; churn follows from all of them."""

    def __init__(self, number: int, rng: Random) -> None:
        self.id = f"C-{number:05d}"
        self.age = int(18 + 62 * rng.random())
        self.money, self.habit, self.trouble = normal(rng), normal(rng), normal(rng)
        reasons = self.money + self.habit + self.trouble + 0.6 * normal(rng)
        self.churned = int(reasons > LEAVES_ABOVE)


def bank_row(customer: Customer, rng: Random) -> dict[str, object]:
    """Accounts. People who are about to leave move their money first."""
    money = customer.money + 0.4 * normal(rng)
    wealth = normal(rng) + customer.age / 40
    return {
        "customer_id": customer.id,
        "age": customer.age,
        "segment": pick(wealth, [(0.6, "student"), (2.2, "mass"), (3.2, "affluent")], "private"),
        "balance_eur": sometimes(0.9, round(4000 + 1500 * wealth - 1200 * money, 2), rng),
        "transfers_out_3m": max(0, round(3 + 2 * money + 0.7 * normal(rng))),
        "credit_score": sometimes(0.8, round(640 + 35 * wealth + 20 * normal(rng)), rng),
        "salary_account": "no" if money + 0.8 * normal(rng) > 0.4 else "yes",
        "churned": customer.churned,
    }


def shop_row(customer: Customer, rng: Random) -> dict[str, object]:
    """Orders. A few answers about churn have not come in yet: those labels are empty."""
    habit = customer.habit + 0.4 * normal(rng)
    return {
        "customer_id": customer.id,
        "orders_12m": max(0, round(9 - 3 * habit + normal(rng))),
        "days_since_order": max(1, round(45 + 25 * habit + 8 * normal(rng))),
        "basket_eur": sometimes(0.92, round(60 + 12 * normal(rng), 2), rng),
        "returns_12m": max(0, round(1 + 0.8 * habit + normal(rng))),
        "channel": pick(normal(rng) - customer.age / 60, [(-1.4, "store"), (0.0, "web")], "app"),
        "newsletter": "false" if habit + 0.9 * normal(rng) > 0.5 else "true",
        "churned": sometimes(0.95, customer.churned, rng),
    }


def telco_row(customer: Customer, rng: Random) -> dict[str, object]:
    """Contracts and calls. This organisation does not know who churned."""
    trouble = customer.trouble + 0.4 * normal(rng)
    return {
        "customer_id": customer.id,
        "plan": pick(trouble + normal(rng), [(-0.5, "family"), (0.9, "flat")], "prepaid"),
        "monthly_fee_eur": round(24 + 6 * normal(rng), 2),
        "data_gb": sometimes(0.9, round(max(0.1, 11 - 2 * trouble + 4 * normal(rng)), 1), rng),
        "support_calls_6m": max(0, round(2 + 1.6 * trouble + 0.7 * normal(rng))),
        "contract_months_left": max(0, round(10 - 5 * trouble + 3 * normal(rng))),
    }


ROWS = {"bank": bank_row, "shop": shop_row, "telco": telco_row}


def normal(rng: Random) -> float:
    """Return a number that is close to a standard normal one: the sum of twelve uniform ones."""
    return sum(rng.random() for _ in range(12)) - 6


def pick(value: float, below: list[tuple[float, str]], otherwise: str) -> str:
    """Return the first name whose limit lies above the value."""
    return next((name for limit, name in below if value < limit), otherwise)


def sometimes(chance: float, value: object, rng: Random) -> object:
    """Return the value, or an empty cell where it is not known."""
    return value if rng.random() < chance else ""


def write_tables(directory: Path) -> None:
    """Write a training and a test table for each organisation."""
    rng = Random(SEED)
    customers = [Customer(number, rng) for number in range(NUM_TRAIN + NUM_TEST)]
    tables = {"train": customers[:NUM_TRAIN], "test": customers[NUM_TRAIN:]}
    for name, make_row in ROWS.items():
        for table, people in tables.items():
            held = [customer for customer in people if rng.random() < HELD[name]]
            held.sort(key=lambda _: rng.random())
            rows = [make_row(customer, rng) for customer in held]
            with (directory / f"{name}_{table}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
