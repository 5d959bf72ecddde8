"""What the benchmark reports about its timings, since no test can say how fast anything is."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqmodel import units
from seqmodel.bench import clock, machine, music, sampling, tied, training
from seqmodel.bench import report as report_module
from seqmodel.bench.cases import SIZES, Size, find_size
from seqmodel.bench.clock import SHORTEST, Budget, Contender, Timing, spread_percent, take_turns
from seqmodel.bench.peers import PeerModel, PeerSampler
from seqmodel.bench.report import report
from seqmodel.bench.training import STAGES, Replay, measure_training
from seqmodel.errors import UsageError
from seqmodel.sampling.sampler import Sampler
from seqmodel.training.loop import Listener, Trainer
from seqmodel.training.stopping import StopRequest
from seqmodel.units import UNITS, unit_spec
from seqmodel.units.backends import BACKENDS
from seqmodel.units.convert import to_torch

TINY = Size("tiny", 3, 5, 2, 4, hidden_with_cell=4)
TINY_ROW = Size("tiny-row", 2, 3, 1, 2)


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """The product that gives the peak is small here, and short runs are not repeated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "PEAK_SIZE", 64)
        patch.setattr(clock, "SHORTEST", 1e-6)
        yield


@pytest.fixture
def threads():
    """A function that sets torch's number of threads for the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def fake_time(monkeypatch):
    """A clock that advances only when a test calls fake_time(seconds).

    Short runs are repeated, as in the benchmark.
    """
    now = [0.0]
    monkeypatch.setattr(clock, "SHORTEST", SHORTEST)
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def passes(seconds):
        now[0] += seconds

    return passes


# ---- clock --------------------------------------------------------------------------------------


def test_contenders_take_turns_and_the_first_round_does_not_count(fake_time):
    """Guards against timing all of one contender first, and counting cold runs with warm ones."""
    ran = []

    def runs(name, seconds):
        cold = ran[-1:] != [name]
        ran.append(name)
        fake_time(100.0 if cold and name != "slow" else seconds)

    taken = take_turns(
        {
            "a": Contender(lambda: runs("a", 1.0)),
            "b": Contender(lambda: runs("b", 2.0)),
            "slow": Contender(lambda: runs("slow", 9.0), slow=True),
        },
        0.0,
    )
    assert "".join(name[0] for name in ran) == "aaaabbbbs" + 2 * "aabbsaabb" + "aabbs"
    assert {name: timing.seconds for name, timing in taken.items()} == {
        "a": [1.0] * 5,
        "b": [2.0] * 5,
        "slow": [9.0] * 3,
    }
    assert clock.ratio(taken["b"], taken["a"]) == 2.0


def test_short_runs_are_repeated_and_what_precedes_them_is_not_timed(fake_time):
    """Guards against timings below the clock's resolution, and against timing `before`."""
    ran = []

    def run():
        ran.append("run")
        fake_time(0.0011)

    def before():
        ran.append("before")
        fake_time(7.0)

    taken = take_turns({"short": Contender(run, before=before)}, 0.0)["short"]
    assert ran == ["before", "run"] * (4 + 5 * 47)
    assert taken.median == pytest.approx(0.0011)


def test_rounds_fill_the_budget(fake_time):
    """Guards against a budget that is ignored, or that cuts the minimum number of rounds."""
    budget = Budget(10.0)
    fake_time(9.0)
    assert not budget.used_up(100)
    fake_time(1.0)
    assert budget.used_up(5)
    assert not budget.used_up(4)
    taken = take_turns({"a": Contender(lambda: fake_time(1.0))}, 20.0)
    assert len(taken["a"].seconds) == 10  # each after an untimed one


def test_one_thread_applies_only_to_its_contender(threads):
    """Guards against a scaling that compares a run with itself, or slows down all that follow."""
    threads(2)
    seen = []
    contender = Contender(lambda: seen.append(torch.get_num_threads()), threads=1)
    contender.seconds(2)
    Contender(lambda: seen.append(torch.get_num_threads())).seconds(1)
    assert seen == [1, 1, 1, 2, 2]


def test_the_spread_is_half_the_interquartile_range():
    """Guards against a spread that one interrupted round blows up."""
    assert spread_percent([4.0, 5.0, 5.0, 6.0, 1000.0]) == pytest.approx(10.0)
    assert spread_percent([3.0]) == 0.0
    timing = Timing([0.004, 0.005, 0.005, 0.006, 1.0])
    expected = {"ms": 5.0, "spread_percent": pytest.approx(10.0), "rounds": 5}
    assert timing.to_json() == expected
    assert timing.best == 0.004


# ---- cases --------------------------------------------------------------------------------------


def test_sizes_are_found_by_name():
    """Guards against a size not found by its own name; the error for others lists the choices."""
    assert [find_size(size.name) for size in SIZES] == list(SIZES)
    names = ", ".join(size.name for size in SIZES)
    with pytest.raises(UsageError, match=f"^there is no size 'huge'; choose one of {names}$"):
        find_size("huge")


def test_units_with_a_cell_are_smaller_at_the_papers_size():
    """Guards against unequal parameter counts at the size called the paper's."""
    paper = find_size("paper")
    hidden = {name: paper.hidden_of(spec) for name, spec in UNITS.items()}
    assert {name for name in UNITS if hidden[name] == 36} == {"lstm", "lstm-nopeephole"}
    assert {hidden[name] for name in set(UNITS) - {"lstm", "lstm-nopeephole"}} == {46}
    assert find_size("speech").hidden_of(UNITS["lstm"]) == 195


# ---- units --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    """A report on all units at two tiny sizes, and the progress it reported."""
    heard = []
    result = report(
        ["units"],
        sizes=[TINY, TINY_ROW],
        seconds=0.0,
        progress=lambda done, total: heard.append((done, total)),
    )
    return SimpleNamespace(result=result, heard=heard)


def test_every_unit_has_a_row_at_every_size(tiny):
    """Guards against cases that are omitted, duplicated or mislabelled."""
    rows = tiny.result["units"]
    assert [(row["size"], row["unit"]) for row in rows] == [
        (size, name) for size in ("tiny", "tiny-row") for name in UNITS
    ]
    sizes = {name: (3, 4 if "lstm" in name else 5, 2, 4) for name in UNITS}
    for row in rows[: len(UNITS)]:
        found = tuple(row[key] for key in ("inputs", "hidden", "batch", "frames"))
        assert found == sizes[row["unit"]]
    assert tiny.heard == [(k, len(rows)) for k in range(len(rows))]


def test_ratios_are_quotients_of_the_medians(tiny):
    """Guards against an inverted ratio, or one of figures other than those shown."""
    for row in tiny.result["units"]:
        ms = {name: timing["ms"] for name, timing in row["timings"].items()}
        assert row["over_torch_nn"] == pytest.approx(ms["torch_nn"] / ms["ours"])
        assert row["over_specification"] == pytest.approx(ms["specification"] / ms["ours"])
        forward = ms["forward_torch_nn"] / ms["forward_ours"]
        assert row["forward_over_torch_nn"] == pytest.approx(forward)
        gates = units.make(row["unit"], row["inputs"], row["hidden"]).gates().values()
        weights = sum(terms[t].numel() for terms in gates for t in "WU" if terms[t] is not None)
        # A multiplication and an addition per weight, row and frame: forward, backward to the
        # input, and for the weight's own gradient.
        operations = 3 * 2 * weights * row["batch"] * row["frames"]
        assert row["gflops"] == pytest.approx(operations / ms["ours"] / 1e6)
        peak = tiny.result["machine"]["sgemm"]["cpu"]["gflops"]
        assert row["of_sgemm_percent"] == pytest.approx(100 * row["gflops"] / peak)


def test_rounds_are_enough_for_a_median(tiny):
    """Guards against figures from a single timing."""
    for row in tiny.result["units"]:
        for name, timing in row["timings"].items():
            assert timing["rounds"] >= (3 if name == "specification" else 5)


@pytest.mark.parametrize(("count", "size"), [(2, TINY), (1, TINY), (2, TINY_ROW)])
def test_scaling_is_reported_where_work_is_split(threads, count, size):
    """Guards against a scaling of 1 on one thread, or for one row, which is never split."""
    threads(count)
    (row,) = report(["units"], ["gru"], [size], seconds=0.0)["units"]
    if count > 1 and size.batch > 1:
        quotient = row["timings"]["ours_one_thread"]["ms"] / row["timings"]["ours"]["ms"]
        assert row["scaling"] == pytest.approx(quotient)
    else:
        assert row["scaling"] is None
        assert "ours_one_thread" not in row["timings"]


def test_rows_state_the_device_and_backend(tiny):
    """Guards against figures of one backend or device taken for another's."""
    assert {(row["device"], row["backend"]) for row in tiny.result["units"]} == {("cpu", "cpu")}


def test_the_specification_is_not_compared_with_itself(monkeypatch):
    """Guards against a meaningless ratio of 1 where no other backend can run."""
    others = {name: BACKENDS[name] for name in list(BACKENDS)[:-1]}
    for name, backend in others.items():
        monkeypatch.setitem(BACKENDS, name, replace(backend, why_not=lambda case: "not today"))
    (row,) = report(["units"], ["gru"], [TINY], seconds=0.0)["units"]
    assert row["backend"] == "reference"
    assert row["over_specification"] is None
    assert "specification" not in row["timings"]


def test_timings_wait_for_the_gpu(monkeypatch):
    """Guards against timing the launch instead of the work."""
    done = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append(str(device)))
    for device in ("cpu", "cuda"):
        clock.finished(lambda: done.append("launched"), torch.device(device))()
    assert done == ["launched", "launched", "cuda"]


def test_parts_that_cannot_run_on_the_device_are_skipped_with_a_reason(monkeypatch):
    """Guards against the CPU's figures under --device cuda."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    asked = []

    def measure(unit, size, device, seconds):
        asked.append((unit, device))
        return {"unit": unit, "device": device, "gflops": 1.0, "sgemm_gflops": 4.0}

    monkeypatch.setattr(report_module, "measure_unit", measure)
    result = report(["units", "training", "sampling"], ["gru"], [TINY], device="cuda", seconds=0.0)
    assert asked == [("gru", "cuda")]
    assert set(result) == {"machine", "units", "skipped"}
    reason = "measured on the CPU only"
    assert result["skipped"] == {"training": reason, "sampling": reason}
    assert result["units"][0]["of_sgemm_percent"] == 25
    assert result["machine"]["gpu"] == "a GPU"


def test_a_missing_device_is_reported_before_anything_runs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(report_module, "measure_sgemm", None)
    with pytest.raises(UsageError, match="finds no GPU"):
        report(device="cuda", seconds=0.0)


# ---- machine ------------------------------------------------------------------------------------


def test_the_peak_is_the_median_over_all_cases():
    """Guards against shares of a peak measured at a different time than the cases."""
    result = report(["machine", "units"], ["tanh"], [TINY, TINY_ROW], seconds=0.0)
    about, rows = result["machine"], result["units"]
    peaks = [about["sgemm_after_kernel"]["sgemm_gflops"], *(row["sgemm_gflops"] for row in rows)]
    assert about["sgemm"]["cpu"]["gflops"] == sorted(peaks)[1]
    after = about["sgemm_after_kernel"]
    assert after["ratio"] == pytest.approx(after["after_kernel"]["ms"] / after["alone"]["ms"])


def test_every_report_describes_the_machine():
    """Guards against figures that cannot be attributed to a machine."""
    about = report([], seconds=0.0)["machine"]
    told = {"processor", "architecture", "cores", "threads", "python", "torch"}
    assert set(about) - {"gpu"} == told | {"sgemm"}
    assert all(about[fact] for fact in told)


# ---- music --------------------------------------------------------------------------------------


def test_models_have_the_papers_sizes():
    """Guards against a comparison at sizes other than the paper's."""
    assert [music.paper_hidden(unit) for unit in ("lstm", "gru", "tanh")] == [36, 46, 100]
    assert music.music_model("lstm").unit.parameter_count() == 18_108


def test_rolls_have_four_notes_and_models_start_at_that_density():
    """Guards against a density, given or drawn, that never or always takes the sparse path."""
    rolls = music.piano_rolls(6, 5)
    assert rolls.shape == (6, 5, 88)
    assert set(rolls.unique().tolist()) == {0.0, 1.0}
    assert (rolls.sum(2) == 4).all()
    assert len(rolls.view(30, 88).unique(dim=0)) > 20
    played = torch.sigmoid(music.music_model("gru").output.linear.bias.detach()).sum()
    assert float(played) == pytest.approx(4)


@pytest.mark.parametrize("name", ["lstm-nopeephole", "gru-reset-after"])
def test_the_peer_computes_the_same_loss(name):
    """Guards against giving torch.nn less, or more, to do."""
    ours, rolls = music.music_model(name), music.piano_rolls(9, 3)
    theirs = PeerModel(unit_spec(name), 88, music.paper_hidden(name))
    theirs.layer.load_state_dict(to_torch(ours.unit).state_dict())
    theirs.linear.load_state_dict(ours.output.linear.state_dict())
    h = ours.read(rolls, ours.start(3)).h
    torch.testing.assert_close(theirs(rolls), ours.output.score(h, rolls).sum())


def test_piano_rolls_cover_the_papers_three_units():
    """Guards against an omitted model, and an inverted ratio."""
    rows = report(["piano-rolls"], seconds=0.0)["piano_rolls"]
    assert [(row["unit"], row["hidden"]) for row in rows] == [
        ("lstm", 36),
        ("gru", 46),
        ("tanh", 100),
    ]
    for row in rows:
        quotient = row["timings"]["torch_nn"]["ms"] / row["timings"]["ours"]["ms"]
        assert row["over_torch_nn"] == pytest.approx(quotient)


@pytest.mark.parametrize("name", UNITS)
def test_the_peer_draws_notes_at_the_given_frequency(name):
    """Guards against running torch.nn's loop on a different kind of frames than ours."""
    bias = torch.cat([torch.full((10,), 9.0), torch.full((20,), -9.0)])
    drawn = PeerSampler(unit_spec(name), 4, bias).draw(50)
    assert drawn.shape == (50, 30)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert drawn[:, :10].mean() > 0.9
    assert drawn[:, 10:].mean() < 0.1


@pytest.mark.parametrize(("chunk", "drawn"), [(100, 300), (256, 256)])
def test_frames_are_counted_not_chunks(monkeypatch, chunk, drawn):
    """Guards against a speed that counts a chunk as one frame."""

    def frames(self, uniforms):
        while True:
            yield np.zeros((chunk, 88), np.uint8), False

    monkeypatch.setattr(Sampler, "draw", frames)
    assert sampling.draw(Sampler(music.music_model("lstm")), 256) == drawn


def test_sampling_reports_speeds_and_their_ratio():
    """Guards against speeds for a different number of frames than timed, or an inverted ratio."""
    (row,) = report(["sampling"], seconds=0.0)["sampling"]
    assert (row["unit"], row["hidden"]) == ("lstm", 36)
    assert row["frames"] >= 256
    for name, timing in row["timings"].items():
        speed = 1e3 * row["frames"] / timing["ms"]
        assert row["frames_per_second"][name] == pytest.approx(speed)
    speeds = row["frames_per_second"]
    assert row["over_torch_nn"] == pytest.approx(speeds["ours"] / speeds["torch_nn"])


# ---- training -----------------------------------------------------------------------------------


def test_a_replayed_epoch_is_an_epoch_of_training(make_config, dataset, tmp_path):
    """Guards against timing something that the training loop no longer does."""
    config = make_config(epochs=1, schedule="constant", clip=0.1, average=0.5)
    trainer = Trainer(config, dataset, tmp_path)
    replay = Replay(config, trainer.train)
    for ours, theirs in (
        (replay.model, trainer.state.model),
        (replay.average, trainer.state.average),
    ):
        ours.load_state_dict(theirs.state_dict())
    seconds = replay.epoch(0)
    assert tuple(seconds) == STAGES
    assert min(seconds.values()) > 0
    trainer.run(Listener(), StopRequest())
    for ours, theirs in (
        (replay.model, trainer.state.model),
        (replay.average, trainer.state.average),
    ):
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


def test_training_is_measured_after_its_first_epoch_and_in_full(tmp_path, monkeypatch):
    """Guards against counting compilation as training, and shares of anything but its time."""
    played = []

    def epoch(replay, number):
        played.append(number)
        return {stage: float(k + number) for k, stage in enumerate(STAGES)}

    def run(trainer, listener, stop):
        for number in range(1, 100):
            speed = trainer.train.frames / (1000 if number == 1 else 20)
            listener.epoch({"epoch": number, "frames_per_second": speed}, True)
            if stop.signal is not None:
                break

    monkeypatch.setattr(Replay, "epoch", epoch)
    monkeypatch.setattr(Trainer, "run", run)
    row = measure_training("gru", tmp_path, 0.0)
    assert played == [1, 2, 3, 4, 5, 6]
    assert (row["hidden"], row["batch"], row["epochs"]) == (46, 16, 5)
    assert row["frames_per_second"] == pytest.approx(15340 / 20)
    expected = {stage: (k + 4) / 20 for k, stage in enumerate(STAGES)}
    assert row["shares"] == pytest.approx({**expected, "rest": 1 - 22 / 20})


def test_training_ends_with_its_budget(tmp_path, monkeypatch, dataset):
    """Guards against a trainer that runs forever, or stops with an error."""
    monkeypatch.setattr(training, "sample_dataset", lambda folder: dataset.folder)
    row = measure_training("lstm", tmp_path, 0.0)
    assert row["epochs"] == 5
    assert row["frames_per_second"] > 0


# ---- the tied model -----------------------------------------------------------------------------


def test_the_tied_peer_is_the_same_model():
    """Guards against a step that computes something else: equal weights give equal nats."""
    sizes = tied.Sizes(5, 4, 2)
    ours = tied._model("gru-reset-after", sizes).eval()
    theirs = tied.PeerTied(unit_spec("gru-reset-after"), sizes)
    theirs.time.load_state_dict(to_torch(ours.unit).state_dict())
    theirs.pitch.load_state_dict(to_torch(ours.output.unit).state_dict())
    theirs.linear.load_state_dict(ours.output.linear.state_dict())
    frames = music.piano_rolls(6, 3)
    with torch.no_grad():
        h, x, past, _ = ours.read(frames, ours.start(3))
        expected = ours.output.score(h, x, past).sum()
        torch.testing.assert_close(theirs(frames), expected, rtol=1e-5, atol=0)
    assert theirs.draw(3).shape == (3, 88)


def test_the_tied_models_operations_are_those_of_its_two_units():
    """36 MFLOP per frame at 96 and 48, forward and backward, calculated by hand."""
    flops = tied._flops(tied._model("gru", tied.Sizes(96, 48, 1)))
    by_hand = 3 * 2 * 88 * 3 * (96 * (58 + 96) + 48 * (96 + 25 + 48))
    assert flops / (tied.BATCH * tied.FRAMES) == by_hand
