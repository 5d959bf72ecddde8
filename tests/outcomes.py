"""What trainings leave, but for times: the same whether or not they were disturbed."""

import json

from seqmodel.runs.checkpoint import load_checkpoint

TIMES = ("seconds", "frames_per_second")


def left(folder):
    """{path: content} of all checkpoints, metrics, draws and settings below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            tensors, content = load_checkpoint(path)
            bits = {k: (str(t.dtype), t.numpy().tobytes()) for k, t in tensors.items()}
            found[name] = without_times(content), bits
        elif path.suffix == ".jsonl":
            found[name] = without_times(list(map(json.loads, path.read_text().splitlines())))
        elif path.suffix == ".yaml":
            found[name] = path.read_text()
    return found


def without_times(value):
    """JSON without the times in it."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in TIMES}
    return [without_times(each) for each in value] if isinstance(value, list) else value
