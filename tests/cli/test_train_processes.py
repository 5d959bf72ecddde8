"""`train --processes`, and torchrun: one line of result, one lock, and no fault that hangs."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from calling import (
    ENVIRONMENT,
    PATIENCE,
    begun,
    call_ok,
    children,
    epochs_of,
    free_port,
    gone,
    same_tensors,
    start,
    waited,
)
from forking import Forked, outcome
from safetensors.numpy import load_file

MODEL = ("--model", "frame-wise", "--no-end", "--hidden", 4, "--dropout", 0.2)
SMALL = (*MODEL, "--epochs", 3, "--parts", 2)
LONG = (*MODEL, "--epochs", 4000, "--patience", 4000, "--schedule", "constant")
TORCHRUN = ["torch.distributed.run"]


def others_of(process):
    """The processes that it has started, but the first child, which is its fork server."""
    return children(process.pid)[1:]


def two(data, epochs):
    """Two processes that train into run/, after so many epochs: the first, and the other's pid."""
    process = start("train", data, *LONG, "--processes", 2, "--run", "run")
    begun("run", process, epochs)
    return process, *others_of(process)


def test_two_processes_print_and_write_what_one_does(data):
    """Whatever the others say, the user sees one training."""
    one = call_ok("train", data, *SMALL, "--run", "one")
    two = start("train", data, *SMALL, "--processes", 2, "--run", "two").communicate()
    plain = [re.sub(r"one|two| +[\d,]+ frames/s", "", text) for text in (one.out, one.err, *two)]
    assert plain[:2] == plain[2:]
    assert Path("one/best.safetensors").read_bytes() == Path("two/best.safetensors").read_bytes()
    assert same_tensors("one/last.safetensors", "two/last.safetensors")
    settings = Path("two/config.yaml").read_text()
    assert "parts: 2\n" in settings
    assert "processes" not in settings
    Path("four.yaml").write_text("parts: 4\nbatch_size: 4\n")
    command = ("train", data, "--config", "four.yaml", "--processes", 2, "--print-config")
    assert "parts: 4\n" in call_ok(*command).out  # those of the file


def test_ctrl_c_stops_all_and_one_process_goes_on(data):
    process, other = two(data, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    again = "the work is saved: continue with `seqmodel train --resume --run run`"
    assert re.fullmatch(rf"seqmodel: stopped in epoch \d+; {again}", err.splitlines()[-1])
    assert gone(other)
    assert not list(Path("run").glob(".*"))  # no temporary file is left
    again = epochs_of("run") + 2
    for folder in ("run", "whole"):  # as if only some epochs had been asked for
        options = ("--resume",) if folder == "run" else (data, *LONG, "--parts", 2)
        call_ok("train", *options, "--run", folder, "--epochs", again, "-q")
    assert same_tensors("run/last.safetensors", "whole/last.safetensors")


def test_a_killed_process_ends_the_others_with_one_line(data):
    process, other = two(data, 1)
    os.kill(other, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert err.splitlines()[-1] == (
        "seqmodel: process 1 has ended with signal 9; "
        "continue from the last checkpoint with `seqmodel train --resume --run run`"
    )
    assert "Traceback" not in err
    call_ok("train", "--resume", "--run", "run", "--print-config")


def test_when_the_first_is_killed_the_others_end(data):
    """Before they give up waiting for it, after 50 s each time that they look for it."""
    process = start("train", data, *LONG, "--processes", 2, "--run", "run")
    others = waited(lambda: others_of(process))
    process.kill()
    assert "Traceback" not in process.communicate(timeout=PATIENCE)[1]
    waited(lambda: all(map(gone, others)), 40)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing watches elsewhere")
def test_torchrun_goes_on_after_the_only_process_of_a_host_was_frozen(data):
    """torchrun sees no frozen process, nor counts the restart that another host asks for.

    As on many hosts, each has the data in a place of its own, one the run and the result.
    """
    freezing = """if True:
        import os, signal
        from datetime import timedelta
        from pathlib import Path
        from seqmodel.cli.main import main
        from seqmodel.training import loop, processes

        def write_and_freeze(trainer, write=loop.Trainer._write_metrics):
            write(trainer)
            if trainer.folder and not Path("frozen").exists():  # of the first, once
                Path("frozen").touch()
                os.kill(os.getpid(), signal.SIGSTOP)

        loop.Trainer._write_metrics = write_and_freeze
        processes.PATIENCE = timedelta(seconds=10)
        main()
    """
    port = free_port()
    for host in ("a", "b"):
        shutil.copytree(data, Path(host, "music"))
    launched = [
        Forked(
            [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
             "--rdzv-endpoint", f"localhost:{port}", "--max-restarts", "1", "--no-python", "--",
             sys.executable, "-c", freezing, "train", "music", *map(str, SMALL), "--run", "run"],
            cwd=host, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for host in ("a", "b")
    ]  # fmt: skip
    printed, said = zip(*(each.communicate(timeout=PATIENCE) for each in launched), strict=True)
    assert [process.returncode for process in launched] == [0, 0], said
    assert sorted(map(bool, printed)) == [False, True]
    (frozen,) = Path().glob("*/frozen")
    first = frozen.parent
    (line,) = re.findall(r"^seqmodel: .*$", said[first.name == "b"], re.MULTILINE)
    assert line == (
        "seqmodel: process 0 was frozen for 10 s and has been killed; "
        "continue from the last checkpoint with `seqmodel train --resume --run run`"
    )
    call_ok("train", data, *SMALL, "--run", "one", "-q")
    assert same_tensors("one/last.safetensors", first / "run/last.safetensors")


def test_what_slurm_starts_again_goes_on(call, data, monkeypatch):
    """The same command, from the queue once more; by hand it is refused."""
    line = ("train", data, *SMALL, "--run", "run")
    call_ok(*line)
    before = Path("run/last.safetensors").read_bytes()
    for count, status in (("0", 1), ("1", 0)):
        monkeypatch.setenv("SLURM_RESTART_COUNT", count)
        result = call(*line)
        assert (result.status, "run is already complete" in result.err) == (status, not status)
    assert Path("run/last.safetensors").read_bytes() == before


def test_a_host_with_the_wrong_data_is_named(data, music):
    call_ok("prepare", music / "train", "--out", "b/music")
    shutil.copytree(data, "a/music")
    in_its_folder = (
        "import os; os.chdir('ab'[int(os.environ['RANK'])]); "
        "from seqmodel.cli.main import main; main()"
    )
    status, _, err = outcome(
        *TORCHRUN, "--standalone", "--nproc-per-node", "2", "--no-python", "--",
        *(sys.executable, "-c", in_its_folder, "train", "music", *SMALL, "--run", "run"),
        env=ENVIRONMENT,
    )  # fmt: skip
    (said,) = [line for line in err.splitlines() if line.startswith("seqmodel: ")]
    assert status == 1
    assert re.match(r"seqmodel: process 1 on \S+: .*music differs from the dataset of", said)
    assert not Path("a/run").exists()  # so that the same line will do once the data is there


def test_a_full_disk_under_the_first_ends_all(data):
    """The last save before it stays whole."""
    process, other = two(data, 2)
    limit = subprocess.run(
        ["prlimit", f"--pid={process.pid}", "--fsize=100:100"], check=False, capture_output=True
    )
    if limit.returncode:
        process.kill()
        process.communicate()
        pytest.skip("no prlimit here")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("seqmodel: cannot write run/")
    assert gone(other)
    load_file("run/last.safetensors")
