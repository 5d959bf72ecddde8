"""Pieces as a page draws them, and as `seqmodel sample` does."""

import numpy as np
from chrome import Chrome

from seqmodel.runs.folder import Run
from seqmodel.sampling.sampler import Sampler

FRAMES = 70


def drawn(chrome: Chrome, seed: int, number: int, temperature: float, prime: str = "[]") -> list:
    """The frames of a piece in the browser, each the places of its ones, and whether it ended."""
    return chrome.run(
        f"""(() => {{
          const frames = [];
          page.model.begin({seed}n, {number}n);
          for (const frame of {prime}) page.model.read(Float64Array.from(frame));
          for (let ended = false; !ended && frames.length < {FRAMES};) {{
            const next = page.model.draw({temperature});
            ended = next.ended;
            frames.push([...next.frame.keys()].filter((k) => next.frame[k] === 1));
            if (next.frame.some((one) => one !== 0 && one !== 1)) throw next.frame;
          }}
          return frames;
        }})()"""
    )


def sampled(run: Run, seed: int, number: int, temperature: float, prime=None) -> list:
    """The same of `seqmodel sample`, which cuts pieces off at the longest one where they end."""
    sampler = Sampler(run.model, temperature=temperature)
    length = min(FRAMES, run.longest_piece) if run.config.end else FRAMES
    frames = np.concatenate([*sampler.piece(length, seed=seed, number=number, prime=prime)])
    return [np.flatnonzero(frame).tolist() for frame in frames]
