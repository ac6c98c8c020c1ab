#include "sharding/sharding.h"

#include "base/error.h"
#include "base/hasher.h"
#include "base/mutex.h"
#include "base/text.h"

#include <charconv>
#include <cstring>
#include <memory>
#include <numeric>
#include <unordered_map>

namespace torch_xla {

namespace {

using Ints = Sharding::Ints;

int64_t product_of(Ints values) {
  return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<>());
}

ShardingPtr intern(std::unique_ptr<Sharding> sharding) {
  static Mutex mutex;
  static auto* table = new std::unordered_map<std::string, std::unique_ptr<Sharding>>;
  MutexLock lock(mutex);
  return table->try_emplace(sharding->text(), std::move(sharding)).first->second.get();
}

// Reads XLA's text piece by piece.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), rest_(text) {}

  ShardingPtr run() {
    expect("{");
    if (accept("replicated")) {
      return close(Sharding::replicated());
    }
    if (accept("manual")) {
      return close(Sharding::manual());
    }
    expect("devices=");
    std::vector<int64_t> tiles = bracketed();
    std::vector<int64_t> devices = accept("<=") ? iota() : integers();
    if (accept(" last_tile_dim_replicate") && !tiles.empty()) {
      tiles.pop_back();
    }
    return close(Sharding::tiled(std::move(tiles), std::move(devices)));
  }

 private:
  [[noreturn]] void refuse() const {
    throw Error("\"" + std::string(text_) +
                "\" is not a sharding: expected \"{replicated}\" or \"{devices=[2,4]0,1,...}\", "
                "wrong from \"" +
                std::string(rest_) + "\"");
  }

  bool accept(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) {
      return false;
    }
    rest_.remove_prefix(word.size());
    return true;
  }

  void expect(std::string_view word) {
    if (!accept(word)) {
      refuse();
    }
  }

  ShardingPtr close(ShardingPtr sharding) {
    expect("}");
    if (!rest_.empty()) {
      refuse();
    }
    return sharding;
  }

  std::vector<int64_t> integers() {
    std::vector<int64_t> values;
    do {
      int64_t value = 0;
      auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc()) {
        refuse();
      }
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      values.push_back(value);
    } while (accept(","));
    return values;
  }

  std::vector<int64_t> bracketed() {
    expect("[");
    std::vector<int64_t> values = integers();
    expect("]");
    return values;
  }

  // "[2,4]T(1,0)": 0, 1, ... in this shape, transposed, flattened.
  std::vector<int64_t> iota() {
    std::vector<int64_t> dims = bracketed();
    std::vector<int64_t> order(dims.size());
    std::iota(order.begin(), order.end(), 0);
    if (accept("T(")) {
      order = integers();
      expect(")");
    }
    if (order.size() != dims.size()) {
      refuse();
    }
    return transposed_iota(dims, order);
  }

  static std::vector<int64_t> transposed_iota(Ints dims, Ints order) {
    std::vector<int64_t> strides(dims.size(), 1);
    for (size_t i = dims.size(); i-- > 1;) {
      strides[i - 1] = strides[i] * dims[i];
    }
    std::vector<int64_t> values(static_cast<size_t>(product_of(dims)));
    for (size_t flat = 0; flat < values.size(); ++flat) {
      auto rest = static_cast<int64_t>(flat);
      for (size_t i = order.size(); i-- > 0;) {
        int64_t size = dims[order[i]];
        values[flat] += rest % size * strides[order[i]];
        rest /= size;
      }
    }
    return values;
  }

  const std::string_view text_;
  std::string_view rest_;
};

// Calls `run` with (offset in the array, offset in the piece) of each run of bytes of the box.
template <typename Run>
void for_each_run(Ints dims, const Box& box, Ints piece_dims, Run&& run) {
  size_t rank = dims.size();
  c10::SmallVector<int64_t, 6> index(box.start);
  for (size_t i = 0; i < rank; ++i) {
    if (box.start[i] >= box.stop[i]) {
      return;
    }
  }
  while (true) {
    int64_t from = 0, to = 0;
    for (size_t i = 0; i < rank; ++i) {
      from = from * dims[i] + index[i];
      to = to * piece_dims[i] + index[i] - box.start[i];
    }
    run(from, to);
    size_t i = rank;
    while (i-- > 1) {  // the last dimension is the run
      if (++index[i - 1] < box.stop[i - 1]) {
        break;
      }
      index[i - 1] = box.start[i - 1];
    }
    if (i == 0 || rank == 0) {
      return;
    }
  }
}

size_t run_bytes(const Box& box, size_t element_size) {
  return box.start.empty() ? element_size
                           : static_cast<size_t>(box.stop.back() - box.start.back()) * element_size;
}

}  // namespace

Sharding::Sharding(Kind kind, std::vector<int64_t> tiles, std::vector<int64_t> devices)
    : kind_(kind), tiles_(std::move(tiles)), devices_(std::move(devices)) {
  if (kind_ == Kind::Tiled) {
    copies_ = static_cast<int64_t>(devices_.size()) / product_of(tiles_);
    position_.assign(devices_.size(), -1);
    for (size_t i = 0; i < devices_.size(); ++i) {
      position_[devices_[i]] = static_cast<int64_t>(i);
    }
  }
  text_ = make_text();
  Hasher hasher;
  hasher.add(std::string_view(text_));
  hash_ = hasher.low();
}

std::string Sharding::make_text() const {
  if (kind_ != Kind::Tiled) {
    return kind_ == Kind::Manual ? "{manual}" : "{replicated}";
  }
  std::string text = "{devices=[" + joined(tiles_);
  text += copies_ > 1 ? "," + std::to_string(copies_) + "]" : "]";
  text += joined(devices_);
  return text + (copies_ > 1 ? " last_tile_dim_replicate}" : "}");
}

ShardingPtr Sharding::replicated() {
  static const ShardingPtr instance = intern(
      std::make_unique<Sharding>(Kind::Replicated, std::vector<int64_t>(), std::vector<int64_t>()));
  return instance;
}

ShardingPtr Sharding::manual() {
  static const ShardingPtr instance = intern(
      std::make_unique<Sharding>(Kind::Manual, std::vector<int64_t>(), std::vector<int64_t>()));
  return instance;
}

ShardingPtr Sharding::tiled(std::vector<int64_t> tiles, std::vector<int64_t> devices) {
  auto count = static_cast<int64_t>(devices.size());
  int64_t pieces = product_of(tiles);
  std::vector<bool> seen(devices.size(), false);
  for (int64_t device : devices) {
    if (device < 0 || device >= count || seen[device]) {
      throw Error("a sharding over " + std::to_string(count) + " devices must name each of 0 to " +
                  std::to_string(count - 1) + " once, got " + joined(devices));
    }
    seen[device] = true;
  }
  if (pieces <= 0 || count % pieces != 0) {
    throw Error("tiles [" + joined(tiles) + "] make " + std::to_string(pieces) +
                " pieces, which cannot be spread evenly over " + std::to_string(count) +
                " devices");
  }
  if (pieces == 1) {
    return replicated();
  }
  return intern(std::make_unique<Sharding>(Kind::Tiled, std::move(tiles), std::move(devices)));
}

ShardingPtr Sharding::parse(std::string_view text) { return Parser(text).run(); }

c10::SmallVector<int64_t, 6> Sharding::shard_dims(Ints dims) const {
  c10::SmallVector<int64_t, 6> result(dims.begin(), dims.end());
  for (size_t i = 0; i < tiles_.size(); ++i) {
    result[i] = (dims[i] + tiles_[i] - 1) / tiles_[i];
  }
  return result;
}

int64_t Sharding::position_of(int64_t device) const {
  if (device < 0 || device >= static_cast<int64_t>(position_.size())) {
    throw Error("device " + std::to_string(device) + " holds nothing of a value sharded as " +
                text_);
  }
  return position_[device];
}

Box Sharding::box_of(Ints dims, int64_t device) const {
  Box box;
  box.start.assign(dims.size(), 0);
  box.stop.assign(dims.begin(), dims.end());
  if (kind_ != Kind::Tiled) {
    return box;
  }
  int64_t tile = position_of(device) / copies_;
  auto piece = shard_dims(dims);
  for (size_t i = tiles_.size(); i-- > 0;) {
    int64_t index = tile % tiles_[i];
    tile /= tiles_[i];
    box.start[i] = std::min(index * piece[i], dims[i]);
    box.stop[i] = std::min(box.start[i] + piece[i], dims[i]);
  }
  return box;
}

int64_t Sharding::replica_of(int64_t device) const {
  return kind_ == Kind::Tiled ? position_of(device) % copies_ : device;
}

ShardingPtr Sharding::permuted(Ints order) const {
  if (kind_ != Kind::Tiled) {
    return this;
  }
  // Positions of the devices as an array of the tiles and the copies, transposed.
  size_t rank = tiles_.size();
  std::vector<int64_t> tiles;
  std::vector<int64_t> strides(rank, copies_);
  for (size_t i = rank; i-- > 1;) {
    strides[i - 1] = strides[i] * tiles_[i];
  }
  for (int64_t dim : order) {
    tiles.push_back(tiles_[dim]);
  }
  std::vector<int64_t> devices;
  for (size_t flat = 0; flat < devices_.size(); ++flat) {
    auto rest = static_cast<int64_t>(flat);
    int64_t position = rest % copies_;
    rest /= copies_;
    for (size_t i = rank; i-- > 0;) {
      position += rest % tiles[i] * strides[order[i]];
      rest /= tiles[i];
    }
    devices.push_back(devices_[position]);
  }
  return tiled(std::move(tiles), std::move(devices));
}

void cut(const void* array, Ints dims, size_t element_size, const Box& box, void* piece,
         Ints piece_dims) {
  std::memset(piece, 0, static_cast<size_t>(product_of(piece_dims)) * element_size);
  size_t bytes = run_bytes(box, element_size);
  for_each_run(dims, box, piece_dims, [&](int64_t from, int64_t to) {
    std::memcpy(static_cast<char*>(piece) + static_cast<size_t>(to) * element_size,
                static_cast<const char*>(array) + static_cast<size_t>(from) * element_size, bytes);
  });
}

void paste(void* array, Ints dims, size_t element_size, const Box& box, const void* piece,
           Ints piece_dims) {
  size_t bytes = run_bytes(box, element_size);
  for_each_run(dims, box, piece_dims, [&](int64_t to, int64_t from) {
    std::memcpy(static_cast<char*>(array) + static_cast<size_t>(to) * element_size,
                static_cast<const char*>(piece) + static_cast<size_t>(from) * element_size, bytes);
  });
}

int64_t offset_of_run(Ints dims, const Box& box) {
  int64_t offset = 0;
  bool inside = false;  // once a dimension holds several, the rest must be whole
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t size = box.stop[i] - box.start[i];
    if (inside && size != dims[i]) {
      return -1;
    }
    inside = inside || size != 1;
    offset = offset * dims[i] + box.start[i];
  }
  return offset;
}

}  // namespace torch_xla
