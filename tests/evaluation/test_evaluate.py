"""Evaluation, recomputed from the checkpoint file alone: NumPy, float64, piece by piece."""

import copy
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
import torch
from calling import call_ok
from noise import in_memory
from refusals import refused
from scipy import optimize, special, stats
from scipy.special import expit

from seqmodel.data.dataset import DatasetWriter, open_dataset
from seqmodel.evaluation import baselines as evaluation
from seqmodel.evaluation import likelihood as scoring
from seqmodel.evaluation.baselines import baselines, lattice_nats_per_frame
from seqmodel.evaluation.evaluate import evaluate
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import Audio
from seqmodel.media.music.evaluation import baseline_nats_per_frame
from seqmodel.media.music.medium import Music
from seqmodel.model import sequence
from seqmodel.model.sound.kernel import compiled_inputs
from seqmodel.model.sound.predictors import FULL, predictors_at
from seqmodel.model.sound.survey import survey
from seqmodel.runs.folder import check_average, load_run


def weights_of(folder):
    """The model's weights in a run's best checkpoint, by name, in float64."""
    stored = safetensors.numpy.load_file(folder / "best.safetensors")
    return {
        name.removeprefix("model."): tensor.astype(np.float64)
        for name, tensor in stored.items()
        if name.startswith("model.")
    }


def hidden(weights, inputs):
    """The lstm with peepholes over inputs (T, I): h (T, H)."""
    W, U, b = (weights[f"unit.{term}"] for term in "WUb")
    Vi, Vf, Vo = weights["unit.V"]
    h = c = np.zeros(len(Vi))
    found = []
    for x in inputs:
        i, f, g, o = (W @ x + U @ h + b).reshape(4, -1)
        i, f = expit(i + Vi * c), expit(f + Vf * c)
        c = f * c + i * np.tanh(g)
        h = expit(o + Vo * c) * np.tanh(c)
        found.append(h)
    return np.array(found)


def logits_of(weights, roll):
    """Of one piece: logits (T, 89), the last for the end."""
    h = hidden(weights, np.concatenate([np.zeros((1, 88)), roll[:-1]]))
    return h @ weights["output.linear.weight"].T + weights["output.linear.bias"]


def log_p(logits, x):
    return -np.logaddexp(0, np.where(x > 0, -logits, logits))


def figures(nats):
    """What `likelihood` reports of any model, from the nats (T,) of each piece."""
    every = np.concatenate(nats)
    return {
        "pieces": len(nats),
        "frames": len(every),
        "nats_per_frame": every.mean(),
        "nats_per_frame_skip_first": np.concatenate([piece[1:] for piece in nats]).mean(),
        "piece_mean_nats_per_frame": np.mean([piece.mean() for piece in nats]),
    }


@pytest.fixture(scope="session")
def recomputed(run_folder, rolls):
    """The nats of each piece of valid, and every figure of the run, by hand."""
    weights = weights_of(run_folder)
    nats, ends, predicted = [], [], []
    for roll in rolls["valid"]:
        logits = logits_of(weights, roll)
        nats.append(-log_p(logits[:, :88], roll).sum(1))
        ends.append(-log_p(logits[:, 88], np.arange(len(roll)) == len(roll) - 1).sum())
        predicted.append(logits[:, :88] > 0)
    on, said = np.concatenate(rolls["valid"]) > 0, np.concatenate(predicted)
    tp, fp, fn = (said & on).sum(), (said & ~on).sum(), (~said & on).sum()
    assert tp > 0  # else accuracy would test nothing
    return nats, {
        **figures(nats),
        "accuracy": tp / (tp + fp + fn),
        "precision": tp / (tp + fp),
        "recall": tp / (tp + fn),
        "end_nats_per_piece": np.mean(ends),
    }


@pytest.fixture(params=["music", "sound"])
def known(request):
    """A run's model, a split, every figure of it by hand, and how near it comes to them."""
    if request.param == "music":
        run, dataset, recomputed = map(request.getfixturevalue, ("run", "dataset", "recomputed"))
        return run.model, dataset["valid"], recomputed[1], 1e-5
    run, _, figures = request.getfixturevalue("recomputed_sound")
    return run.model, request.getfixturevalue("audio_dataset")["train"], figures, 1e-4


@pytest.mark.parametrize(("batch_size", "window"), [(1, 8192), (3, 7), (32, 1), (5, 26)])
def test_the_figures_are_the_recomputed_ones(known, monkeypatch, batch_size, window):
    """For any batch size and for pieces longer than a window: padding and cuts never count."""
    model, split, expected, near = known
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", window)
    ours = likelihood(model, split, batch_size=batch_size).to_json()
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert ours[name] == pytest.approx(value, abs=near, rel=near / 10), name


def test_scores_are_taken_without_dropout_and_the_mode_is_restored(
    make_config, train, tmp_path, dataset
):
    """A run without ends has no figure of them; and it scores a piece of a single frame."""
    trainer = train(make_config(unit="gru", layers=2, dropout=0.5, epochs=1), tmp_path / "run")
    model, found = trainer.state.model, []
    for training in (True, True, False):
        model.train(training)
        found.append(likelihood(model, dataset["valid"]).to_json())
        assert model.training == training
    assert found[0] == found[1] == found[2]
    assert "end_nats_per_piece" not in found[0]
    single = dataset["train"][1]
    assert len(single) == 1
    assert load_run(tmp_path / "run").nll(single).sum() > 0


def test_silence_predicted_as_silence_has_accuracy_0_and_no_error(tmp_path, write_dataset, run):
    """A split of one-frame pieces is no error either: without first frames it has no score."""
    silent = write_dataset(tmp_path, {"valid": [np.zeros((4, 88), np.uint8)]})
    model = copy.deepcopy(run.model)
    torch.nn.init.constant_(model.output.linear.bias, -30)
    scores = likelihood(model, silent["valid"])
    assert scores.figures | {"accuracy": 0, "precision": 0, "recall": 0} == scores.figures
    one = write_dataset(tmp_path / "one", {"valid": [np.ones((1, 88), np.uint8)] * 2})
    assert "nats_per_frame_skip_first" not in likelihood(run.model, one["valid"]).to_json()
    said = call_ok("eval", run.folder, "--data", tmp_path / "one").out
    assert ("nats per frame " in said, "first frames" in said) == (True, False)


def test_all_processes_of_a_group_report_progress_equally_often(run, dataset):
    """Each may then save together with the others: also one that has nothing to score at last."""
    events, last = [], None

    def all_of(scored):
        nonlocal last
        last = scored or last  # as if the other process had scored as much
        events.append("told")
        return [last, last]

    valid, group = dataset["valid"], SimpleNamespace(rank=1, size=2, all=all_of)
    assert len(valid) % 2 == 1
    tell = lambda done, total: events.append("progress")  # noqa: E731
    likelihood(run.model, valid, batch_size=1, progress=tell, group=group)
    assert events == ["told", "progress"] * ((len(valid) + 1) // 2)


@pytest.fixture(scope="module")
def other(tmp_path_factory, make_config, train):
    """A run like `run`, but smaller and of another seed."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    train(make_config(end=True, hidden=4, learning_rate=0.05, epochs=9), folder)
    return load_run(folder)


def probabilities(run, roll):
    """Of each frame of a piece (T,), and of the piece ending or not with it (T,)."""
    logits = logits_of(weights_of(run.folder), roll)
    last = np.arange(len(roll)) == len(roll) - 1
    return np.exp(log_p(logits[:, :88], roll).sum(1)), np.exp(log_p(logits[:, 88], last))


def test_the_average_is_the_recomputed_one(run, other, dataset, rolls, monkeypatch):
    """Guards against means of nats, of whole pieces, or of ends apart from their frames."""
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", 26)  # windows of 5 frames
    frames, ends = [], []
    for roll in rolls["valid"]:
        (p, p_end), (q, q_end) = probabilities(run, roll), probabilities(other, roll)
        frames.append(-np.log((p + q) / 2))
        ends.append(-np.log((p * p_end + q * q_end) / (p + q)))
    values = evaluate(run, dataset, "valid", others=[other], per_frame=True)
    right = figures(frames) | {"end_nats_per_piece": np.mean([piece.sum() for piece in ends])}
    for name, figure in right.items():
        assert values[name] == pytest.approx(figure, abs=1e-5, rel=1e-6), name
    for piece, nats in zip(values["per_piece"], frames, strict=True):
        np.testing.assert_allclose(piece["frame_nats"], nats, atol=2e-5)
        assert piece["nats"] == pytest.approx(nats.sum(), abs=1e-4)
    alone = [evaluate(one, dataset, "valid") for one in (run, other)]
    assert all(values["nats_per_frame"] < one["nats_per_frame"] + np.log(2) for one in alone)
    for one, each in zip(alone, values["runs"], strict=True):
        assert each == {name: one[name] for name in each}
    assert {*values} == {*right, "runs", "data", "split", "baselines", "copies", "per_piece"}


def test_runs_that_predict_something_else_have_no_average(run, other, struck_dataset):
    """Guards against adding up probabilities of different events: such a figure means nothing."""
    check_average([run, other])
    endless = replace(other, config=replace(other.config, end=False))
    struck = replace(other, frame=struck_dataset.frame)
    ways = ("without ends, not with ends", "with onsets, not without onsets")
    for third, why in zip((endless, struck), ways, strict=True):
        says = f"{third.folder} differs from {run.folder} ({why}): "
        refused(lambda third=third: check_average([run, other, third]), says)


def test_sound_has_bits_per_sample_whatever_the_models(
    logistic_run_folder, sample_wise_run_folder, audio_run_folder, audio_dataset
):
    """Frame-wise and sample-wise; guards figures per sample that stay those of the first run."""
    folders = (logistic_run_folder, sample_wise_run_folder, audio_run_folder)
    run, other, density = map(load_run, folders)
    values = evaluate(run, audio_dataset, "valid", others=[other], per_frame=True)
    assert values["nats_per_sample"] == pytest.approx(values["nats_per_frame"] / 10)
    assert values["bits_per_sample"] == pytest.approx(values["nats_per_sample"] / np.log(2))
    assert len({one["bits_per_sample"] for one in (values, *values["runs"])}) == 3
    for piece, frames in zip(values["per_piece"], audio_dataset["valid"], strict=True):
        mean = np.mean([np.exp(100 - one.nll(frames)) for one in (run, other)], 0)  # e^-100 is 0
        np.testing.assert_allclose(piece["frame_nats"], 100 - np.log(mean), rtol=1e-5)
    refused(lambda: check_average([run, density]), "(densities mean ", ", not probabilities)")


C, F, K = 20, 10, 3
STEP = 1 / 32768


def gaussian_nats(weights, h, block, floor):
    """-log of the density of a standardised block (F,), and the share that the floor decides."""
    outputs = weights["output.linear.weight"] @ h + weights["output.linear.bias"]
    logits, means, logs = np.split(outputs.reshape(2 * F + 1, K), [1, F + 1])
    joint = special.log_softmax(logits[0]) + np.array(
        [stats.norm(means[:, k], floor + np.exp(logs[:, k])).logpdf(block).sum() for k in range(K)]
    )
    return -special.logsumexp(joint), (np.exp(logs[:, joint.argmax()]) < floor).mean()


def by_hand(weights, frame, pieces):
    """The nats (T,) and shares at the floor (T,) of each piece of levels (N,)."""
    nats, shares = [], []
    for piece in pieces:
        line = np.concatenate([np.zeros(C), piece / 32768])
        z = (line - frame.mean) / frame.deviation
        starts = range(0, len(piece), F)
        hs = hidden(weights, [z[t : t + C] for t in starts])
        blocks = [z[t + C : t + C + F] for t in starts]
        both = [
            gaussian_nats(weights, h, block, STEP / frame.deviation)
            for h, block in zip(hs, blocks, strict=True)
        ]
        nats.append(np.array([some for some, _ in both]))
        shares.append(np.array([share for _, share in both]))
    return nats, shares


def sound_figures(nats, shares):
    """The same for these nats and shares."""
    per_sample, share = np.concatenate(nats).mean() / F, np.concatenate(shares).mean()
    return figures(nats) | {"nats_per_sample": per_sample, "floor_share": share}


@pytest.fixture(scope="session")
def recomputed_sound(audio_run_folder, audio_dataset, recordings):
    """The run, the nats of each piece of train, which has most, and every figure, by hand."""
    weights = weights_of(audio_run_folder)
    nats, shares = by_hand(weights, audio_dataset.frame, recordings["train"])
    return load_run(audio_run_folder), nats, sound_figures(nats, shares)


def test_no_more_is_read_at_a_time_than_a_window(recomputed_sound, audio_dataset, monkeypatch):
    """Guards against holding whole long recordings in memory, 32 of them at once."""
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", 10)
    sizes, load = [], scoring.batches.load

    def loading(*given, **named):
        batch = load(*given, **named)
        sizes.append(batch.frames.size)
        return batch

    monkeypatch.setattr(scoring.batches, "load", loading)
    for batch_size in (1, 2, 5):
        likelihood(recomputed_sound[0].model, audio_dataset["train"], batch_size=batch_size)
    assert max(sizes) == 100


def test_baselines_of_a_dataset_without_train_are_the_runs(
    recomputed_sound, audio_dataset, recordings, tmp_path
):
    """Fitted to the run's training data, and in its standardisation, not the dataset's own."""
    run, frame = recomputed_sound[0], audio_dataset.frame
    other = AudioFrames(8000, F, C, "int16", mean=0.3, deviation=0.7)
    alone = write(tmp_path / "alone", other, test=recordings["test"])
    ours, theirs = (evaluate(run, data, "test") for data in (alone, audio_dataset))
    assert ours["baselines"] == theirs["baselines"]
    assert ours["standardisation"]["deviation"] == frame.deviation
    assert ours["nats_per_frame"] == theirs["nats_per_frame"]


def write(folder, frame, **splits):
    """A dataset of pieces of levels (N,)."""
    folder.mkdir()
    with DatasetWriter(folder, frame) as writer:
        for split, pieces in splits.items():
            for k, levels in enumerate(pieces):
                writer.add(split, f"{k}.wav", [levels])
        writer.finish(frame, {"skipped": []})
    return open_dataset(folder)


def test_exact_digital_silence_is_scored_by_the_floor_and_the_share_shows_it(
    tmp_path, audio_run_folder
):
    """Density is unbounded where samples repeat: neither that nor padding is skill. The first
    component predicts silence, six samples of a block more exactly than the floor allows."""
    random = np.random.default_rng(3)
    pieces = [
        np.append(np.zeros(40 * k), random.normal(0, 3000, 200)).astype(np.int16) for k in (2, 9, 4)
    ]
    run = load_run(audio_run_folder)
    frame, output = run.frame, run.model.output
    with torch.no_grad():
        weight, bias = (
            w.view(2 * F + 1, K, *w.shape[1:]) for w in (output.linear.weight, output.linear.bias)
        )
        weight[1:, 0] = 0
        bias[1 : F + 1, 0] = -frame.mean / frame.deviation
        bias[F + 1 : F + 7, 0] = -30
        bias[F + 7 :, 0] = -3
    weights = {name: tensor.double().numpy() for name, tensor in run.model.state_dict().items()}
    expected = sound_figures(*by_hand(weights, frame, pieces))
    assert expected["floor_share"] == pytest.approx(0.6 * 60 / 120)  # in 60 blocks, and no others
    data = write(tmp_path / "data", frame, valid=pieces)
    for batch_size in (1, 2, 3):
        scores = likelihood(run.model, data["valid"], batch_size=batch_size)
        assert scores.figures["floor_share"] == pytest.approx(expected["floor_share"])
        assert scores.nats_per_frame == pytest.approx(expected["nats_per_frame"], rel=1e-5)
    narrow = math.log(math.exp(-30) + STEP / frame.deviation) * 6
    wide = math.log(math.exp(-3) + STEP / frame.deviation) * 4
    least = narrow + wide + F * math.log(2 * math.pi) / 2  # at the very mean nothing is denser
    silent = run.nll(np.zeros((8, F)))
    assert ((least <= silent) & (silent < least + 5)).all()


OF_LEVELS, UNIFORM = 2.0**-15, 2.0**-40
FRAME = AudioFrames(8000, frame_size=5, mean=0.01, deviation=0.2)


def split_of(*pieces, frame=FRAME):
    """A split of int16 levels (N,)."""
    return in_memory(frame, *pieces)


def tone(seed, length, grid=1):
    """A decaying tone in noise, in multiples of `grid` levels, with a clipped sample."""
    random, t = np.random.default_rng(seed), np.arange(length)
    line = 9000 * np.exp(-t / 90) * np.sin(t * random.uniform(0.2, 0.5))
    line = np.rint((line + random.normal(0, 40, length)) / grid) * grid
    line[length // 2] = random.choice([-32768, 32767 // grid * grid])
    return line.astype(np.int16)


TRAIN = [tone(1, 90), tone(2, 60), tone(3, 75, grid=256), tone(4, 45)]
VALID = [tone(5, 70, grid=256), tone(6, 105), np.zeros(10, np.int16), tone(7, 5)]


def told_by(train, pieces):
    """Certainty, spacing, anchor and level before each sample of all pieces, raw: (N, 4)."""
    predictors = predictors_at(8000)
    known = survey([piece / FULL for piece in train], 8000, steered=False)
    rows = []
    for piece in pieces:
        samples = torch.from_numpy(np.append(0, piece[:-1]) / 32768).unsqueeze(1)
        memory = predictors.start_memory(known.grid, 1, torch.device("cpu"))
        rows.append(compiled_inputs(predictors, known, samples, memory)[0][:, 0, -4:].numpy())
    return np.concatenate(rows)


def nats(told, x, log_scale):
    """-log P of raw samples (N,), one logistic around the anchor, on the grid or on every level."""
    certainty, spacing, anchor, level = told.T
    around = stats.logistic(anchor, OF_LEVELS / 10 + level * np.exp(log_scale))

    def chance(width, highest):
        low, high = x - width / 2, x + width / 2
        inside = np.where(
            x > anchor, around.sf(low) - around.sf(high), around.cdf(high) - around.cdf(low)
        )
        inside = np.where(x >= highest, around.sf(low), inside)
        return np.where(x <= -1, around.cdf(high), inside)

    share = np.where(spacing > OF_LEVELS, np.minimum(certainty, 1 - 2**-20), 0)
    on_grid = np.where(x % spacing == 0, chance(spacing, 1 - spacing), 0)
    p = (1 - share) * chance(OF_LEVELS, 1 - OF_LEVELS) + share * on_grid
    return -np.log((1 - UNIFORM) * p + UNIFORM / 65536).sum()


def lattice_by_hand(train, split, fitted):
    """Nats per frame, and the log of the scale's factor that is best for `fitted`."""
    told, x = told_by(train, fitted), np.concatenate(fitted) / 32768
    best = optimize.minimize_scalar(lambda s: nats(told, x, s), bounds=(-3, 3)).x
    total = nats(told_by(train, split), np.concatenate(split) / 32768, best)
    return total / (sum(map(len, split)) / 5), best


@pytest.mark.parametrize(("batch", "window"), [(16, 1024), (3, 5)])
def test_the_lattice_is_the_recomputed_one(monkeypatch, batch, window):
    """For any batch size and window: padding and cuts never count, and the memory is carried on."""
    monkeypatch.setattr(evaluation, "BATCH", batch)
    monkeypatch.setattr(evaluation, "WINDOW", window)
    expected, best = lattice_by_hand(TRAIN, VALID, TRAIN)
    assert -2.5 < best < 2.5
    ours = lattice_nats_per_frame(split_of(*TRAIN), split_of(*VALID), FRAME)
    assert ours == pytest.approx(expected, rel=1e-4)


SQUARE = np.where(np.arange(200) // 20 % 2, 32767, -32768)


@pytest.mark.parametrize(
    ("odd", "rate"), [(np.zeros(200), 8000), (SQUARE, 192_000), (np.full(200, 9999), 8000)]
)
def test_odd_recordings_cost_a_lattice_less_than_20_bits_a_sample(odd, rate):
    frame, odd = AudioFrames(rate, frame_size=5), odd.astype(np.int16)
    for train in (odd, TRAIN[0]):
        splits = split_of(train, frame=frame), split_of(odd, frame=frame)
        assert 0 <= lattice_nats_per_frame(*splits, frame) < 5 * 20 * math.log(2)


# ---- kept ---------------------------------------------------------------------------------------


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """An empty cache of figures."""
    monkeypatch.setenv("SEQMODEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fits(monkeypatch):
    """The (train, split) that a medium's baselines were fitted to and scored on."""
    made = []
    for medium in (Music, Audio):

        def fit(self, train, split, frame, *, discrete, own=medium.baselines):
            made.append((train.name, split.name))
            return own(self, train, split, frame, discrete=discrete)

        monkeypatch.setattr(medium, "baselines", fit)
    return made


def all_figures(*folders):
    """What eval and the page report on every split of runs."""
    runs = [load_run(folder) for folder in folders]
    return [
        evaluate(run, run.dataset(), split)["baselines"]
        for run in runs
        for split in run.dataset().splits
    ]


def test_lattices_are_fitted_once_for_a_dataset(
    cache_folder, fits, monkeypatch, run_folder, audio_run_folder, logistic_run_folder
):
    """The same to the bit without a cache, from an empty one and from a full one."""
    folders = (run_folder, audio_run_folder, logistic_run_folder)
    with monkeypatch.context() as without:
        without.setenv("SEQMODEL_CACHE", "")
        expected = all_figures(*folders)
    assert len(fits) == len(expected) == 9
    fits.clear()
    assert all_figures(*folders, *folders) == expected * 2
    assert len(fits) == len([*cache_folder.glob("*.figures")]) == 9


def test_a_lattice_of_other_data_code_or_machine_is_fitted_anew(
    cache_folder, fits, monkeypatch, write_dataset, rolls, tmp_path
):
    """Guards against the figures of a dataset that was prepared again in the same folder."""
    kinds = [rolls, rolls | {"train": rolls["train"][1:]}, rolls | {"valid": rolls["valid"][::-1]}]
    folder, frame = tmp_path / "data", None
    for number, content in enumerate(kinds, 1):
        data = write_dataset(folder, content)
        frame = data.frame
        for _ in range(2):
            found = baselines(data["train"], data["valid"], frame, discrete=True)
            assert found == baseline_nats_per_frame(data["train"], data["valid"])
            assert len(fits) == number
    moved = shutil.copytree(folder, tmp_path / "moved")
    splits = [open_dataset(moved)[name] for name in ("train", "valid")]
    baselines(*splits, frame, discrete=True)
    assert len(fits) == len(kinds)
    baselines(*splits[::-1], frame, discrete=True)
    assert len(fits) == len(kinds) + 1
    for place, name in ((evaluation, "program_hash"), (evaluation.binding, "get_host_cpu_name")):
        monkeypatch.setattr(place, name, lambda: "another")
        baselines(*splits, frame, discrete=True)
    assert len(fits) == len(kinds) + 3
