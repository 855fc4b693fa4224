"""How far `predict` is, on a terminal."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import IO

SHOW_AFTER_S, SHOW_AFTER_SAMPLES = 2.0, 5_000


@contextmanager
def progress(file: IO[bytes], *, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Show how far it is, on a terminal and only when it takes long."""
    if not wanted:
        yield lambda num_samples: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    said = TextColumn("{task.fields[num_samples]} samples")
    bar = Progress(
        BarColumn(), said, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )
    total = os.fstat(file.fileno()).st_size if file.seekable() else None
    task = bar.add_task("", total=total, num_samples=0)
    late = Timer(SHOW_AFTER_S, bar.start)
    late.start()

    def show(num_samples: int) -> None:
        if num_samples > SHOW_AFTER_SAMPLES:
            bar.start()
        done = 0 if total is None else file.tell()
        bar.update(task, completed=done, num_samples=num_samples)

    try:
        yield show
    finally:
        late.cancel()
        late.join()
        bar.stop()
