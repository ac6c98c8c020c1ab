module @elementwise {
  func.func private @add_broadcasts_and_drops_alpha_of_one(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.add %arg0, %0 : tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
  func.func private @add_takes_a_changing_alpha_as_input(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<f64>) -> tensor<2xf32> {
    %0 = stablehlo.convert %arg2 : (tensor<f64>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %2 = stablehlo.multiply %arg1, %1 : tensor<2xf32>
    %3 = stablehlo.add %arg0, %2 : tensor<2xf32>
    return %3 : tensor<2xf32>
  }
  func.func private @mul_of_16_bits_computes_in_32(%arg0: tensor<2xbf16>) -> tensor<2xbf16> {
    %0 = stablehlo.convert %arg0 : (tensor<2xbf16>) -> tensor<2xf32>
    %1 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %3 = stablehlo.multiply %0, %2 : tensor<2xf32>
    %4 = stablehlo.convert %3 : (tensor<2xf32>) -> tensor<2xbf16>
    return %4 : tensor<2xbf16>
  }
  func.func private @lt_compares_in_the_promoted_dtype(%arg0: tensor<2xi32>) -> tensor<2xi1> {
    %0 = stablehlo.convert %arg0 : (tensor<2xi32>) -> tensor<2xf32>
    %1 = stablehlo.constant dense<2.500000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %3 = stablehlo.compare LT, %0, %2 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
    return %3 : tensor<2xi1>
  }
  func.func private @pow_squares_by_multiplying(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func private @masked_fill(%arg0: tensor<2x3xf32>, %arg1: tensor<3xi1>) -> tensor<2x3xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<3xi1>) -> tensor<2x3xi1>
    %1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %3 = stablehlo.select %0, %2, %arg0 : tensor<2x3xi1>, tensor<2x3xf32>
    return %3 : tensor<2x3xf32>
  }
}
