"""`resnet` with batch normalisation, as EF-VFL's public code has it.

A client normalises with the statistics of its batch in training, and with their running mean in evaluation (momentum
0.1). These statistics are the client's own: no token carries them, and the copies of all tokens share them.
"""

from vflbench.models import resnet

build = resnet.build
