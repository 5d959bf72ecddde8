"""What a state_dict says of its unit: weights of another one have the same names and shapes."""

import io

import pytest
import safetensors.torch
import torch
from drawing import random_tensor
from torch import func, nn

from seqmodel.units import make

TEXT = """\
z = s(Wz x + Uz h' + bz)
n = phi(Wn x + Un h' + bn)
h = (1 - z) (.) h' + z (.) n
unit: mine
"""
Z, N, H, NAME = TEXT.splitlines()
SAME = (
    f"# of the\nz = σ(Wz x+Uz h'+bz)  # gate\n{N}\n{H}\n{NAME}",  # noqa: RUF001
    f"{Z}\nbz starts at 1\n{N}\n{H}\nunit: other",
)
SWAPPED, LONGER = "h = z (.) h' + (1 - z) (.) n", "q = 1 - z"
OTHERS = [
    (TEXT, f"{N}\n{Z}\n{H}", {}, "has the gates z n where this one has the gates n z"),
    (TEXT, f"{Z}\n{N}\n{SWAPPED}", {}, f"has {H} where this one has {SWAPPED}"),
    (f"{Z}\n{LONGER}\n{N}\nh = q (.) h' + z (.) n\n{NAME}", TEXT, {},
     f"has {LONGER} where this one has no q"),
    (f"{TEXT}Uz has 2 heads", f"{TEXT}Uz has rank 1", {},
     "has a Uz of 2 heads where this one has a Uz of rank 1"),
    (TEXT, TEXT, {"activation": "relu"}, "has phi = tanh where this one has phi = relu"),
]  # fmt: skip


def of(text, **options):
    return make(text, 3, 4, layers=2, **options)


@pytest.mark.parametrize("text", SAME)
def test_the_same_equations_take_the_weights(text):
    """Guards against comparing comments, spaces, names and starts instead of what is computed."""
    unit, other, x = of(TEXT), of(text), random_tensor(5, 2, 3).float()
    other.load_state_dict(unit.state_dict())
    assert torch.equal(other(x)[0], unit(x)[0])


def saved(state_dict):
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


WAYS = {
    "itself": lambda weights: weights,
    "torch.save": saved,
    "safetensors": lambda weights: safetensors.torch.load(safetensors.torch.save(weights)),
    "half": lambda weights: {name: weight.half() for name, weight in weights.items()},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("theirs", "ours", "options", "differs"), OTHERS)
def test_another_unit_refuses_the_weights(theirs, ours, options, differs, way):
    """Guards against 'All keys matched' and something else computed."""
    unit, other = of(theirs), of(ours, **options)
    before = {name: weight.clone() for name, weight in other.state_dict().items()}
    weights = WAYS[way](dict(unit.state_dict()))
    for strict in (True, False):
        with pytest.raises(RuntimeError) as caught:
            other.load_state_dict(weights, strict=strict)
        _, line, second = str(caught.value).split("\n\t")
        assert line == (
            f"these are the weights of another unit: mine {differs}; make it so, or delete "
            "'layers.0._extra_state' to take them as they are"
        )
        assert "layers.1" in second
    assert all(torch.equal(before[name], now) for name, now in other.state_dict().items())
    unit.load_state_dict(weights)
    taken = {name: weight for name, weight in weights.items() if "extra" not in name}
    other.load_state_dict(taken)  # as of a version that said nothing
    assert torch.equal(other.units()[1].U, unit.units()[1].U)


def test_torchs_tools_carry_it(tmp_path):
    """Guards against a key that other ways to handle weights stumble over."""
    unit, x = of(TEXT), random_tensor(5, 2, 3).float()
    safetensors.torch.save_model(unit, str(tmp_path / "m.safetensors"))
    assert safetensors.torch.load_model(of(SAME[1]), tmp_path / "m.safetensors") == (set(), [])
    with pytest.raises(RuntimeError, match="weights of another unit"):
        safetensors.torch.load_model(of(OTHERS[0][1]), tmp_path / "m.safetensors")
    h = func.functional_call(unit, unit.state_dict(), (x,))[0]
    torch.testing.assert_close(h, unit(x)[0])
    parallel = nn.DataParallel(of(TEXT))
    parallel.load_state_dict(nn.DataParallel(unit).state_dict())
    torch.testing.assert_close(parallel(x)[0], h)
    with pytest.raises(RuntimeError, match="another unit: what they say of it cannot be read"):
        unit.load_state_dict(unit.state_dict() | {"layers.0._extra_state": torch.zeros(9)})
