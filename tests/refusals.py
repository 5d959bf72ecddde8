"""Errors as users see them: one line that contains the essential parts."""

import pytest

from seqmodel.errors import SeqmodelError


def refused(call, *parts):
    """The message of the error that `call` raises: one line that has all `parts`."""
    with pytest.raises(SeqmodelError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert all(str(part) in message for part in parts), message
    return message
