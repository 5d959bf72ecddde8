"""The model on a page draws what `seqmodel sample` draws: in a browser, for every kind of model."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from playing import FRAMES, MARKS, OWN, drawn, sampled

from seqmodel.errors import SeqmodelError
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.music.frames import marks_in, with_onsets
from seqmodel.media.music.grid import MIN_TEMPO
from seqmodel.sampling.filling import Filler
from seqmodel.sampling.sampler import Freeze, Sampler

pytestmark = pytest.mark.usefixtures("silent_console", "unoptimised")

MINE = """
k = 1 + 0.5 / 3
a = 0.3 * s(Wa x + Ua (k * c' (.) h') + ba) / (1 + softplus(Va (.) c'))
if = -tanh(Wif x + Uif (a + Uin h') + bif)
c = c' - exp(-softplus(a)) (.) (c' - if)
class = relu(c) + if' + max(norm(a + Ub c'), min(a, mean(if)))
h = phi(class + U c + b + a (.) (Ur h' + bUr)) / sqrt(1 + where(c < a, c (.) c, 0))
Ua has rank 2
U has 3 heads
"""
"""Every construct of the language, and names that JavaScript reserves."""

TIED = {"model": "tied"}
HARD = {"gate_activation": "hard-sigmoid", "bias": False}
VOICED = {
    "motifs": {**TIED, "unit": "mgu", "output": "bernoulli", "motifs": True},
    "resting": {
        **{**TIED, "unit": "gru", "onsets": True, "layers": 2},
        **dict.fromkeys(("first_change", "ages", "rests"), True),
    },
    "frame-wise, onsets": {"unit": "gru3", "output": "bernoulli", "onsets": True},
    "nade, onsets": {"unit": "gru-reset-after", "output": "nade", "onsets": True},
}
"""Models whose pieces end, which draw voices below a melody too."""
MODELS = {
    **VOICED,
    "default": {**TIED, "unit": "lstm", "end": True},
    "mine over sru": {**TIED, "unit": MINE, "note_unit": "sru", "layers": 2},
    "drums": {**TIED, "unit": "tanh", "kit": True, "clock": False, "echo": False},
    "stack": {"unit": "lstm", "layers": 2, "zoneout": 0.2, **HARD},
}


def check_voices(chrome, run):
    """Voices are those that `sample --fill` draws below a melody with a rest; few particles."""
    melody, onsets = np.zeros((14, 88), np.uint8), np.zeros((14, 88), np.uint8)
    for key, first, last in ((12, 0, 4), (7, 2, 7), (24, 9, 12), (2, 12, 14)):
        melody[first:last, key] = onsets[first, key] = 1
    tops = [12] * 4 + [7] * 5 + [24] * 3 + [2] * 2
    free = np.tile(np.arange(88) < np.array(tops)[:, None], (4, 1))
    piece = np.hstack([melody, onsets]) if run.model.output.onsets else melody
    piece = np.tile(piece, (4, 1))
    filler = Filler(run.model, particles=16)
    filled = filler.fill(piece, free, seed=2**65)
    ours = chrome.run(
        f"""(() => {{
          const [model, melody] = [{OWN}, {piece.tolist()}.map((x) => Float64Array.from(x))];
          return fill(model, {2**65}n, melody, below(melody, model)).map((x) => [...x]);
        }})()"""
    )
    assert ours == filled.frames.tolist()
    assert filled.frames[:, :88][free].sum() > len(piece)
    assert filled.effective.min() < 8  # some were resampled
    if run.model.output.onsets:
        piece[5, 88 + 40] = 1  # a strike of what does not sound
        with pytest.raises(SeqmodelError, match="impossible"):
            filler.fill(piece, free, seed=1)
        said, frames = chrome.run(
            f"""(() => {{
              const [model, melody] = [{OWN}, {piece.tolist()}.map((x) => Float64Array.from(x))];
              openingFrames = () => melody;
              const {{ remark, frame }} = voiced(model, {{ seed: 1n }}).next().value;
              return [remark, [...frame]];
            }})()"""
        )
        assert said.startswith("No voices fit")
        assert frames == piece[0].tolist()


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_notes(chrome, tmp_path, make_run, write_page, name):
    run = make_run(tmp_path, **MODELS[name] | ({"end": True} if name in VOICED else {}))
    if name in VOICED:
        with torch.no_grad():
            for part, weight in run.model.output.named_parameters():
                if part == "ending.weight":
                    weight.mul_(3)  # so that particles differ in how likely they end
    chrome.open(write_page(run))
    lengths = set()
    for seed, number, temperature in ((1, 0, 1), (2**70 + 12, 3, 1), (5, 1, 0.3), (6, 0, 0)):
        ours = drawn(chrome, seed, number, temperature)
        assert ours == sampled(run, seed, number, temperature), (seed, number, temperature)
        lengths.add(len(ours))
        if temperature == 1:  # or the comparison would tell little
            assert len(ours) * 2 < sum(map(len, ours)) < len(ours) * 80
    assert (len(lengths) > 1) == run.config.end
    if name in VOICED:
        check_voices(chrome, run)
    else:
        assert max(lengths) == (64 if run.config.end else FRAMES)


@pytest.mark.parametrize("name", ["resting", "nade, onsets"])
def test_the_same_seed_gives_the_same_marks(chrome, tmp_path, make_run, write_page, name):
    """In a piece of its own, after an opening without marks, and of voices below a melody."""
    run = make_run(tmp_path, **VOICED[name], **MARKS)
    opening = with_onsets((np.random.default_rng(5).random((6, 88)) < 0.05).astype(np.uint8))
    chrome.open(write_page(run))
    for prime, temperature in ((opening[:0], 1), (opening, 0.5), (opening, 0)):
        sampler = Sampler(run.model, temperature=temperature)
        marked, _ = next(sampler.draw(Uniforms(3), prime=prime, shortest=math.inf))
        expected = numbers_of(marked[:20])
        ours = chrome.run(
            f"""(() => {{
              const model = {OWN};
              model.begin(3n, 0n);
              for (const frame of {prime.tolist()})
                for (const of of Object.values(model.read(Float64Array.from(frame))))
                  if (of.some((number) => number)) throw of;
              return Array.from({{ length: 20 }}, () => model.draw({temperature}).marks);
            }})()"""
        )
        for mark, of in expected.items():
            assert np.allclose([frame[mark] for frame in ours], of), (mark, temperature)
            assert temperature == 0 or len(np.unique(of)) > 2
    piece, free = with_onsets(np.zeros((12, 88), np.uint8)), np.zeros((12, 88), bool)
    piece[2:9, 40] = piece[2, 88 + 40] = 1
    free[:, :40] = True
    filled = Filler(run.model, particles=16).fill(piece, free, seed=4).frames
    ours = chrome.run(
        f"""(() => {{
          const melody = {piece.tolist()}.map((x) => Float64Array.from(x));
          openingFrames = () => melody;
          return [...voiced({OWN}, {{ seed: 4n }})].map(({{ marks }}) => marks);
        }})()"""
    )
    for mark, of in numbers_of(filled).items():
        assert np.allclose([frame[mark] for frame in ours], of), mark
        assert (of > 0).sum() > 1


def numbers_of(frames):
    """What marks of frames (T, F + M) mean on a page."""
    numbers = {name: of.astype(float) for name, of in marks_in(frames).items()}
    late = np.minimum((numbers["timing"] - 64) / 126, 58 / 120)  # it stays in its frame
    return numbers | {"timing": np.where(numbers["timing"] > 0, late, 0)}


def test_a_piece_ends_where_it_freezes(chrome, tmp_path, make_run, write_page):
    """At temperature 0 this model goes on from its second frame to a chord that it holds."""
    run = make_run(tmp_path, **MODELS["default"])
    run.model.encoder.clock.lengths[0] = 2
    for chord, length in ((1, 2), (3, 4)):
        run = replace(run, frame=replace(run.frame, longest_chord=chord, tempo=MIN_TEMPO))
        chrome.open(write_page(run))
        ours = drawn(chrome, 6, 0, 0)
        assert len(ours) == length
        assert ours == sampled(run, 6, 0, 0)
    config = replace(run.config, end=False)  # whose pieces do not end
    assert Freeze.of(run) is not None
    assert Freeze.of(replace(run, config=config)) is None


def test_no_piece_ends_before_half_of_trains_shortest(chrome, tmp_path, make_run, write_page):
    """With its opening, as `seqmodel sample` counts it with the primer."""
    run = make_run(tmp_path, **MODELS["default"])
    run = replace(run, frame=replace(run.frame, longest_chord=99))
    run.model.encoder.clock.lengths[:5] = torch.tensor([40, 50, 60, 70, 80])
    with torch.no_grad():
        run.model.output.ending.bias.fill_(100)
    chrome.open(write_page(run))
    for given, left in ((0, 20), (15, 5), (30, 1)):
        count = f"""(() => {{
          const model = {OWN};
          model.begin(1n, 0n);
          for (let k = 0; k < {given}; k += 1) model.read(new Float64Array(model.frameSize));
          let count = 1;
          while (!model.draw(1).ended) count += 1;
          return count;
        }})()"""
        assert chrome.run(count) == left


def test_hits_that_are_struck_again_are_no_chord_that_is_held(chrome, tmp_path,
                                                              make_run, write_page):  # fmt: skip
    """Guards against drums that end as soon as two frames have the same hits."""
    run = make_run(tmp_path, **TIED, unit="lstm", kit=True, end=True)
    run.model.encoder.clock.lengths[0] = 2
    run = replace(run, frame=replace(run.frame, longest_chord=1, tempo=MIN_TEMPO))
    chrome.open(write_page(run))
    ours = drawn(chrome, 4, 0, 0.2)
    assert ours == sampled(run, 4, 0, 0.2)
    assert any(one == other for one, other in pairwise(ours[2:]))


def test_menus_tell_the_labels(chrome, tmp_path, make_run, write_page):
    """From the exported ones on, by hand and by a link; what a link cannot say is as exported."""
    known = {"who": ("a", 'b"<&'), "n": ("1", "2", "3" * 99)}
    run = make_run(tmp_path, model="tied", unit="gru", known_labels=known)
    exported = run.conditioned({"n": "2"})
    chrome.open(write_page(exported), width=360)
    assert chrome.run("document.documentElement.scrollWidth") == 360
    assert chrome.run("document.querySelector('dl').textContent").endswith(" --label n=2")
    told = [
        exported,
        run.conditioned({"who": 'b"<&', "n": "2"}),
        run.conditioned({"who": "a"}),
        exported,
    ]
    for k, wanted in enumerate(told):
        if k == 1:
            chrome.choose("label-0", 'b"<&')
            assert chrome.run("page.linkParams()").endswith("&is.who=b%22%3C%26&is.n=2")
        elif k > 1:
            link = "#seed=7&is.who=a&is.n=" if k == 2 else "#seed=8&is.who=&is.n=17"
            chrome.run(f"(location.hash = '{link}', 0)")
            chrome.wait(f"page.player.seed === {link[6]}n")
        assert drawn(chrome, 1, 0, 1) == sampled(wanted, 1, 0, 1), k
    assert len({str(sampled(each, 1, 0, 1)) for each in told}) == 3
    chrome.run("(location.hash = '#seed=9&is.who=a&is.n=', 0)")
    chrome.wait("page.player.seed === 9n && (page.player.source.request(20, 1), true)")
    chrome.wait("page.player.source.waiting.length === 20")  # which a Worker has drawn
    frames = "page.player.source.waiting.map(({ frame: f }) => [...f.keys()].filter((k) => f[k]))"
    assert chrome.run(frames) == sampled(told[2], 9, 0, 1)[:20]
