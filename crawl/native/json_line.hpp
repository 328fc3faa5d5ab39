// One line of JSON, checked against RFC 8259 without building anything, and where the fields lie that matter to a post.
//
// Two passes. The first marks quotes and escapes, 64 bytes at a time. The second walks through all that lies between
// strings, and jumps over strings from mark to mark. A line is refused that is no object, or in any way unusual: see
// `LineScanner::scan`. The readable twin is crawl/links/sift_reference.py.
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
constexpr size_t kDeepest = 60;        // objects and arrays within each other
constexpr size_t kLongestNumber = 18;  // characters: any whole number fits 64 bits
constexpr size_t kBlock = 64;

// Whether the bytes are valid UTF-8.
bool is_utf8(std::string_view bytes);

class LineScanner {
 public:
  // `portable`: without SIMD instructions; the answers are the same.
  explicit LineScanner(bool portable = false) : portable_(portable) {}

  // Whether the line is an object in valid JSON and valid UTF-8 and none of these: longer than kLongestLine, deeper
  // than kDeepest; with a control character (a tab is one), half a surrogate pair, a number with an exponent or longer
  // than kLongestNumber; with one of our fields twice, or a key up to the second level that is spelled with \u.
  //
  // kBlock bytes must be readable from the line's end on, the first of them a newline.
  bool scan(const char* line, size_t size);

  // The value of a field in the line scanned last, as it stands there; empty when the line has none.
  std::string_view operator[](Field field) const { return fields_[field]; }

 private:
  bool mark();
  bool mark_escapes(size_t block, uint64_t backslashes);
  size_t escape(size_t at);
  bool walk();

  bool portable_;
  const char* line_ = nullptr;
  size_t size_ = 0;
  std::vector<uint64_t> quotes_;  // a bit for each byte: a quote that no backslash escapes
  size_t escaped_until_ = 0;
  bool has_unicode_escapes_ = false;
  std::array<std::string_view, kFields> fields_;
};

}  // namespace webtext::sift
