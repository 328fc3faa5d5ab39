"""The tasks of the GPT-2 paper's sections 3.4 to 3.8 as task files of lm-evaluation-harness, one YAML each."""
