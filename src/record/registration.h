// The kernels of the device, and how operators run on it. Any thread.
#pragma once

#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

namespace torch_xla {

// Functional operators of the aten namespace and their tier: "direct", "decomposition", "host".
std::vector<std::pair<std::string, std::string>> operator_tiers();

// Kernels of our own, by the files that have them: registered in one place, before the recorder's,
// which leave alone what has one.
void register_attention(torch::Library& m);
void register_batch_norm(torch::Library& m);
void register_device_kernels(torch::Library& m);
void register_grouped_mm(torch::Library& m);
void register_gradients(torch::Library& m);
void register_histogram(torch::Library& m);
void register_traced_convolutions(torch::Library& m);
void register_jagged_tensors(torch::Library& m);
void register_nested_tensors(torch::Library& m);
void register_out_variants(torch::Library& m);
void register_recurrent_layers(torch::Library& m);
void register_sparse_tensors(torch::Library& m);
void register_compressed_tensors(torch::Library& m);

}  // namespace torch_xla
