"""The verbs' inputs and outputs: texts, files of ids, and training with a manifest."""
