"""Networks and losses; they know nothing of parties."""

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}
