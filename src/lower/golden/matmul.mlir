module @matmul {
  func.func private @mm_copies_a_transposed_left_operand(%0: tensor<4x2xf32>, %1: tensor<4x3xf32>) -> (tensor<2x3xf32>) {
    %2 = "stablehlo.reshape"(%0) : (tensor<4x2xf32>) -> tensor<8xf32>
    %3 = "stablehlo.transpose"(%0) <{permutation = array<i64: 1, 0>}> : (tensor<4x2xf32>) -> tensor<2x4xf32>
    %4 = "stablehlo.dot_general"(%3, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
  func.func private @mm_leaves_it_to_other_platforms(%0: tensor<4x2xf32>, %1: tensor<4x3xf32>) -> (tensor<2x3xf32>) {
    %2 = "stablehlo.reshape"(%0) : (tensor<4x2xf32>) -> tensor<8xf32>
    %3 = "stablehlo.transpose"(%0) <{permutation = array<i64: 1, 0>}> : (tensor<4x2xf32>) -> tensor<2x4xf32>
    %4 = "stablehlo.dot_general"(%3, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
  func.func private @addmm_is_a_linear_layer(%0: tensor<3xf32>, %1: tensor<2x4xf32>, %2: tensor<3x4xf32>) -> (tensor<2x3xf32>) {
    %3 = "stablehlo.reshape"(%2) : (tensor<3x4xf32>) -> tensor<12xf32>
    %4 = "stablehlo.transpose"(%2) <{permutation = array<i64: 1, 0>}> : (tensor<3x4xf32>) -> tensor<4x3xf32>
    %5 = "stablehlo.dot_general"(%1, %4) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    %6 = "stablehlo.broadcast_in_dim"(%0) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xf32>) -> tensor<2x3xf32>
    %7 = "stablehlo.add"(%6, %5) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    return %7 : tensor<2x3xf32>
  }
  func.func private @baddbmm_ignores_self_at_beta_zero(%0: tensor<1x2x3xbf16>, %1: tensor<5x2x4xbf16>, %2: tensor<5x4x3xbf16>) -> (tensor<5x2x3xbf16>) {
    %3 = "stablehlo.dot_general"(%1, %2) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<5x2x4xbf16>, tensor<5x4x3xbf16>) -> tensor<5x2x3xf32>
    %4 = "stablehlo.constant"() <{value = dense<0x3E000000> : tensor<f32>}> : () -> tensor<f32>
    %5 = "stablehlo.broadcast_in_dim"(%4) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<5x2x3xf32>
    %6 = "stablehlo.multiply"(%3, %5) : (tensor<5x2x3xf32>, tensor<5x2x3xf32>) -> tensor<5x2x3xf32>
    %7 = "stablehlo.convert"(%6) : (tensor<5x2x3xf32>) -> tensor<5x2x3xbf16>
    return %7 : tensor<5x2x3xbf16>
  }
}
