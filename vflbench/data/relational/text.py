"""Features of texts (titles, reviews): coordinates of a local encoder, or a projection of hashed TF-IDF.

Nothing is ever downloaded.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.seeding import derive
from vflbench.types import ConfigError, DataError, Problem

_BUCKETS = 2**16  # of hashed words
_REACH = 12  # coordinates that a word contributes to, so that a title of two words is not all zeros
_WORD = r"(?u)\b\w+\b"


def check_encoder(folder: str | None) -> list[Problem]:
    """What is wrong with the key `text_encoder`."""
    if folder is None or (Path(folder).expanduser() / "config.json").is_file():
        return []
    allowed = "must be null or a local folder of a Hugging Face model (with config.json)"
    return [Problem("dataset.text_encoder", folder, allowed)]


def features_of(encoder: str | None, width: int) -> Hashed | Encoder:
    """A converter of texts into `width` features: first `fit` it on training texts, then call it on any texts."""
    return Hashed(width) if encoder is None else Encoder(Path(encoder).expanduser(), width)


class Hashed:
    """Hashed TF-IDF, projected to `width` coordinates.

    Words are hashed into 65,536 buckets. The random projection is sparse and has a fixed seed.
    """

    def __init__(self, width: int) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

        self.note = f"text features: {width} coordinates of a random projection of hashed TF-IDF"
        self.width = width
        self.counts = HashingVectorizer(
            n_features=_BUCKETS, alternate_sign=False, norm=None, token_pattern=_WORD, dtype=np.float32
        )
        self.tfidf = TfidfTransformer()
        self.projection = _projection(width)

    def fit(self, texts: Sequence[str]) -> None:
        """Take the inverse document frequencies from `texts`."""
        self.tfidf.fit(self.counts.transform(texts))

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Features of the texts, (texts, width) float32; those of a text without words are 0."""
        if not len(texts):
            return np.zeros((0, self.width), np.float32)
        features = self.projection.transform(self.tfidf.transform(self.counts.transform(texts)))
        return np.asarray(features, dtype=np.float32)

    def fingerprint(self) -> str:
        """A text that changes with the features."""
        return self.note


@functools.cache
def _projection(width: int) -> Any:
    from sklearn.random_projection import SparseRandomProjection

    seed = derive(0, f"text/{width}") % 2**32
    projection = SparseRandomProjection(width, density=min(1 / 3, _REACH / width), dense_output=True, random_state=seed)
    return projection.fit(np.broadcast_to(np.float32(0), (1, _BUCKETS)))


class Encoder:
    """The first `width` coordinates of the last hidden state of the first token (CLS), by a model in a local folder.

    Raises
    ------
    ConfigError : transformers is not installed, or the model has fewer coordinates.
    DataError : the folder holds no encoder.
    """

    LENGTH = 512  # tokens; longer texts are cut

    def __init__(self, folder: Path, width: int) -> None:
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError:
            needs = "needs the package transformers: pip install 'vflbench[text]', or use dataset.text_encoder=null"
            raise ConfigError([Problem("dataset.text_encoder", folder.name, needs)]) from None
        self.folder, self.width = folder, width
        self.note = f"text features: first {width} CLS coordinates of the local encoder {folder.name}"
        try:
            # else transformers would ask whether to run Python code of the folder
            how = {"local_files_only": True, "trust_remote_code": False}
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **how)
            model = transformers.AutoModel.from_pretrained(str(folder), **how)
        except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
            reason = f"not a model that transformers can read ({' '.join(str(error).split())[:300]})"
            raise DataError(f"dataset.text_encoder {folder.name}: {reason}.") from None
        size = int(model.config.hidden_size)
        if size < width:
            allowed = f"has {size} coordinates; {width} are needed"
            raise ConfigError([Problem("dataset.text_encoder", folder.name, allowed)])
        cut = {"truncation": True, "max_length": min(self.LENGTH, int(tokenizer.model_max_length))}
        # transformers uses a GPU if there is one; this package does not import torch.
        self.states: Any = transformers.pipeline(
            "feature-extraction", model=model, tokenizer=tokenizer, tokenize_kwargs=cut
        )

    def fit(self, texts: Sequence[str]) -> None:
        """Nothing to learn: the encoder stays as it is."""

    def __call__(self, texts: Sequence[str], batch: int = 64) -> np.ndarray:
        """Features of the texts, (texts, width) float32."""
        features = np.zeros((len(texts), self.width), np.float32)
        # Texts of similar length share a batch, so that padding is short.
        order = np.argsort([len(text) for text in texts], kind="stable")
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            hidden = self.states([texts[row] for row in rows], batch_size=batch, return_tensors=True)
            features[rows] = [tokens[0, 0, : self.width].float().numpy() for tokens in hidden]
        return features

    def fingerprint(self) -> str:
        """A text that changes with any file of the model."""
        sums = []
        for path in sorted(path for path in self.folder.iterdir() if path.is_file()):
            with path.open("rb") as file:
                sums.append((path.name, hashlib.file_digest(file, "sha256").hexdigest()))
        return f"{self.note} {sums}"
