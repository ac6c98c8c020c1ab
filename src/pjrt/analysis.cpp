#include "pjrt/analysis.h"

#include "base/error.h"
#include "pjrt/plugin_client.h"

namespace torch_xla::pjrt {

namespace {

PluginExecutable& of_plugin(Executable& executable) {
  auto* made = dynamic_cast<PluginExecutable*>(&executable);
  if (made == nullptr) {
    throw Error("a program of the null client computes nothing, so there is nothing to analyse");
  }
  return *made;
}

}  // namespace

std::map<std::string, double> cost_analysis(Executable& executable) {
  const PluginExecutable& program = of_plugin(executable);
  auto args = PJRT_ARGS(PJRT_Executable_GetCostAnalysis);
  args.executable = program.description();
  PJRT_CALL(program.api(), PJRT_Executable_GetCostAnalysis, args, "asking what a program costs");
  std::map<std::string, double> costs;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& property = args.properties[i];
    const std::string name(property.name, property.name_size);
    if (property.type == PJRT_NamedValue_kFloat) {
      costs[name] = property.float_value;
    } else if (property.type == PJRT_NamedValue_kInt64) {
      costs[name] = static_cast<double>(property.int64_value);
    }
  }
  return costs;
}

MemoryUse memory_use(Executable& executable) {
  const PluginExecutable& program = of_plugin(executable);
  auto args = PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats);
  args.executable = program.description();
  PJRT_CALL(program.api(), PJRT_Executable_GetCompiledMemoryStats, args,
            "asking how much memory a program takes");
  MemoryUse use;
  use.generated_code = args.generated_code_size_in_bytes;
  use.arguments = args.argument_size_in_bytes;
  use.outputs = args.output_size_in_bytes;
  use.aliases = args.alias_size_in_bytes;
  use.temporaries = args.temp_size_in_bytes;
  use.peak = args.peak_memory_in_bytes;
  use.host_generated_code = args.host_generated_code_size_in_bytes;
  use.host_arguments = args.host_argument_size_in_bytes;
  use.host_outputs = args.host_output_size_in_bytes;
  use.host_aliases = args.host_alias_size_in_bytes;
  use.host_temporaries = args.host_temp_size_in_bytes;
  return use;
}

}  // namespace torch_xla::pjrt
