#include "scan/characters.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>

#include "scan/unicode_tables.hpp"

namespace webtext {
namespace {

constexpr std::size_t kMainVersion = 3;
static_assert(kUnicodeVersions[kMainVersion] == kUnicodeVersion);

// Writes a run of the tables and returns its end.
std::uint32_t write_run(std::vector<Category>& all, std::uint32_t first, std::uint32_t run) {
  constexpr std::uint32_t kAlternating = kCategoryNames.size();
  const std::uint32_t end = first + run / 16, category = run % 16;
  if (category != kAlternating) {
    std::fill(all.begin() + first, all.begin() + end, static_cast<Category>(category));
  } else {
    for (std::uint32_t code = first; code < end; ++code) {
      all[code] = (code - first) % 2 ? Category::kLower : Category::kUpper;
    }
  }
  return end;
}

constexpr CasedClass cased_class(Category category) {
  using enum CasedClass;
  constexpr CasedClass classes[] = {kOther, kUpper,  kLower,  kUpper, kUncased, kUncased,
                                    kMark,  kNumber, kNumber, kOther, kOther,   kSpace};
  return classes[static_cast<Byte>(category)];
}

}  // namespace

const std::array<Byte, 256>& byte_order() {
  static const std::array<Byte, 256> order = [] {
    std::array<Byte, 256> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<Byte>(byte);
    const auto visible = [](Byte byte) { return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD); };
    std::stable_partition(bytes.begin(), bytes.end(), visible);
    return bytes;
  }();
  return order;
}

std::vector<Category> categories(std::size_t version) {
  std::vector<Category> all(kCodes);
  std::uint32_t code = 0;
  for (const std::uint32_t run : kRuns) code = write_run(all, code, run);
  const auto apply = [&](const auto& differences) {
    for (const auto& [first, run] : differences) write_run(all, first, run);
  };
  if (version < 3) apply(kDifferences15_1_0);  // each table has the differences from the next version
  if (version < 2) apply(kDifferences15_0_0);
  if (version < 1) apply(kDifferences14_0_0);
  if (version > 3) apply(kDifferences17_0_0);
  return all;
}

std::size_t unicode_version_index(std::string_view name) {
  const auto found = std::find(kUnicodeVersions.begin(), kUnicodeVersions.end(), name);
  if (found == kUnicodeVersions.end()) throw std::invalid_argument("no tables of Unicode " + std::string(name));
  return static_cast<std::size_t>(found - kUnicodeVersions.begin());
}

const ClassTable& ClassTable::of(std::string_view unicode_version) {
  static std::array<std::atomic<const ClassTable*>, kUnicodeVersions.size()> tables;
  const std::size_t version = unicode_version_index(unicode_version);
  const ClassTable* table = tables[version].load(std::memory_order_acquire);
  if (!table) {
    std::unique_ptr<const ClassTable> made(new ClassTable(version));
    if (tables[version].compare_exchange_strong(table, made.get(), std::memory_order_acq_rel)) table = made.release();
  }
  return *table;
}

ClassTable::ClassTable(std::size_t version) {
  std::vector<Category> all = categories(version);
  all.resize(block_of_.size() << kShift);  // kNoCode has no category
  for (std::size_t index = 0; index < block_of_.size(); ++index) {
    std::array<CasedClass, kBlock> block;
    std::transform(&all[index << kShift], &all[index << kShift] + kBlock, block.begin(), cased_class);
    const auto known = std::find(blocks_.begin(), blocks_.end(), block);
    block_of_[index] = static_cast<Byte>(known - blocks_.begin());  // there are fewer than 200 different blocks
    if (known == blocks_.end()) blocks_.push_back(block);
  }
}

}  // namespace webtext
