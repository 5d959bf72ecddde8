"""`seqmodel sample --fill`: a piece drawn around what is given."""

from typing import TYPE_CHECKING, Any

from seqmodel.cli.progress import counting, display, part
from seqmodel.cli.sample.targets import Targets
from seqmodel.media.definitions import Filling, Sampling

if TYPE_CHECKING:
    from seqmodel.runs.folder import Run

FEW = 2.0
"""Particles: where fewer are effective, what is given may be unlike the training data."""


def fill_pieces(
    run: "Run",
    sampling: Sampling,
    filling: Filling,
    targets: Targets,
    *,
    seed: int,
    temperature: float,
    quiet: bool,
    as_json: bool,
) -> list[dict[str, Any]]:
    """Write pieces, each another filling; returns what is told of each.

    Raises:
        UsageError: where the particles do not fit in memory.
        SeqmodelError: if what is given is impossible.
    """
    import numpy as np

    from seqmodel.sampling.filling import Filler

    filler = Filler(run.model, particles=filling.particles, temperature=temperature)
    pieces, drawn = list[dict[str, Any]](), np.asarray(filling.free.any(axis=1))
    with display("filling", quiet=quiet) as shown:
        count = counting(shown, "filling")
        for k, target in enumerate(targets):
            filled = filler.fill(
                filling.piece, filling.free, seed=seed, number=k, sweeps=filling.sweeps,
                progress=part(count, k, targets.number),
            )  # fmt: skip
            nats = run.nll(filled.frames)
            with targets.opened(target) as file:
                written = sampling.write(file, iter([filled.frames]), lambda done, total: None)
            around = float(nats[~drawn].mean()) if not drawn.all() else None
            least, median = int(np.argmin(filled.effective)), float(np.median(filled.effective))
            facts = {
                "path": str(target),
                "frames": len(nats),
                "drawn_frames": int(drawn.sum()),
                "nats_per_drawn_frame": float(nats[drawn].mean()),
                "nats_per_frame_around": around,
                "log_given": filled.log_given,
                "particles": filling.particles,
                "effective_median": median,
                "effective_least": float(filled.effective[least]),
                "effective_after": None if drawn[-1] else filled.fitting,
            }
            pieces.append(facts)
            hint = f", {written.hint}" if written.hint else ""
            beside = "" if around is None else f", {around:.3f} around"
            after = "" if drawn[-1] else f", {filled.fitting:.1f} after what follows"
            for line in (
                f"{target}: {written.size} from {run.folder}, {drawn.sum():,} of them drawn{hint}",
                f"  {facts['nats_per_drawn_frame']:.3f} nats per frame there{beside}; of "
                f"{filling.particles:,} particles {median:.1f} effective{after}",
            ):
                if not (targets.to_stdout or as_json):
                    shown.say(line)
            if filled.effective[least] < FEW < filling.particles:
                frame = int(np.argmax(drawn)) + least
                given = "what is given, which may be unlike the training data"
                if frame == len(nats) - 1 and run.config.end:
                    given = "the end of the piece"
                shown.say(
                    f"at frame {frame:,} only {filled.effective[least]:.1f} particles fit {given}: "
                    "try more --particles"
                )
    return pieces
