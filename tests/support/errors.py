"""Assert on the type and the fields of an error, not on its wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def raises(
    kind: type[Exception], match: str | None = None, **fields: object
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error of this type with these fields: `with raises(DataError, path=file, line=2): …`"""
    with pytest.raises(kind, match=match) as error:
        yield error
    actual = {name: vars(error.value)[name] for name in fields}
    assert actual == {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}
