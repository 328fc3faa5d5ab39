// Bindings of the byte-level BPE core: conversion, GIL release and docstrings only.
#include <nanobind/nanobind.h>

NB_MODULE(_bpe, m) { m.doc() = "The C++ core of webtext.tokenizer."; }
