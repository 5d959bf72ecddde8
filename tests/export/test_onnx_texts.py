"""Texts of the language of kernels as nodes: the same in onnxruntime as run by Python."""

import numpy as np
import onnxruntime
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from onnx import helper
from texts import SIZE, programs, text_of

from seqmodel.export.onnx.graph import DOUBLE, INT64, IR_VERSION, OPSET, Graph
from seqmodel.export.onnx.texts import Array, Number, View, add_text


def run_as_graph(text, k, x, *constants):
    """What a text returns, and its arrays after."""
    g = Graph()
    kinds = {"k": INT64, "x": DOUBLE}
    arrays = {
        name: Array(g, g.input(name, [1, SIZE], kind), [SIZE], kind) for name, kind in kinds.items()
    }
    result = add_text(g, text, *map(View, arrays.values()), *constants)
    for name, array in arrays.items():
        g.output(f"new.{name}", array.all(), 1, SIZE, kind=kinds[name])
    if isinstance(result, Number):
        g.output("result", result.symbol, 1, 1, kind=result.kind)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(g.to_proto("text"), opset_imports=[opset], ir_version=IR_VERSION)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    k, x, *more = session.run(None, {"k": k[np.newaxis], "x": x[np.newaxis]})
    return (more[0].item() if more else result), k[0], x[0]


# Without shrinking: each try makes a session.
@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(source=programs(bits=False), seed=st.integers(0, 99))
def test_random_programs_give_the_same_by_python_and_as_nodes(source, seed, tmp_path_factory):
    """Guards operators, branches, and which steps of a loop may be computed side by side."""
    text, random = text_of(source, tmp_path_factory.mktemp("text")), np.random.default_rng(seed)
    k, x = random.integers(-50, 50, SIZE), random.normal(size=SIZE)
    result, new_k, new_x = run_as_graph(text, k, x, SIZE)
    with np.errstate(all="ignore"):
        expected = text(k, x, SIZE)
    assume(np.isfinite(x).all())  # min and max of nan differ
    assert result == expected
    np.testing.assert_array_equal(new_k, k)
    np.testing.assert_allclose(new_x, x, rtol=1e-9, atol=1e-12)
