// Scans one line of JSON: checks it against RFC 8259 without building values, and finds the fields that a post needs.
//
// There are two passes. The first marks quotes and escapes, 64 bytes at a time. The second parses everything between
// strings, and skips strings from mark to mark. A line that is not an object, or is unusual in any way, is rejected:
// see `LineScanner::scan`. The readable twin is tests/reference/sift.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace webtext::sift {

enum Field : uint8_t {
  kMeta,
  kCreated,
  kDomain,
  kId,
  kIsSelf,
  kName,
  kOver18,
  kRetrievedOn,
  kRetrievedUtc,
  kScore,
  kSubreddit,
  kUrl,
  kRetrievedSecond,  // within _meta
  kFields
};
inline constexpr std::array<std::string_view, kFields> kFieldNames = {
    "_meta",         "created_utc", "domain",    "id",  "is_self",         "name", "over_18", "retrieved_on",
    "retrieved_utc", "score",       "subreddit", "url", "retrieved_2nd_on"};

constexpr size_t kLongestLine = size_t{1} << 20;
constexpr size_t kDeepest = 60;        // nested objects and arrays
constexpr size_t kLongestNumber = 18;  // characters: any whole number of this length fits in 64 bits
constexpr size_t kBlock = 64;

class LineScanner {
 public:
  // `portable`: without SIMD instructions; the results are the same.
  explicit LineScanner(bool portable = false) : portable_(portable) {}

  // Returns whether the line is an object in valid JSON and valid UTF-8, and not unusual. Unusual is a line longer than
  // kLongestLine or nested deeper than kDeepest; a control character (also a tab), half a surrogate pair, a number with
  // an exponent or longer than kLongestNumber; one of our fields twice, or \u in a key of the first two levels.
  //
  // kBlock bytes must be readable from the line's end on, and the first of them must be a newline.
  bool scan(const char* line, size_t size);

  // Returns the value of a field in the line scanned last, as spelled there; empty if the line lacks the field.
  std::string_view operator[](Field field) const { return fields_[field]; }

 private:
  bool mark();
  bool mark_escapes(size_t block, uint64_t backslashes);
  size_t escape(size_t at);
  bool walk();

  bool portable_;
  const char* line_ = nullptr;
  size_t size_ = 0;
  std::vector<uint64_t> quotes_;  // one bit per byte: 1 for a quote that no backslash escapes
  size_t escaped_until_ = 0;
  bool has_unicode_escapes_ = false;
  std::array<std::string_view, kFields> fields_;
};

}  // namespace webtext::sift
