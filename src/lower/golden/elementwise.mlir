module @elementwise {
  func.func private @add_broadcasts_and_drops_alpha_of_one(%0: tensor<2x3xf32>, %1: tensor<3xf32>) -> (tensor<2x3xf32>) {
    %2 = "stablehlo.broadcast_in_dim"(%1) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xf32>) -> tensor<2x3xf32>
    %3 = "stablehlo.add"(%0, %2) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    return %3 : tensor<2x3xf32>
  }
  func.func private @add_takes_a_changing_alpha_as_input(%0: tensor<2xf32>, %1: tensor<2xf32>, %2: tensor<f64>) -> (tensor<2xf32>) {
    %3 = "stablehlo.convert"(%2) : (tensor<f64>) -> tensor<f32>
    %4 = "stablehlo.broadcast_in_dim"(%3) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2xf32>
    %5 = "stablehlo.multiply"(%1, %4) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %6 = "stablehlo.add"(%0, %5) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %6 : tensor<2xf32>
  }
  func.func private @mul_of_16_bits_computes_in_32(%0: tensor<2xbf16>) -> (tensor<2xbf16>) {
    %1 = "stablehlo.convert"(%0) : (tensor<2xbf16>) -> tensor<2xf32>
    %2 = "stablehlo.constant"() <{value = dense<0x3DCCCCCD> : tensor<f32>}> : () -> tensor<f32>
    %3 = "stablehlo.broadcast_in_dim"(%2) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2xf32>
    %4 = "stablehlo.multiply"(%1, %3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %5 = "stablehlo.convert"(%4) : (tensor<2xf32>) -> tensor<2xbf16>
    return %5 : tensor<2xbf16>
  }
  func.func private @lt_compares_in_the_promoted_dtype(%0: tensor<2xi32>) -> (tensor<2xi1>) {
    %1 = "stablehlo.convert"(%0) : (tensor<2xi32>) -> tensor<2xf32>
    %2 = "stablehlo.constant"() <{value = dense<0x40200000> : tensor<f32>}> : () -> tensor<f32>
    %3 = "stablehlo.broadcast_in_dim"(%2) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2xf32>
    %4 = "stablehlo.compare"(%1, %3) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
    return %4 : tensor<2xi1>
  }
  func.func private @pow_squares_by_multiplying(%0: tensor<2xf32>) -> (tensor<2xf32>) {
    %1 = "stablehlo.multiply"(%0, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
  func.func private @masked_fill(%0: tensor<2x3xf32>, %1: tensor<3xi1>) -> (tensor<2x3xf32>) {
    %2 = "stablehlo.broadcast_in_dim"(%1) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xi1>) -> tensor<2x3xi1>
    %3 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %4 = "stablehlo.broadcast_in_dim"(%3) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x3xf32>
    %5 = "stablehlo.select"(%2, %4, %0) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    return %5 : tensor<2x3xf32>
  }
}
