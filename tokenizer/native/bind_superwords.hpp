#pragma once

#include <nanobind/nanobind.h>

namespace webtext {

// Adds `SuperwordCounts` to a module that has the class PieceCounts.
void bind_superwords(nanobind::module_& module);

}  // namespace webtext
