"""ResNet18 for parts of images, reduced as in EF-VFL's public code, which is by MTCD's first author.

He, Zhang, Ren, Sun, CVPR 2016. Four stages of two blocks have `width`, 2, 4 and 8 times as many channels: 32, 64, 128,
256, half of ResNet18's. `stem=small`: a 3 x 3 convolution of stride 1 and no max-pool, for pictures of 16 to 64 pixels.
`stem=large`: the original 7 x 7 of stride 2 and the max-pool, for 224 pixels; with width=64 that is ResNet18. The
output is one linear layer to E = 16 numbers.

Departures
1. Group normalisation (8 channels a group) or none; `resnet_bn` has batch normalisation (image.py says why).
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.models import DTYPES, image


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where the shape changes."""

    def __init__(self, inside: int, outside: int, stride: int, kind: image.Kind) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = image.norm(kind, outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = image.norm(kind, outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), image.norm(kind, outside))

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways, (B, outside, H, W)."""
        out = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(out)) + self.shortcut(x))


def build(config: Any, channels: int) -> nn.Sequential:
    """The network (B, channels, H, W) -> (B, E); torch draws its parameters, or none on the meta device."""
    w, kind = config.width, config.norm
    layers: list[nn.Module] = [image.Scaled(DTYPES[config.dtype])]
    if config.stem == "small":
        layers += [nn.Conv2d(channels, w, 3, padding=1, bias=False), image.norm(kind, w), nn.ReLU()]
    else:
        layers += [nn.Conv2d(channels, w, 7, stride=2, padding=3, bias=False), image.norm(kind, w), nn.ReLU()]
        layers += [nn.MaxPool2d(3, stride=2, padding=1)]
    inside = w
    for stage, outside in enumerate((w, 2 * w, 4 * w, 8 * w)):
        layers += [Block(inside, outside, 1 if stage == 0 else 2, kind), Block(outside, outside, 1, kind)]
        inside = outside
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, config.embedding)]
    return nn.Sequential(*layers)
