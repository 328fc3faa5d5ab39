// Adds the functions for positions in a text to the module _bpe.
#pragma once

#include <nanobind/nanobind.h>

namespace webtext {

void bind_offsets(nanobind::module_& module);

}  // namespace webtext
