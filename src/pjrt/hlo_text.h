// Optimised programs come out of plugins as a serialised HloModuleProto; this writes one as the HLO
// text people read: instructions with shapes, layouts, operands and source lines. Stateless.
#pragma once

#include <string>
#include <string_view>

namespace torch_xla::pjrt {

// `module`: a serialised HloModuleProto. Throws if it is damaged.
std::string hlo_text(std::string_view module);

// The module inside a serialised HloModuleProtoWithConfig.
std::string_view hlo_of_hlo_with_config(std::string_view bytes);

}  // namespace torch_xla::pjrt
