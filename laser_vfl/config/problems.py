"""How a validator of ours reports what is wrong with a value, in words meant for a person."""

from pydantic_core import PydanticCustomError

PROBLEM_TYPE = "laser_vfl_problem"


def problem(message: str, hint: str, *, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """An error to raise inside a pydantic validator.

    `at` leads from the value being validated to the key to blame, when a check of a whole mapping
    knows better than the mapping itself.
    """
    return PydanticCustomError(
        PROBLEM_TYPE, "{message}", {"message": message, "hint": hint, "at": at}
    )
