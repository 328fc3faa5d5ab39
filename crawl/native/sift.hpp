// Finds the posts of a dump that count, whatever they link to; the lines that drop are only counted, by reason. A line
// with anything unusual is left to Python's reader, so that rare cases are defined once and the common one stays quick.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "json_line.hpp"

namespace webtext::sift {

// Why a post does not count, in the order of the checks (crawl/links/karma.py).
enum Reason : uint8_t {
  kNullScore,
  kNullUrl,
  kNullCreated,
  kTooLate,
  kMarkedOver18,
  kSelfPost,
  kBlockedSubreddit,
  kTooLittleKarma,
  kScoreTooFresh,
  kReasons
};
inline constexpr std::array<const char*, kReasons> kReasonNames = {
    "null_score", "null_url",          "null_created",     "too_late",       "over_18",
    "self_post",  "blocked_subreddit", "too_little_karma", "score_too_fresh"};

// The checks of a rule that judge a post without its URL.
struct Rule {
  std::optional<int64_t> end, min_karma, min_score_age;
  bool keep_over_18 = false, keep_self_posts = false;
  std::unordered_set<std::string> blocked_subreddits;  // lower case
};

struct Sifted {
  std::array<int64_t, kReasons> dropped{};
  std::string posts;                              // a JSON line per post that counts: only our fields, unchanged
  std::vector<std::pair<size_t, size_t>> others;  // begin and end of each line that must be parsed elsewhere
};

// Sifts complete lines; empty lines are skipped.
Sifted sift(std::string_view lines, const Rule& rule, bool portable);

}  // namespace webtext::sift
