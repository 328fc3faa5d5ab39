// Bindings of the MinHash core: conversion, GIL release and docstrings only.
#include <nanobind/nanobind.h>

NB_MODULE(_minhash, m) { m.doc() = "The C++ core of webtext.clean.dedup."; }
