"""Pieces as a page draws them, and as `seqmodel sample` does."""

import io

import numpy as np
from calling import waited
from chrome import Chrome
from midi_tracks import sounding

from seqmodel.media.marks import Levels
from seqmodel.media.music.parts import DRUMS
from seqmodel.sampling.sampler import Freeze, Sampler

FRAMES = 70
MARKS = {
    "marks": {
        "part": Levels.of_names(["Flöte", "other"]),
        "velocity": Levels((40, 80), (20.4, 60.0, 101.0)),
        "timing": Levels((54, 64, 74), (40.0, 60.0, 69.0, 127.0)),
    },
    "programs": (73, DRUMS),
    "drum_keys": {36: 40, 42: 90},
}
CLOCK = """window.requestAnimationFrame = (draw) => setTimeout(draw, 50);
window.cancelAnimationFrame = clearTimeout;
window.mute = () => (page.sound.strike = () => ({ release() {} }));
window.freeze = () => {
  mute();
  page.clock ??= page.sound.now();
  page.sound.now = () => page.clock;
};
window.lasting = (frames) => {
  freeze();
  const passed = () => (page.clock += frames * page.player.secondsPerFrame);
  document.addEventListener('keyup', passed, true);
};
window.advance = async (reached) => {
  freeze();
  while (!reached()) {
    const { player } = page;
    while (player.playing && !player.source.waiting.length) await new Promise((r) => setTimeout(r));
    page.clock += 0.01;
    player.fill();
  }
};"""
"""One that stands still, or moves as keys are let go, or as fast as is drawn: without sound, which
takes longer than all else, as do more than twenty pictures a second."""
OWN = "(window.own ??= new Model(page.model))"
"""A model beside those that the page draws by in Workers."""


NOTES = "page.player.notes.map((n) => [n.first, n.last, n.key + 21, n.velocity, n.given])"
STATUS = "document.querySelector('#status').value"


def notes_in(file, track):
    """(First tick, last tick, pitch, velocity) of a track, by its name."""
    (found,) = (each for each in file.tracks if each.name == track)
    return sounding(found)


class Player(Chrome):
    """The browser, for pages that play, which begin once their model is ready."""

    def __init__(self, chrome):
        vars(self).update(vars(chrome))

    def open(self, page, **options):
        super().open(page, **options)
        self.wait("typeof page === 'object' || document.querySelector('#play').disabled")
        self.run(f"(() => {{ {CLOCK} }})()")

    def play_until(self, frame):
        """Let it play past a frame, by a clock that need not be waited for, and stop.

        Returns the first frame that was not heard.
        """
        self.run("freeze()")
        self.click("#play")
        self.wait("page.player.playing")
        self.run(f"advance(() => page.player.position > {frame})")
        self.click("#play")
        own = "delete page.sound.now, delete page.sound.strike, delete page.clock"
        return self.run(f"({own}, page.player.next)")

    def choose(self, name, value):
        """Set a control, and tell the page."""
        self.run(
            f"""((input) => {{ input.value = '{value}';
              for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind)); }})(
              document.getElementById('{name}'))"""
        )

    def saved(self, folder, kind="", part="all"):
        """Click a button, and read the file that is downloaded to a new folder."""
        self.run(f"(document.querySelector('#part').value = '{part}')")
        folder.mkdir()
        self.download_to(folder)
        self.click(f"[data-suffix{kind and f'={kind}'}]")
        (data,) = waited(  # a file is empty before it is there
            lambda: [
                data
                for kind in ("mid", "wav")
                for file in folder.glob(f"*.{kind}")
                if (data := file.read_bytes())
            ]
        )
        return io.BytesIO(data)

    def slow_down(self, milliseconds):
        """Let each frame, or block of samples, take so long to draw."""
        self.run(
            f"""(() => {{
              const {{ worker }} = page.player.source;
              const send = worker.postMessage.bind(worker);
              let free = 0;
              worker.postMessage = (message) => {{
                free = Math.max(free, performance.now()) + {milliseconds};
                setTimeout(() => send(message), free - performance.now());
              }};
            }})()"""
        )

    def measure_loudness(self):
        """Keep the loudest sample in `loudest`, by an analyser behind everything."""
        self.run(
            """(window.loudest = 0, window.analyser = new AnalyserNode(page.sound.context),
            page.sound.output.connect(analyser), window.samples = new Float32Array(2048),
            setInterval(() => { analyser.getFloatTimeDomainData(samples);
              window.loudest = Math.max(loudest, ...samples.map(Math.abs)); }, 10))"""
        )


def drawn(chrome, seed, number, temperature):
    """The frames of a piece in the browser, each the places of its ones, and whether it ended."""
    return chrome.run(
        f"""(() => {{
          const [model, frames] = [{OWN}, []];
          model.setLabels(page.player.labels);
          model.begin({seed}n, {number}n);
          for (let ended = false; !ended && frames.length < {FRAMES};) {{
            const next = model.draw({temperature});
            ended = next.ended;
            if (!next.frame) break;
            frames.push([...next.frame.keys()].filter((k) => next.frame[k] === 1));
            if (next.frame.some((one) => one !== 0 && one !== 1)) throw next.frame;
          }}
          return frames;
        }})()"""
    )


def sampled(run, seed, number, temperature):
    """The same of `seqmodel sample`, which cuts pieces off at the longest one where they end."""
    sampler = Sampler(run.model, temperature=temperature)
    length = min(FRAMES, run.longest_piece) if run.config.end else FRAMES
    piece = sampler.piece(length, seed=seed, number=number, freeze=Freeze.of(run))
    frames = np.concatenate([*piece])
    return [np.flatnonzero(frame).tolist() for frame in frames]
