"""Two commands, one target: the first is undisturbed, the second fails with a one-line error."""

import json
import re
import signal
from pathlib import Path

import pytest
from calling import call_ok, start

from seqmodel.locks import locked

LONG = ("--model", "frame-wise", "--no-end", "--hidden", 4, "--patience", 10**6, "--epochs", 10**6)
IN_USE = "seqmodel: another process is writing {}: wait for it to finish, or choose another path\n"


def test_a_second_training_leaves_the_first_alone(call, data):
    """Used to mix the config of one with the weights of the other, and exit 0 from both."""
    first = start("train", data, *LONG, "--unit", "lstm", "--run", "run")
    for line in first.stderr:
        if re.match("epoch +1/", line):
            break
    for options in (
        (data, "--unit", "gru", "--run", "run"),
        (data, "--unit", "gru", "--run", "run", "--force"),
        ("--resume", "--run", "run"),
    ):
        second = call("train", *options)
        assert (second.status, second.out) == (1, "")
        assert second.err == IN_USE.format("run")
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode == 128 + signal.SIGINT
    assert not list(Path().glob(".*"))
    assert json.loads(call_ok("inspect", "run", "--json").out)["config"]["unit"] == "lstm"


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_a_second_prepare_fails_before_it_starts(call, music, options):
    with locked(Path("data")):
        result = call("prepare", music, "--out", "data", *options)
        assert (result.status, result.out) == (1, "")
        assert result.err == IN_USE.format("data")
    call_ok("prepare", music, "--out", "data", *options)
    assert [path.name for path in Path().iterdir()] == ["data"]
