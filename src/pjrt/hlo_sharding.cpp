#include "pjrt/hlo_sharding.h"

#include "base/text.h"
#include "pjrt/wire.h"

#include <numeric>

namespace torch_xla::pjrt {

namespace {

using wire::Field;
using wire::Reader;

// Field of HloModuleProto, and OpSharding's kinds and fields.
constexpr int kSpmdOutputSharding = 12;
enum OpShardingKind { kReplicated = 0, kTuple = 2, kOther = 3, kManual = 4 };
enum OpShardingField {
  kKind = 1,
  kTileDims = 3,
  kTileDevices = 4,
  kTupleShardings = 5,
  kReplicateOnLastDim = 6,
  kLastTileDims = 8,
  kIotaDims = 9,
  kIotaOrder = 10,
};

struct OpSharding {
  int64_t kind = kReplicated;
  std::vector<int64_t> tiles, devices, iota_dims, iota_order, last_dims;
  bool replicate_on_last_dim = false;
  std::vector<std::string_view> elements;
};

OpSharding parse(std::string_view message) {
  OpSharding sharding;
  Field field;
  for (Reader reader(message); reader.next(field);) {
    switch (field.number) {
      case kKind:
        sharding.kind = static_cast<int64_t>(field.integer);
        break;
      case kTileDims:
        wire::append_integers(field, sharding.tiles);
        break;
      case kTileDevices:
        wire::append_integers(field, sharding.devices);
        break;
      case kTupleShardings:
        sharding.elements.push_back(field.bytes);
        break;
      case kReplicateOnLastDim:
        sharding.replicate_on_last_dim = field.integer != 0;
        break;
      case kLastTileDims:
        wire::append_integers(field, sharding.last_dims);
        break;
      case kIotaDims:
        wire::append_integers(field, sharding.iota_dims);
        break;
      case kIotaOrder:
        wire::append_integers(field, sharding.iota_order);
        break;
    }
  }
  return sharding;
}

ShardingPtr to_sharding(const OpSharding& sharding) {
  if (sharding.kind == kReplicated) {
    return Sharding::replicated();
  }
  if (sharding.kind == kManual) {
    return Sharding::manual();
  }
  if (sharding.kind != kOther) {
    throw Error("the compiler chose a sharding of kind " + std::to_string(sharding.kind) +
                " for a result, which is not supported: annotate it with mark_sharding");
  }
  // As text, whose reader knows the short form of device lists.
  std::string devices = joined(sharding.devices);
  if (devices.empty()) {
    devices = "<=[" + joined(sharding.iota_dims) + "]";
    if (!sharding.iota_order.empty()) {
      devices += "T(" + joined(sharding.iota_order) + ")";
    }
  }
  bool copies = sharding.replicate_on_last_dim || !sharding.last_dims.empty();
  return Sharding::parse("{devices=[" + joined(sharding.tiles) + "]" + devices +
                         (copies ? " last_tile_dim_replicate}" : "}"));
}

}  // namespace

std::vector<ShardingPtr> result_shardings(std::string_view module, size_t count) {
  std::vector<ShardingPtr> result;
  Field field;
  for (Reader reader(module); reader.next(field);) {
    if (field.number != kSpmdOutputSharding) {
      continue;
    }
    OpSharding sharding = parse(field.bytes);
    if (sharding.kind != kTuple) {
      result.assign(count, to_sharding(sharding));
      break;
    }
    for (std::string_view element : sharding.elements) {
      result.push_back(to_sharding(parse(element)));
    }
  }
  result.resize(count, Sharding::replicated());
  return result;
}

}  // namespace torch_xla::pjrt
