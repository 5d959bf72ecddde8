"""The page of a sample-wise model of audio: the samples of `seqmodel sample`, heard and saved."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import soundfile
import torch
from onnx_sessions import steer
from playing import OWN, STATUS

from seqmodel.config import resolve
from seqmodel.errors import UsageError
from seqmodel.export.page.render import export_page
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import build_model, with_sizes
from seqmodel.runs.folder import Run
from seqmodel.sampling import sampler
from seqmodel.sampling.sampler import Freeze, Sampler

pytestmark = pytest.mark.usefixtures("silent_console")

FRAMES = 240
KNOWN = {"who": ("a", "b"), "n": ("1", "2", "3")}


def make_run(folder, *, rate=8000, dtype="int16", labels=None, **options):
    """A run with random weights, steered to random loudness, voices, spectra and courses."""
    frame = AudioFrames(rate, 10, 20, dtype, known_labels=KNOWN if labels else {})
    settings = {"data": str(folder / "data"), "model": "sample-wise", "hidden": 8, **options}
    config = with_sizes(resolve(settings, presets=AUDIO.presets), frame)
    torch.manual_seed(1)
    model, draw = build_model(config, frame), torch.Generator().manual_seed(2)
    if config.model == "sample-wise":
        steer(model.encoder, draw)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=draw))
            if name == "output.ending.bias":
                weight.sub_(4.5)
    run = Run(config, frame, 3, FRAMES, folder=folder, model=model.eval())
    return run.conditioned(labels or {})


def sampled(run, seed, number=0, temperature=1.0):
    """The samples of a piece as 16-bit levels."""
    draws = Sampler(run.model, temperature=temperature)
    piece = draws.piece(FRAMES, seed=seed, number=number, freeze=Freeze.of(run))
    piece = np.concatenate([*piece])
    return np.rint(piece.ravel() * 32768).astype(int).tolist()


def drawn(chrome, seed, number=0, temperature=1.0, tell=""):
    """The same in the browser, by a model that was told something."""
    return chrome.run(
        f"""(() => {{
          const [model, samples] = [{OWN}, []];
          {tell}
          model.begin({seed}n, {number}n);
          for (let ended = false; !ended && samples.length < {10 * FRAMES};) {{
            const next = model.draw({temperature});
            ended = next.ended;
            samples.push(...next.frame.map((sample) => sample * 32768));
          }}
          return samples;
        }})()"""
    )


MODELS = {
    "default": {"unit": "gru"},
    "ends": {"unit": "lstm", "layers": 2, "end": True, "steering": 0.0},
    "three samples a pitch step": {"unit": "mgu", "rate": 44_100},
    "frame-wise": {"unit": "gru", "model": "frame-wise", "output": "gaussian"},
    "mu-law": {"unit": "tanh", "dtype": "mu-law", "end": True},
    "labels": {"unit": "gru", "labels": {"who": "b", "n": "3"}},
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_samples(chrome, tmp_path, write_page, name):
    """Guards against any feature, grid, pitch, level or pull that is not the model's."""
    run = make_run(tmp_path, **MODELS[name])
    chrome.open(write_page(run))
    lengths = set()
    told = [("", run)]
    if run.model.known_labels:
        told.append(("model.setLabels([1, 0, 0, 0, 0]);", run.conditioned({"who": "a"})))
        told.append(("model.setLabels([0, 1, 0, 0, 1]);", run))  # as it was exported
    pieces = ((1, 0, 1.0), (2**64, 2, 1.0), (3, 1, 0.8), (4, 0, 0))
    for (seed, number, temperature), (tell, wanted) in product(pieces, told):
        ours = drawn(chrome, seed, number, temperature, tell)
        assert ours == sampled(wanted, seed, number, temperature), (seed, number, temperature)
        assert temperature == 0 or len({*ours}) > min(30, len(ours) / 4)
        lengths.add(len(ours))
    assert (len(lengths) > 1) == run.config.end


@pytest.mark.usefixtures("unoptimised")
def test_another_piece_begins_where_one_pauses_too_long(chrome, tmp_path, write_page, monkeypatch):
    """As in the command's samples, again and again."""
    run = make_run(tmp_path, unit="tanh", dtype="mu-law")
    monkeypatch.setattr(sampler, "ALLOWED_PAUSE_SECONDS", 0)
    monkeypatch.setattr(AudioFrames, "pause_level", 16_384)
    usual, run = sampled(run, 1), replace(run, frame=replace(run.frame, longest_pause=15))
    chrome.open(write_page(run))
    assert drawn(chrome, 1) == sampled(run, 1) != usual
    piece = Sampler(run.model).piece(FRAMES, seed=1, freeze=Freeze.of(run))
    assert len(np.concatenate([*piece])) == FRAMES
    assert piece.pauses_cut > 2


@pytest.fixture(scope="module")
def heard(tmp_path_factory, write_page):
    """A run whose pieces end, and its page."""
    run = make_run(tmp_path_factory.mktemp("run") / "run", unit="gru", end=True)
    return run, write_page(run)


def test_it_is_heard_and_saved_however_often_it_stops(chrome, tmp_path, heard):
    """All of it, or the last of its pieces."""
    run, page = heard
    chrome.open(page)
    assert chrome.run("document.querySelector('[data-suffix]').disabled")
    chrome.run(
        """(window.given = [], window.real = page.sound.play.bind(page.sound),
        page.sound.play = (samples, ...more) => {
          given.push(page.player.next);
          return real(samples, ...more);
        })"""
    )
    for seconds in (0.3, 0.7):
        first = chrome.run("(given = [], page.player.next)")
        chrome.click("#play")
        chrome.wait(f"page.player.position > {seconds / 0.05}")
        before = chrome.run(  # at one moment
            """((now) => { page.sound.now = () => now; const { position } = page.player;
              page.stop(); delete page.sound.now; return position; })(page.sound.now())"""
        )
        assert chrome.run(STATUS) == "Paused."
        assert 0 <= chrome.run("page.player.position") - before < 1  # a block of 0.05 s
        begun = chrome.run("given")
        assert begun == [*range(first, first + len(begun))]
    samples, rate = soundfile.read(chrome.saved(tmp_path / "saved"), dtype="int16")
    assert rate == 8000
    assert len(samples) == 400 * chrome.run("page.player.next")
    right, begins = [], []
    while len(right) < len(samples):
        begins.append(len(right))
        right += sampled(run, 1, len(begins) - 1)
    assert len(begins) > 1
    assert samples.tolist() == right[: len(samples)]
    piece, _ = soundfile.read(chrome.saved(tmp_path / "piece", part="piece"), dtype="int16")
    reached = 400 * chrome.run("page.player.position")  # the next may begin in the block at hand
    begun = max(first for first in begins if first <= reached)
    assert piece.tolist() == right[begun : len(samples)]


@pytest.mark.usefixtures("unoptimised")
def test_sound_of_a_rate_below_those_of_buffers_is_heard_at_its_own(chrome, tmp_path, write_page):
    """Guards against errors instead of sound, and against blocks that overlap."""
    chrome.open(write_page(make_run(tmp_path / "run", unit="gru", rate=1000)))
    chrome.run(
        """(window.lasting = [], page.sound.voice = ({ buffer, playbackRate }) =>
        lasting.push(buffer.duration / playbackRate.value), 0)"""
    )
    chrome.click("#play")
    chrome.wait("page.player.position > 2")
    assert chrome.run("lasting[0]") == pytest.approx(0.05)


def test_blocks_join_without_clicks(chrome, heard):
    """What is heard is what was drawn: a browser that resamples block by block adds a step to each,
    20 a second, of up to half the loudness."""
    chrome.open(heard[1])
    chrome.run(
        """(window.given = [], window.AudioContext = class extends OfflineAudioContext {
          constructor({ sampleRate = 48000 }) { super(1, sampleRate / 2, sampleRate); }
        }, page.sound.wake().catch(() => {}),
        [0, 1, 2, 3, 4].forEach((k) => {
          const block = Float32Array.from({ length: 400 }, () => Math.random() - 0.5);
          given.push(...block);
          page.sound.play(block, 0.0123 + k * page.player.secondsPerFrame);
        }), page.sound.context.startRendering().then((one) => (window.sound = one)), 0)"""
    )
    chrome.wait("window.sound")
    assert chrome.run("[...sound.getChannelData(0).slice(98, 2098)]") == chrome.run("given")


def test_it_sounds_and_its_waveform_is_drawn(chrome, heard):
    chrome.open(heard[1], width=360, dark=True)
    assert chrome.run("document.documentElement.scrollWidth") <= 360
    chrome.click("#play")
    chrome.wait("page.player.position > 2")
    chrome.measure_loudness()
    chrome.wait("loudest > 0.001")
    inked = """new Uint32Array(document.querySelector('#wave').getContext('2d')
      .getImageData(0, 0, 320, 700).data.buffer).filter((pixel) => pixel).length"""
    chrome.wait("page.player.position > 20")  # a second: the line of silence alone has 320
    assert chrome.run(inked) > 400
    names = {name.strip() for _, name in chrome.accessible("button", "slider", "textbox", "image")}
    assert names == {
        *("Pause", "Start over", "Copy link", "Save as WAV", "Waveform", "Seed", "New seed"),
        *("Temperature", "Volume"),
    }
    assert chrome.run("performance.getEntriesByType('resource').length") == 0


def test_an_output_without_a_compiled_draw_is_refused(tmp_path):
    run = make_run(tmp_path / "run", unit="gru", model="frame-wise", output="logistic")
    with pytest.raises(UsageError, match="run has the output logistic"):
        export_page(run)
