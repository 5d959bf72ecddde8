"""`seqmodel sample` without --fill: pieces drawn one after another."""

from typing import TYPE_CHECKING, Any

from seqmodel.cli.progress import counting, display, part
from seqmodel.cli.sample.targets import Targets
from seqmodel.errors import SeqmodelError
from seqmodel.media.definitions import Sampling

if TYPE_CHECKING:
    from seqmodel.runs.folder import Run


def draw_pieces(
    run: "Run",
    sampling: Sampling,
    targets: Targets,
    *,
    seed: int,
    temperature: float,
    shortest: float,
    best_of: int,
    quiet: bool,
    as_json: bool,
) -> list[dict[str, Any]]:
    """Write pieces and return what is told of each; `shortest` is as in `Sampler.draw`.

    Of `best_of` drafts the one whose nats per frame come nearest to those of training is written.
    """
    import numpy as np

    from seqmodel.sampling.sampler import Sampler

    sampler, primer, pieces = Sampler(run.model, temperature=temperature), sampling.primer, []
    usual = _training_nats(run) if best_of > 1 else 0.0
    with display("sampling", quiet=quiet) as shown:
        count = counting(shown, "drafts" if best_of > 1 else "sampling")
        for k, target in enumerate(targets):
            drafts = [
                sampler.piece(sampling.length, seed=seed, number=n, prime=primer, shortest=shortest)
                for n in range(k * best_of, (k + 1) * best_of)
            ]
            piece, chunks, nats = drafts[0], iter(drafts[0]), None
            if best_of > 1:
                drawn, of_drafts = [], []
                for n, draft in enumerate(drafts):
                    drawn.append(np.concatenate(list(draft)))
                    scored = run.nll(np.concatenate([primer, drawn[-1]]))[len(primer) :]
                    of_drafts.append(float(scored.mean()))
                    count(k * best_of + n + 1, targets.number * best_of)
                best = int(np.argmin(np.abs(np.array(of_drafts) - usual)))
                piece, chunks, nats = drafts[best], iter([drawn[best]]), of_drafts[best]
            progress = part(count, k, targets.number) if best_of == 1 else lambda done, total: None
            with targets.opened(target) as file:
                written = sampling.write(file, chunks, progress)
            ended_by = "model" if piece.ended else "limit"
            told = {"path": str(target), "frames": piece.frames, "ended_by": ended_by}
            facts = [f"{target}: {written.size} from {run.folder}"]
            if run.config.end:
                facts.append("ended by the model" if piece.ended else "cut off at the limit")
            if nats is not None:
                told["nats_per_frame"] = nats
                facts.append(f"{nats:.3f} nats per frame (training {usual:.3f})")
            pieces.append(told)
            if not (targets.to_stdout or as_json):
                shown.say(", ".join(filter(None, [*facts, written.hint])))
    return pieces


def _training_nats(run: "Run") -> float:
    """The nats per frame of train in the epoch whose weights these are."""
    from seqmodel.runs.folder import METRICS, read_metrics

    for epoch in read_metrics(run.folder):
        if epoch["epoch"] == run.epoch:
            return float(epoch["train_nats_per_frame"])
    raise SeqmodelError(f"--best-of needs epoch {run.epoch} in {run.folder / METRICS}")
