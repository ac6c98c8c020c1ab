module @reduce {
  func.func private @sum_of_16_bits_accumulates_in_32(%arg0: tensor<2x3xbf16>) -> tensor<2x1xbf16> {
    %0 = stablehlo.convert %arg0 : (tensor<2x3xbf16>) -> tensor<2x3xf32>
    %1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %3 = stablehlo.reshape %2 : (tensor<2xf32>) -> tensor<2x1xf32>
    %4 = stablehlo.convert %3 : (tensor<2x1xf32>) -> tensor<2x1xbf16>
    return %4 : tensor<2x1xbf16>
  }
  func.func private @amax_prefers_nan(%arg0: tensor<2x3xf32>) -> tensor<2xf32> {
    %0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %5 = stablehlo.reduce(%arg0 init: %0) across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32> reducer (%arg1: tensor<f32>, %arg2: tensor<f32>) {
      %1 = stablehlo.compare GT, %arg1, %arg2 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.compare NE, %arg1, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.or %1, %2 : tensor<i1>
      %4 = stablehlo.select %3, %arg1, %arg2 : tensor<i1>, tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }
    return %5 : tensor<2xf32>
  }
  func.func private @softmax(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.maximum across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
    %3 = stablehlo.subtract %arg0, %2 : tensor<2x3xf32>
    %4 = stablehlo.exponential %3 : tensor<2x3xf32>
    %5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.reduce(%4 init: %5) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
    %8 = stablehlo.divide %4, %7 : tensor<2x3xf32>
    return %8 : tensor<2x3xf32>
  }
  func.func private @cumsum_of_integers_is_long(%arg0: tensor<4xi32>) -> tensor<4xi64> {
    %0 = stablehlo.convert %arg0 : (tensor<4xi32>) -> tensor<4xi64>
    %1 = stablehlo.constant dense<0> : tensor<i64>
    %3 = "stablehlo.reduce_window"(%0, %1) <{window_dimensions = array<i64: 4>, window_strides = array<i64: 1>, base_dilations = array<i64: 1>, window_dilations = array<i64: 1>, padding = dense<[[3, 0]]> : tensor<1x2xi64>}> ({
    ^bb0(%arg1: tensor<i64>, %arg2: tensor<i64>):
      %2 = stablehlo.add %arg1, %arg2 : tensor<i64>
      stablehlo.return %2 : tensor<i64>
    }) : (tensor<4xi64>, tensor<i64>) -> tensor<4xi64>
    return %3 : tensor<4xi64>
  }
}
