"""Drawing one piece of music, compared with a loop over a torch.nn cell.

The sampler and the cell, which any number of pieces can share, are built outside the timing.
"""

from typing import Any

from seqmodel.bench import music, peers
from seqmodel.bench.clock import Contender, ratio, take_turns
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.sampling.sampler import Sampler
from seqmodel.units import unit_spec

FRAMES = 256


def draw(sampler: Sampler, count: int) -> int:
    """Draw `count` frames, or a few more, since they come in chunks; return their number."""
    drawn = 0
    for frames, _ in sampler.draw(Uniforms(1)):
        drawn += len(frames)
        if drawn >= count:
            break
    return drawn


def measure_sampling(unit: str, seconds: float) -> dict[str, Any]:
    """Time drawing one piece, from a model that plays about as many notes as real music."""
    model, hidden = music.music_model(unit), music.paper_hidden(unit)
    ours = Sampler(model)
    theirs = peers.PeerSampler(
        unit_spec(unit), hidden, model.output.get_parameter("linear.bias").detach()
    )
    count = draw(ours, FRAMES)
    taken = take_turns(
        {
            "ours": Contender(lambda: draw(ours, FRAMES)),
            "torch_nn": Contender(lambda: theirs.draw(count)),
        },
        seconds,
    )
    return {
        "unit": unit,
        "hidden": hidden,
        "frames": count,
        "timings": {name: timing.to_json() for name, timing in taken.items()},
        "frames_per_second": {name: count / timing.median for name, timing in taken.items()},
        "over_torch_nn": ratio(taken["torch_nn"], taken["ours"]),
    }
