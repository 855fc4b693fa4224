"""Loads a YAML file as a checked configuration, or says in one line what is wrong."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from laser_vfl.config.document import parse_document, read_text
from laser_vfl.config.field_types import DIRECTORY
from laser_vfl.config.section import ConfigFile
from laser_vfl.config.validation_errors import first_problem

M = TypeVar("M", bound=BaseModel)


def is_of(path: Path, model: type[BaseModel], other: type[BaseModel]) -> bool:
    """Whether a file looks more like one kind of configuration than like another."""
    found = parse_document(read_text(path), str(path)).value
    keys = set(found) if isinstance(found, dict) else set()
    return len(keys & set(model.model_fields)) > len(keys & set(other.model_fields))


def load_config(path: Path, model: type[M]) -> M:
    """Return the configuration in a file, or raise a `ConfigError` that points into it.

    Relative paths in the file start at its directory. No other file is opened.
    """
    document = parse_document(read_text(path), str(path))
    try:
        config = model.model_validate(document.value, context={DIRECTORY: path.parent})
    except ValidationError as error:
        raise first_problem(error, model, document.key_positions) from None
    if isinstance(config, ConfigFile):
        config.remember(document.key_positions)
    return config
