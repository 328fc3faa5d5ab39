#pragma once

#include <nanobind/nanobind.h>

namespace webtext {

// Adds `encode_with_dropout` to a module that has the class Bpe.
void bind_dropout(nanobind::module_& module);

}  // namespace webtext
