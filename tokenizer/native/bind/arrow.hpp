// Columns of texts and of ids in Arrow's C data and stream interfaces, passed in PyCapsules; for the bindings only.
// https://arrow.apache.org/docs/format/CDataInterface.html
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace webtext {

namespace nb = nanobind;

// The three structures, whose layout the specification fixes. One with `release` null is empty.
struct ArrowSchema {
  const char *format, *name, *metadata;
  std::int64_t flags, n_children;
  ArrowSchema **children, *dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  std::int64_t length, null_count, offset, n_buffers, n_children;
  const void** buffers;
  ArrowArray **children, *dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};
struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema*);
  int (*get_next)(ArrowArrayStream*, ArrowArray*);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

// A structure that is released at the end of its life.
template <class Struct>
struct Owned : Struct {
  Owned() : Struct{} {}
  explicit Owned(Struct& given) : Struct(given) { given.release = nullptr; }
  Owned(Owned&& other) noexcept : Owned(static_cast<Struct&>(other)) {}
  ~Owned() {
    if (this->release) this->release(this);
  }
};

// Takes a structure out of a producer's capsule.
template <class Struct>
Owned<Struct> taken(nb::handle capsule, const char* name) {
  auto* given = static_cast<Struct*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (!given) throw nb::python_error();
  if (!given->release) throw std::invalid_argument("the Arrow column was used before");
  return Owned<Struct>(*given);
}

// Puts a structure into a capsule, which releases it if no consumer takes it out.
template <class Struct>
nb::capsule in_capsule(Struct given, const char* name) {
  return nb::capsule(new Owned<Struct>(given), name,
                     [](void* owned) noexcept { delete static_cast<Owned<Struct>*>(owned); });
}

// Views of the texts of a column of any string or binary type, which stays in its producer's memory.
class TextColumn {
 public:
  explicit TextColumn(nb::handle column) {
    if (nb::hasattr(column, "__arrow_c_array__")) {
      const nb::object pair = column.attr("__arrow_c_array__")();
      const auto schema = taken<ArrowSchema>(pair[0], "arrow_schema");
      add(schema, taken<ArrowArray>(pair[1], "arrow_array"));
      return;
    }
    auto stream = taken<ArrowArrayStream>(column.attr("__arrow_c_stream__")(), "arrow_array_stream");
    Owned<ArrowSchema> schema;
    next(stream, stream.get_schema, schema);
    while (true) {
      Owned<ArrowArray> chunk;
      next(stream, stream.get_next, chunk);
      if (!chunk.release) break;
      add(schema, std::move(chunk));
    }
  }

  TextColumn(const TextColumn&) = delete;

  const std::vector<std::string_view>& views() const { return views_; }

 private:
  // Calls a stream's function without the GIL, which a producer may need in another thread.
  template <class Struct>
  static void next(ArrowArrayStream& stream, int (*function)(ArrowArrayStream*, Struct*), Owned<Struct>& into) {
    int failure = 0;
    {
      nb::gil_scoped_release release;
      failure = function(&stream, &into);
    }
    if (!failure) return;
    const char* said = stream.get_last_error(&stream);
    throw std::invalid_argument("the Arrow column can't be read: " + std::string(said ? said : "no reason given"));
  }

  void add(const ArrowSchema& schema, Owned<ArrowArray> chunk) {
    const std::string type = schema.format ? schema.format : "";
    const bool has_views = type == "vu" || type == "vz", is_large = type == "U" || type == "Z";
    if (schema.dictionary || !(has_views || is_large || type == "u" || type == "z")) {
      throw std::invalid_argument("the Arrow column has the format '" + type.substr(0, 20) + "'" +
                                  (schema.dictionary ? " with a dictionary" : ""));
    }
    const std::int64_t first = chunk.offset, n = chunk.length;
    check(first >= 0 && n >= 0 && first < INT64_MAX - n && (has_views ? chunk.n_buffers >= 3 : chunk.n_buffers == 3));
    if (n) check(chunk.buffers && chunk.buffers[1]);
    const auto* validity = n ? static_cast<const unsigned char*>(chunk.buffers[0]) : nullptr;
    for (std::int64_t row = first; row < first + n; ++row) {
      if (validity && !(validity[row / 8] >> (row % 8) & 1)) {
        throw std::invalid_argument("row " + std::to_string(views_.size()) + " of the Arrow column is null");
      }
      views_.push_back(has_views  ? viewed(chunk, row)
                       : is_large ? sliced<std::int64_t>(chunk, row)
                                  : sliced<std::int32_t>(chunk, row));
    }
    chunks_.push_back(std::move(chunk));
  }

  static void check(bool is_sound) {
    if (!is_sound) throw std::invalid_argument("the Arrow column is damaged");
  }

  template <class Item>
  static Item item(const void* buffer, std::int64_t index) {
    Item found;
    std::memcpy(&found, static_cast<const char*>(buffer) + index * static_cast<std::int64_t>(sizeof(Item)),
                sizeof found);
    return found;
  }

  static std::string_view part(const void* data, std::int64_t begin, std::int64_t end) {
    check(begin >= 0 && end >= begin && (data || begin == end));
    if (begin == end) return {};
    return {static_cast<const char*>(data) + begin, static_cast<std::size_t>(end - begin)};
  }

  template <class Offset>
  static std::string_view sliced(const ArrowArray& chunk, std::int64_t row) {
    return part(chunk.buffers[2], item<Offset>(chunk.buffers[1], row), item<Offset>(chunk.buffers[1], row + 1));
  }

  // A view has a length and up to 12 bytes; or a length, 4 bytes, the index of one of the buffers, and a place in it.
  // The last buffer has the sizes of these buffers.
  static std::string_view viewed(const ArrowArray& chunk, std::int64_t row) {
    const auto field = [&](int index) { return std::int64_t{item<std::int32_t>(chunk.buffers[1], 4 * row + index)}; };
    const std::int64_t length = field(0), buffer = field(2), begin = field(3), n_buffers = chunk.n_buffers - 3;
    if (length <= 12) return part(chunk.buffers[1], 16 * row + 4, 16 * row + 4 + length);
    check(buffer >= 0 && buffer < n_buffers && chunk.buffers[n_buffers + 2]);
    check(begin + length <= item<std::int64_t>(chunk.buffers[n_buffers + 2], buffer));
    return part(chunk.buffers[2 + buffer], begin, begin + length);
  }

  std::vector<Owned<ArrowArray>> chunks_;
  std::vector<std::string_view> views_;
};

// A column of the type large_list<uint16 or uint32>: numpy arrays of ids and of int64 offsets, which it shares.
class IdColumn {
 public:
  using Ids = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  using Offsets = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

  IdColumn(Ids ids, Offsets offsets) : ids_(std::move(ids)), offsets_(std::move(offsets)) {
    const bool is_wide = ids_.dtype() == nb::dtype<std::uint32_t>();
    if (!(is_wide || ids_.dtype() == nb::dtype<std::uint16_t>()) || !offsets_.size()) {
      throw std::invalid_argument("ids are uint16 or uint32, and there is one more offset than rows");
    }
  }

  std::size_t size() const { return offsets_.size() - 1; }

  nb::capsule schema() const {
    auto* held = new Held<ArrowSchema>;
    const auto of = [](const char* format, const char* name, ArrowSchema** child, Held<ArrowSchema>* owner) {
      return ArrowSchema{format, name, nullptr, kNullable, child != nullptr, child, nullptr, owner->release, owner};
    };
    held->item = of(ids_.itemsize() == 2 ? "S" : "I", "item", nullptr, new Held<ArrowSchema>);
    return in_capsule(of("+L", "", &held->items, held), "arrow_schema");
  }

  nb::tuple array() const {
    ArrowArray list = array_of(size(), offsets_.data(), nb::cast(offsets_));
    auto* held = static_cast<Held<ArrowArray>*>(list.private_data);
    held->item = array_of(ids_.size(), ids_.data(), nb::cast(ids_));
    list.n_children = 1;
    list.children = &held->items;
    return nb::make_tuple(schema(), in_capsule(list, "arrow_array"));
  }

 private:
  static constexpr std::int64_t kNullable = 2;  // the flag of a plain type; no row is null

  // What an exported structure points to, until it is released: by any thread, maybe after the interpreter has ended.
  template <class Struct>
  struct Held {
    Struct item{}, *items = &item;  // a child, which its consumer may take over
    const void* buffers[2]{};
    nb::object owner;  // of the buffers

    static void release(Struct* exported) {
      auto* held = static_cast<Held*>(exported->private_data);
      exported->release = nullptr;
      if (held->item.release) held->item.release(&held->item);
      if (!nb::is_alive()) return;
      nb::gil_scoped_acquire acquire;
      delete held;
    }
  };

  static ArrowArray array_of(std::size_t n, const void* values, nb::object owner) {
    auto* held = new Held<ArrowArray>{.buffers = {nullptr, values}, .owner = std::move(owner)};
    const auto length = static_cast<std::int64_t>(n);
    return {length, 0, 0, 2, 0, held->buffers, nullptr, nullptr, Held<ArrowArray>::release, held};
  }

  Ids ids_;
  Offsets offsets_;
};

}  // namespace webtext
