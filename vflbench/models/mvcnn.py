"""The part of a multi-view CNN that sees one view, small enough for a laptop.

Su, Maji, Kalogerakis, Learned-Miller, ICCV 2015. Three convolutions of stride 2, each halving the picture, an average
over a 4 x 4 grid and one linear layer.

Departures from MVCNN
1. The paper's network for a view is VGG-M; this one has 23,000 parameters and those of the linear layer. For a larger
   one use `model=resnet` (with `model.stem=large` for 224 pixels).
2. The paper's views share one network, and are pooled by their maximum. Here each view belongs to another party, with a
   network of its own. Representations are aggregated as the algorithm says (image.Fusion): MTCD's token is a sum or a
   concatenation.
3. No batch normalisation: group normalisation or none (image.py says why).
"""

from torch import nn

from vflbench.cards.models.mvcnn import Config
from vflbench.models import DTYPES, image

GRID = 4  # side of the grid that the last convolution's output is averaged to


def build(config: Config, channels: int) -> nn.Sequential:
    """The network (B, channels, H, W) -> (B, E); torch draws its parameters, or none on the meta device."""
    layers: list[nn.Module] = [image.Scaled(DTYPES[config.dtype])]
    inside = channels
    for outside in config.channels:
        layers += [nn.Conv2d(inside, outside, 3, stride=2, padding=1), image.norm(config.norm, outside), nn.ReLU()]
        inside = outside
    layers += [nn.AdaptiveAvgPool2d(GRID), nn.Flatten(), nn.Linear(inside * GRID**2, config.embedding)]
    return nn.Sequential(*layers)
