// A training step of oneDNN's gru or peephole lstm, timed: forward and backward to x and all weights.
//
//     onednn gru|lstm I H B T SECONDS      prints the milliseconds of each step, one a line
//
// Weights are packed at every step, as they change between steps of a training. oneDNN's gru resets
// before the matrix product, as ours; its update gate weighs the old state, which takes as long.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

using namespace dnnl;
using desc = memory::desc;
using tag = memory::format_tag;
using Args = std::unordered_map<int, memory>;

const engine cpu(engine::kind::cpu, 0);

desc floats(memory::dims dims, tag order) { return desc(dims, memory::data_type::f32, order); }

memory filled(const desc& d) {
    static std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-0.1f, 0.1f);
    memory m(d, cpu);
    auto* values = static_cast<float*>(m.get_data_handle());
    for (size_t k = 0; k < d.get_size() / sizeof(float); ++k) values[k] = uniform(random);
    return m;
}

double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

int main(int, char** argv) {
    const bool lstm = std::string(argv[1]) == "lstm";
    const long I = atol(argv[2]), H = atol(argv[3]), B = atol(argv[4]), T = atol(argv[5]);
    const long gates = lstm ? 4 : 3;
    const double seconds = atof(argv[6]);

    const desc x = floats({T, B, I}, tag::tnc), h = floats({T, B, H}, tag::tnc);
    const desc state = floats({1, 1, B, H}, tag::ldnc), bias = floats({1, 1, gates, H}, tag::ldgo);
    const desc peepholes = floats({1, 1, 3, H}, tag::ldgo);
    const desc W = floats({1, 1, I, gates, H}, tag::any), U = floats({1, 1, H, gates, H}, tag::any);
    const memory W_rows = filled(floats({1, 1, I, gates, H}, tag::ldigo));
    const memory U_rows = filled(floats({1, 1, H, gates, H}, tag::ldigo));

    const auto right = rnn_direction::unidirectional_left2right;
    const auto training = prop_kind::forward_training, backwards = prop_kind::backward;
    primitive forward, backward;
    Args forward_args, backward_args;
    std::vector<std::pair<reorder, std::pair<memory, memory>>> packings;

    auto set_up = [&](auto fwd, auto bwd) {
        forward = primitive(fwd), backward = primitive(bwd);
        memory fwd_W(fwd.weights_layer_desc(), cpu), fwd_U(fwd.weights_iter_desc(), cpu);
        memory bwd_W(bwd.weights_layer_desc(), cpu), bwd_U(bwd.weights_iter_desc(), cpu);
        memory d_W(bwd.diff_weights_layer_desc(), cpu), d_U(bwd.diff_weights_iter_desc(), cpu);
        const std::pair<memory, memory> copies[] = {{W_rows, fwd_W}, {U_rows, fwd_U},
            {W_rows, bwd_W}, {U_rows, bwd_U}, {d_W, W_rows}, {d_U, U_rows}};
        for (auto& [from, to] : copies) packings.push_back({reorder(from, to), {from, to}});
        forward_args = {{DNNL_ARG_SRC_LAYER, filled(x)}, {DNNL_ARG_SRC_ITER, filled(state)},
            {DNNL_ARG_WEIGHTS_LAYER, fwd_W}, {DNNL_ARG_WEIGHTS_ITER, fwd_U},
            {DNNL_ARG_BIAS, filled(bias)}, {DNNL_ARG_DST_LAYER, filled(h)},
            {DNNL_ARG_DST_ITER, filled(state)},
            {DNNL_ARG_WORKSPACE, memory(fwd.workspace_desc(), cpu)}};
        if (lstm)
            forward_args.insert({{DNNL_ARG_SRC_ITER_C, filled(state)},
                {DNNL_ARG_DST_ITER_C, filled(state)},
                {DNNL_ARG_WEIGHTS_PEEPHOLE, filled(peepholes)}});
        backward_args = forward_args;
        backward_args[DNNL_ARG_WEIGHTS_LAYER] = bwd_W;
        backward_args[DNNL_ARG_WEIGHTS_ITER] = bwd_U;
        backward_args.insert({{DNNL_ARG_DIFF_SRC_LAYER, filled(x)},
            {DNNL_ARG_DIFF_SRC_ITER, filled(state)}, {DNNL_ARG_DIFF_WEIGHTS_LAYER, d_W},
            {DNNL_ARG_DIFF_WEIGHTS_ITER, d_U}, {DNNL_ARG_DIFF_BIAS, filled(bias)},
            {DNNL_ARG_DIFF_DST_LAYER, filled(h)}, {DNNL_ARG_DIFF_DST_ITER, filled(state)}});
        if (lstm)
            backward_args.insert({{DNNL_ARG_DIFF_SRC_ITER_C, filled(state)},
                {DNNL_ARG_DIFF_DST_ITER_C, filled(state)},
                {DNNL_ARG_DIFF_WEIGHTS_PEEPHOLE, filled(peepholes)}});
    };
    if (lstm) {
        lstm_forward::primitive_desc fwd(
            cpu, training, right, x, state, state, W, U, peepholes, bias, h, state, state);
        set_up(fwd, lstm_backward::primitive_desc(cpu, backwards, right, x, state, state, W, U,
            peepholes, bias, h, state, state, x, state, state, W, U, peepholes, bias, h, state,
            state, fwd));
    } else {
        gru_forward::primitive_desc fwd(cpu, training, right, x, state, W, U, bias, h, state);
        set_up(fwd, gru_backward::primitive_desc(cpu, backwards, right, x, state, W, U, bias, h,
            state, x, state, W, U, bias, h, state, fwd));
    }

    stream queue(cpu);
    auto step = [&] {
        for (auto& [packing, ends] : packings) packing.execute(queue, ends.first, ends.second);
        forward.execute(queue, forward_args);
        backward.execute(queue, backward_args);
        queue.wait();
    };
    for (int k = 0; k < 3; ++k) step();
    for (const double end = now() + seconds; now() < end;) {
        const double began = now();
        step();
        printf("%.4f\n", 1e3 * (now() - began));
    }
}
