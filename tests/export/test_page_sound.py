"""Pages in a browser: of sound, the samples heard and saved; of music, what is begun and saved."""

import re
from dataclasses import replace
from itertools import product

import mido
import numpy as np
import pytest
import soundfile
import torch
from onnx_sessions import steer
from playing import NOTES, OWN, STATUS, notes_in

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


def level(sound, rate, begin, end, frequency):
    """How strong a frequency is in these seconds."""
    part = sound[round(begin * rate) : round(end * rate)]
    turns = np.exp(-2j * np.pi * frequency / rate * np.arange(len(part)))
    return abs(np.mean(part * np.hanning(len(part)) * turns))


def test_music_is_saved_as_the_sound_of_each_instrument(chrome, page, tmp_path):
    """A4 at 0 s, C5 over the edge of a rendered part, E5 behind it, as the instrument sounds."""
    chrome.open(page)
    chrome.run("(location.href = '#seed=1&t=1&bpm=120&opening=69.0.4_72.36.8_76.48.4', 0)")
    chrome.wait("page.player.given.length === 3")
    chrome.run("(page.sound.volume = 0.1, 0)")  # which is of the room
    heard = chrome.play_until(54)
    over = {}
    for kind in chrome.run("Object.keys(INSTRUMENTS)"):
        chrome.choose("instrument", kind)
        sound, rate = soundfile.read(chrome.saved(tmp_path / kind, "wav"))
        assert (rate, sound.shape[1]) == (44_100, 2)
        assert len(sound) / rate == pytest.approx(heard / 8 + 1.5, abs=0.3)
        assert 0.1 < abs(sound).max() < 1
        mixed = sound.mean(axis=1)
        pitches = 440.0, 523.25, 659.26
        for begin, end, pitch in ((0.1, 0.5, 0), (4.6, 5.0, 1), (5.0, 5.4, 1), (6.1, 6.5, 2)):
            levels = [level(mixed, rate, begin, end, each) for each in pitches]
            assert int(np.argmax(levels)) == pitch, (kind, begin)
            assert levels[pitch] > 0.002
        assert level(mixed, rate, 3.0, 4.4, 440) < 1e-4
        over[kind] = level(mixed, rate, 0.1, 0.5, 880) / level(mixed, rate, 0.1, 0.5, 440)
    assert min(over["Piano"], over["Organ"]) > 0.1
    assert over["Music box"] < 0.05
    assert len({round(ratio, 2) for ratio in over.values()}) == 3


def test_this_piece_or_all_since_the_start_is_saved(chrome, page, tmp_path):
    chrome.open(page)
    assert chrome.run("document.querySelector('[data-suffix]').disabled")
    chrome.run("page.player.setPace(4)")
    chrome.play_until(3)
    while chrome.run("page.player.pieces.length") < 3:
        chrome.play_until(chrome.run("page.player.next") + 10)
    begins = chrome.run("page.player.pieces.at(-1).first")
    heard = chrome.play_until(begins + 12)
    told = chrome.run(NOTES)
    for part, first in (("all", 0), ("piece", begins)):
        file = mido.MidiFile(file=chrome.saved(tmp_path / part, "mid", part))
        assert (file.type, file.ticks_per_beat) == (1, 480)
        assert [m.tempo for m in file.tracks[0] if m.type == "set_tempo"] == [125_000]
        notes = [
            (120 * (begin - first), 120 * ((end or heard) - first), *of)
            for begin, end, *of, _ in told
            if begin >= first
        ]
        assert notes_in(file, "") == sorted(notes) != []


def test_a_browser_without_sound_says_so_within_three_seconds(chrome, page):
    """Where none begins, and where it is suspended while it plays; and all goes on when it does.

    Time is counted by a timer of the page, which is as late as the page's own are.
    """
    chrome.open(page)
    begins = """(() => { window.took = 0; window.told = false;
      const status = document.querySelector('#status');
      const timer = setInterval(() => { took += 10;
        if (status.value.startsWith('No sound')) window.told = clearInterval(timer) ?? true;
      }, 10); })"""
    chrome.run("(window.real = AudioContext.prototype.resume, 0)")
    chrome.run("(AudioContext.prototype.resume = () => new Promise((on) => (window.on = on)), 0)")
    chrome.click("#play")
    chrome.run(f"page.sound.context.suspend().then({begins})")
    chrome.wait("told")
    assert chrome.run("took") < 3000
    chrome.run("real.call(page.sound.context).then(on)")
    chrome.wait(f"{STATUS} === 'Playing.'")
    chrome.run(f"page.sound.context.suspend().then({begins})")
    chrome.wait("told")
    assert chrome.run("took") < 3000
    chrome.run("real.call(page.sound.context)")
    chrome.wait(f"{STATUS} === 'Playing.'")
    chrome.run("(AudioContext.prototype.resume = real, 0)")


def test_a_page_begins_as_its_export_was_told(chrome, piano, page, tmp_path):
    """And asks for an opening in C if its music is in C."""
    run = replace(piano, frame=replace(piano.frame, transpose_to_c=True))
    path = tmp_path / "page.html"
    path.write_bytes(export_page(run, seed=7, temperature=0.85, tempo=60, title="A <b> title"))
    assert ["C major" in each.read_text("utf-8") for each in (path, page)] == [True, False]
    chrome.open(path)
    assert chrome.run("[page.linkParams(), document.title]") == [
        *("seed=7&t=0.85&bpm=60", "A <b> title")
    ]
    assert chrome.run("page.player.secondsPerFrame") == pytest.approx(1 / 4)
    temperature = "[page.player.temperature, document.querySelector('.value').textContent]"
    assert chrome.run(temperature) == [0.85, "0.85"]
    tempo = "document.querySelector('#tempo').getAttribute('aria-valuetext')"
    assert chrome.run(tempo) == "60 bpm"
    shell = chrome.run("[...document.querySelectorAll('dd')].at(-1).textContent")
    assert shell.endswith(" --seed 7 --temperature 0.85 --tempo 60")
    said = "document.querySelector('meta[property=\"og:title\"]').content"
    assert chrome.run(said) == "A <b> title"


@pytest.mark.usefixtures("unoptimised")
def test_by_default_a_page_begins_with_a_seed_that_sounds_at_once(piano):
    """The first such seed: for half of its first second at least."""
    page = export_page(piano).decode()
    (seed,) = re.findall(r'value="(\d+)" id="seed"', page)
    for each in range(1, int(seed) + 1):
        first = np.concatenate([*Sampler(piano.model).piece(8, seed=each)])
        assert (first.any(axis=1).sum() >= 4) == (each == int(seed))
