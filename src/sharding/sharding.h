// How one value is laid out over the devices of a mesh: replicated, or cut into tiles. Shardings
// are interned and immutable: equal ones are the same object, which lives as long as the process.
// Any thread.
#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla {

class Sharding;
using ShardingPtr = const Sharding*;

// A box inside an array: start[i] <= index < stop[i].
struct Box {
  c10::SmallVector<int64_t, 6> start, stop;
};

class Sharding {
 public:
  enum class Kind : uint8_t {
    Replicated,
    Tiled,
    Manual,  // inside a manually partitioned region
  };
  using Ints = c10::ArrayRef<int64_t>;

  static ShardingPtr replicated();
  static ShardingPtr manual();
  // `tiles[i]`: into how many pieces dimension i is cut. `devices`: the device of each tile in
  // row-major order, each tile on as many consecutive ones as there are copies of it. One tile is
  // the same as replicated.
  static ShardingPtr tiled(std::vector<int64_t> tiles, std::vector<int64_t> devices);
  // The text of XLA: "{replicated}", "{devices=[2,4]0,1,2,3,4,5,6,7}", "{devices=[2,4]<=[8]}", with
  // last_tile_dim_replicate.
  static ShardingPtr parse(std::string_view text);

  Kind kind() const { return kind_; }
  bool is_replicated() const { return kind_ == Kind::Replicated; }
  bool is_tiled() const { return kind_ == Kind::Tiled; }
  const std::vector<int64_t>& tiles() const { return tiles_; }      // of a tiled one
  const std::vector<int64_t>& devices() const { return devices_; }  // of a tiled one
  int64_t copies() const { return copies_; }                        // of each tile
  const std::string& text() const { return text_; }
  uint64_t hash() const { return hash_; }  // the same in every process

  // The sizes of each device's piece. Uneven dimensions are rounded up: the pieces of the last
  // devices are padded, which box_of() leaves out.
  c10::SmallVector<int64_t, 6> shard_dims(Ints dims) const;
  // What `device` holds of an array of `dims`, without padding.
  Box box_of(Ints dims, int64_t device) const;
  // Which copy of its tile the device holds, from 0.
  int64_t replica_of(int64_t device) const;
  // The same sharding of an array whose dimension i is this one's dimension `order[i]`.
  ShardingPtr permuted(Ints order) const;

  Sharding(Kind kind, std::vector<int64_t> tiles, std::vector<int64_t> devices);
  Sharding(const Sharding&) = delete;
  Sharding& operator=(const Sharding&) = delete;

 private:
  int64_t position_of(int64_t device) const;
  std::string make_text() const;

  Kind kind_;
  std::vector<int64_t> tiles_, devices_;
  std::vector<int64_t> position_;  // of a device in `devices_`
  int64_t copies_ = 1;
  std::string text_;
  uint64_t hash_ = 0;
};

// Bytes between an array and the piece of it that a device holds. `piece` is dense, with the sizes
// of shard_dims(); its padding is zero. `cut` from the array, `paste` into it.
void cut(const void* array, Sharding::Ints dims, size_t element_size, const Box& box, void* piece,
         Sharding::Ints piece_dims);
void paste(void* array, Sharding::Ints dims, size_t element_size, const Box& box, const void* piece,
           Sharding::Ints piece_dims);
// The offset of the box in the array, in elements, if it lies there in one run; else -1.
int64_t offset_of_run(Sharding::Ints dims, const Box& box);

}  // namespace torch_xla
