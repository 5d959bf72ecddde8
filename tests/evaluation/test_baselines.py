"""The lattice by itself, recomputed with the plain specification of what it hears, and scipy."""

import math
import shutil

import numpy as np
import pytest
import torch
from noise import in_memory
from scipy import optimize, stats

from seqmodel.data.dataset import open_dataset
from seqmodel.evaluation import baselines as evaluation
from seqmodel.evaluation.baselines import baselines, lattice_nats_per_frame
from seqmodel.evaluation.evaluate import evaluate
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import Audio
from seqmodel.media.music.evaluation import baseline_nats_per_frame
from seqmodel.media.music.medium import Music
from seqmodel.model.sound.kernel import compiled_inputs
from seqmodel.model.sound.predictors import FULL, predictors_at
from seqmodel.model.sound.survey import survey
from seqmodel.runs.folder import load_run

STEP, UNIFORM = 2.0**-15, 2.0**-40
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
    around = stats.logistic(anchor, STEP / 10 + level * np.exp(log_scale))

    def chance(width, highest):
        low, high = x - width / 2, x + width / 2
        inside = np.where(
            x > anchor, around.sf(low) - around.sf(high), around.cdf(high) - around.cdf(low)
        )
        inside = np.where(x >= highest, around.sf(low), inside)
        return np.where(x <= -1, around.cdf(high), inside)

    share = np.where(spacing > STEP, np.minimum(certainty, 1 - 2**-20), 0)
    on_grid = np.where(x % spacing == 0, chance(spacing, 1 - spacing), 0)
    p = (1 - share) * chance(STEP, 1 - STEP) + share * on_grid
    return -np.log((1 - UNIFORM) * p + UNIFORM / 65536).sum()


def by_hand(train, split, fitted):
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
    expected, best = by_hand(TRAIN, VALID, TRAIN)
    assert -2.5 < best < 2.5
    ours = lattice_nats_per_frame(split_of(*TRAIN), split_of(*VALID), FRAME)
    assert ours == pytest.approx(expected, rel=1e-4)


SQUARE = np.where(np.arange(200) // 20 % 2, 32767, -32768)


@pytest.mark.parametrize(
    ("odd", "rate"), [(np.zeros(200), 8000), (SQUARE, 192_000), (np.full(200, 9999), 8000)]
)
def test_odd_recordings_cost_less_than_20_bits_a_sample(odd, rate):
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


def test_they_are_fitted_once_for_a_dataset(
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


def test_other_data_other_code_or_another_machine_is_fitted_anew(
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
