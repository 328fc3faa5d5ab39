// Bindings of language identification: conversion, GIL release and docstrings only.
#include <nanobind/stl/pair.h>

#include <mutex>
#include <utility>

#include "arrays.hpp"
#include "language/language.hpp"

namespace nb = nanobind;
namespace lg = webtext::language;
using namespace nb::literals;
using namespace webtext::bind;

namespace {

// Keeps the arrays, whose memory is the model.
class Model {
 public:
  Model(In<uint32_t> moves, In<uint32_t> rows, In<int32_t> outputs, InRows<float> weights, In<double> priors,
        In<int32_t> languages)
      : moves_(std::move(moves)),
        rows_(std::move(rows)),
        outputs_(std::move(outputs)),
        weights_(std::move(weights)),
        priors_(std::move(priors)),
        languages_(std::move(languages)),
        detector_(tables()) {}

  std::pair<int32_t, double> detect(nb::bytes text) {
    const std::string_view view(text.c_str(), text.size());
    lg::Answer answer;
    {
      nb::gil_scoped_release release;
      const std::lock_guard only_one(mutex_);
      answer = detector_.detect(view);
    }
    return {answer.language, answer.probability};
  }

 private:
  lg::Tables tables() const {
    const lg::Tables tables{span(moves_), span(rows_), span(outputs_), span(weights_), span(priors_), span(languages_)};
    if (weights_.shape(1) != priors_.shape(0) || !lg::is_sound(tables)) {
      throw std::invalid_argument("the tables of the language model do not fit together");
    }
    return tables;
  }

  In<uint32_t> moves_, rows_;
  In<int32_t> outputs_;
  InRows<float> weights_;
  In<double> priors_;
  In<int32_t> languages_;
  std::mutex mutex_;
  lg::Detector detector_;
};

}  // namespace

NB_MODULE(_language, m) {
  m.doc() = "The C++ core of webtext.clean.language; its readable twin is tests/reference/language.py.";
  nb::class_<Model>(m, "Model", "A naive Bayes model over byte n-grams, which an automaton finds.")
      .def(nb::init<In<uint32_t>, In<uint32_t>, In<int32_t>, InRows<float>, In<double>, In<int32_t>>(), "moves"_a,
           "rows"_a, "outputs"_a, "weights"_a, "priors"_a, "languages"_a,
           "moves[rows[state] + byte] is the next state, outputs[state] the feature found there or -1, weights\n"
           "float32 [feature, class], languages[class] a number. Raises ValueError if the tables don't fit together.")
      .def("detect", &Model::detect, "text"_a,
           "Return (number of the language, its probability) of UTF-8 text; (-1, 0) if it has no known feature.");
}
