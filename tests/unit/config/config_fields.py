"""Every key that a configuration model knows, for tests that walk over all of them."""

from collections.abc import Iterator

from pydantic import BaseModel

from laser_vfl.config.validation_errors import expectation_at


def fields(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every field, sections included."""
    for name in model.model_fields:
        yield (*path, name)
        section = expectation_at(model, (name,)).section
        if section:
            yield from fields(section, (*path, name))
