"""`data show`: how a client reads each column of its training table, and what looks wrong."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from laser_vfl.cli.daemon_config import load_client_config
from laser_vfl.client.tables.block import fit_labels, table_spec
from laser_vfl.data import Encoding, read_table
from laser_vfl.data.table_report import ColumnReport, TableReport, report_of


def run_show(path: Path, *, as_json: bool) -> None:
    """Read the training table as the client does when it starts, and print how."""
    config = load_client_config(path)
    table = read_table(config.data.train, table_spec(config))
    encoding, labels = Encoding.fit(table), fit_labels(config, table)
    report = report_of(table, encoding, labels)
    width = encoding.form.width if encoding.form else None
    if as_json:
        print(
            json.dumps(
                {
                    "table": str(config.data.train),
                    "rows": report.num_rows,
                    "row_shape": encoding.row_shape,
                    "columns": [column.to_json() for column in report.columns],
                    "label": [{"code": r.code, "text": r.text} for r in report.label],
                },
                ensure_ascii=False,
            )
        )
        return
    print(f"{config.data.train}: {report.num_rows} rows")
    if report.columns:
        Console().print(_grid(report))
        print(f"a row becomes {width} values")
    else:
        print(f"an array; a row has the shape {encoding.row_shape}")
    for line in report.warnings:
        print(f"look at {line}")
    for column in report.columns:
        for remark in column.remarks:
            if not remark.is_warning:
                print(f'column "{column.name}": {remark.text}')


def _grid(report: TableReport) -> Grid:
    grid = Grid()
    for title in ("column", "read as", "scaling or parts", "values kept", "missing"):
        grid.add_column(title, overflow="fold")
    for column in report.columns:
        grid.add_row(
            column.name, column.type, column.scaling, _kept(column), f"{column.missing_share:.1%}"
        )
    return grid


def _kept(column: ColumnReport) -> str:
    if column.type != "category":
        return ""
    dropped = f" ({column.dropped_share:.1%} of rows)" if column.dropped_share else ""
    gone = column.num_values - column.num_kept
    left = f", {gone} dropped{dropped}" if gone else ""
    return f"{column.num_kept} of {column.num_values}{left}"
