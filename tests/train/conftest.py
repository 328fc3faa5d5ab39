"""One torch thread: models this small gain nothing from two, and the tests share the machine."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
