"""What both trainers share: the model's shape, the tokens per step, and how many steps each size of the proof takes."""

VOCAB_SIZE = 8192
N_LAYER, N_HEAD, N_EMBD, CONTEXT = 4, 4, 128, 256
BATCH_SIZE = 16  # windows per step: 4,096 tokens
STEPS = {"small": 20, "medium": 400, "large": 2000}  # for the corpora's mean of bytes per token
SEEDS = {"small": (0,), "medium": (0, 1, 2), "large": (0, 1, 2)}
N_CHECKPOINTS = 5
END_OF_TEXT = "<|endoftext|>"
CORPORA = {  # Parquet files with url and text
    "ours": "ours/build/corpus",
    "theirs": "theirs/corpus",  # with the trafilatura that datatrove pins
    "newer": "newer/corpus",  # theirs with the trafilatura of today
}
MIXED = {"mixed": "mixed/corpus"}  # ours, with as large a share of articles, forums and shops as theirs has
OWN = ("ours", "theirs")  # corpora that both trainers are compared on, at equal tokens and at equal CPU time, too
