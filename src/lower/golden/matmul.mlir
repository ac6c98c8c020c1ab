module @matmul {
  func.func private @mm_copies_a_transposed_left_operand(%arg0: tensor<4x2xf32>, %arg1: tensor<4x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.reshape %arg0 : (tensor<4x2xf32>) -> tensor<8xf32>
    %1 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<4x2xf32>) -> tensor<2x4xf32>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    return %2 : tensor<2x3xf32>
  }
  func.func private @mm_leaves_it_to_other_platforms(%arg0: tensor<4x2xf32>, %arg1: tensor<4x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.reshape %arg0 : (tensor<4x2xf32>) -> tensor<8xf32>
    %1 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<4x2xf32>) -> tensor<2x4xf32>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    return %2 : tensor<2x3xf32>
  }
  func.func private @addmm_is_a_linear_layer(%arg0: tensor<3xf32>, %arg1: tensor<2x4xf32>, %arg2: tensor<3x4xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.reshape %arg2 : (tensor<3x4xf32>) -> tensor<12xf32>
    %1 = stablehlo.transpose %arg2, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
    %2 = stablehlo.dot_general %arg1, %1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    %3 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %4 = stablehlo.add %3, %2 : tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
  func.func private @baddbmm_ignores_self_at_beta_zero(%arg0: tensor<1x2x3xbf16>, %arg1: tensor<5x2x4xbf16>, %arg2: tensor<5x4x3xbf16>) -> tensor<5x2x3xbf16> {
    %0 = stablehlo.dot_general %arg1, %arg2, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<5x2x4xbf16>, tensor<5x4x3xbf16>) -> tensor<5x2x3xf32>
    %1 = stablehlo.constant dense<1.250000e-01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<5x2x3xf32>
    %3 = stablehlo.multiply %0, %2 : tensor<5x2x3xf32>
    %4 = stablehlo.convert %3 : (tensor<5x2x3xf32>) -> tensor<5x2x3xbf16>
    return %4 : tensor<5x2x3xbf16>
  }
  func.func private @bmm_of_expanded_weights_has_one_product(%arg0: tensor<5x2x4xf32>, %arg1: tensor<4x3xf32>) -> tensor<5x2x3xf32> {
    %0 = stablehlo.reshape %arg1 : (tensor<4x3xf32>) -> tensor<12xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<4x3xf32>) -> tensor<5x4x3xf32>
    %2 = stablehlo.slice %1 [0:1, 0:4, 0:3] : (tensor<5x4x3xf32>) -> tensor<1x4x3xf32>
    %3 = stablehlo.reshape %2 : (tensor<1x4x3xf32>) -> tensor<4x3xf32>
    %4 = stablehlo.dot_general %arg0, %3, contracting_dims = [2] x [0] : (tensor<5x2x4xf32>, tensor<4x3xf32>) -> tensor<5x2x3xf32>
    return %4 : tensor<5x2x3xf32>
  }
}
