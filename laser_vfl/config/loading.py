"""One call from a YAML file to a checked configuration, or to one line that says what is wrong."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from laser_vfl.config.document import parse_document
from laser_vfl.config.paths import DIRECTORY
from laser_vfl.config.reading import read_text
from laser_vfl.config.section import ConfigFile
from laser_vfl.config.sentences import first_problem

M = TypeVar("M", bound=BaseModel)


def is_of(path: Path, model: type[BaseModel], other: type[BaseModel]) -> bool:
    """Whether a file looks more like one kind of configuration than like another."""
    found = parse_document(read_text(path), str(path)).value
    keys = set(found) if isinstance(found, dict) else set()
    return len(keys & set(model.model_fields)) > len(keys & set(other.model_fields))


def load_config(path: Path, model: type[M]) -> M:
    """The configuration in a file; a `ConfigError` that points into it when something is wrong.

    Relative paths in it start at its directory. Nothing but the file itself is opened.
    """
    document = parse_document(read_text(path), str(path))
    try:
        config = model.model_validate(document.value, context={DIRECTORY: path.parent})
    except ValidationError as error:
        raise first_problem(error, model, document.places) from None
    if isinstance(config, ConfigFile):
        config.remember(document.places)
    return config
