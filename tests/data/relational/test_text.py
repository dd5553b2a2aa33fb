import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vflbench.data.relational.text import check_encoder, features_of
from vflbench.types import ConfigError, DataError

TITLES = ["Toy Story", "toy soldiers", "Heat", "M", "", "The Story of Us", "$ !"]


def test_hashed_features_depend_on_words_alone_and_on_no_seed_of_the_run():
    encode = features_of(None, 32)
    encode.fit(TITLES)
    features = encode(TITLES)
    assert features.shape == (7, 32) and features.dtype == np.float32
    assert not features[[4, 6]].any()  # no words
    assert features[:4].any(axis=1).all()  # one letter is a word
    again = features_of(None, 32)
    again.fit(TITLES)
    np.testing.assert_array_equal(again(TITLES[::-1]), features[::-1])
    np.testing.assert_array_equal(again(["story, TOY!"])[0], features[0])
    assert "hashed TF-IDF" in encode.note and again([]).shape == (0, 32)


@pytest.mark.slow
def test_hashed_features_keep_likeness_and_weigh_rare_words_more():
    encode = features_of(None, 768)
    encode.fit(["the film was good"] * 50 + ["the film was bad"] * 50 + ["the gruyere"])
    a, b, c, d = encode(["the film was good", "the film was good good", "gruyere", "the gruyere"])
    angle = lambda x, y: x @ y / np.linalg.norm(x) / np.linalg.norm(y)  # noqa: E731
    assert angle(a, b) > 0.8 and abs(angle(a, c)) < 0.2 and angle(c, d) > 0.9
    assert np.linalg.norm(a) == pytest.approx(1, abs=0.25)  # projections keep lengths about


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "tiny-bert"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


@pytest.fixture
def fake_transformers(monkeypatch):
    """A stand-in whose CLS vector is (length of the text, number of texts in its batch, cut length, 0, ...)."""
    calls = []

    def load(kind, **facts):
        def from_pretrained(path, local_files_only, trust_remote_code):
            assert trust_remote_code is False, "None asks the user, and runs what is in the folder"
            calls.append((kind, Path(path).name, local_files_only))
            if (Path(path) / "broken").exists():
                raise OSError("no file named\nmodel.safetensors")
            return SimpleNamespace(**facts)

        return SimpleNamespace(from_pretrained=from_pretrained)

    def pipeline(task, model, tokenizer, tokenize_kwargs):
        assert task == "feature-extraction" and tokenize_kwargs["truncation"]

        def states(texts, batch_size, return_tensors):
            assert return_tensors and len(texts) <= batch_size
            hidden = torch.full((len(texts), 1, 4, 6), 99.0)  # other tokens
            for row, text in zip(hidden, texts, strict=True):
                row[0, 0] = torch.tensor([len(text), len(texts), tokenize_kwargs["max_length"], 0, 0, 0])
            return list(hidden)

        return states

    fake = SimpleNamespace(
        AutoTokenizer=load("tokenizer", model_max_length=10**30),
        AutoModel=load("model", config=SimpleNamespace(hidden_size=6)),
        pipeline=pipeline,
    )
    monkeypatch.setitem(sys.modules, "transformers", fake)
    return calls


def test_an_encoders_features_are_the_first_coordinates_of_the_first_token(folder, fake_transformers):
    encode = features_of(str(folder), 4)
    encode.fit(["nothing to learn"])
    texts = ["a" * length for length in (5, 1, 3, 2)]
    np.testing.assert_array_equal(
        encode(texts, batch=3), [[5, 1, 512, 0], [1, 3, 512, 0], [3, 3, 512, 0], [2, 3, 512, 0]]
    )
    # nothing is downloaded
    assert fake_transformers == [("tokenizer", "tiny-bert", True), ("model", "tiny-bert", True)]
    assert encode([]).shape == (0, 4)
    assert encode.note == "text features: first 4 CLS coordinates of the local encoder tiny-bert"
    before = encode.fingerprint()
    (folder / "weights").write_text("other")
    assert encode.fingerprint() != before


def test_an_encoder_that_is_too_narrow_or_broken_is_named(folder, fake_transformers):
    with pytest.raises(ConfigError, match=r"dataset\.text_encoder=tiny-bert: has 6 coordinates; 32 are needed"):
        features_of(str(folder), 32)
    (folder / "broken").touch()
    with pytest.raises(
        DataError, match=r"tiny-bert: not a model that transformers can read \(no file named model\.safetensors\)"
    ):
        features_of(str(folder), 4)


def test_without_transformers_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"needs the package transformers: pip install 'vflbench\[text\]'"):
        features_of(str(folder), 4)


def test_the_key_is_null_or_a_folder_of_a_model(folder, tmp_path):
    assert check_encoder(None) == [] == check_encoder(str(folder))
    for wrong in ("bert-base-uncased", str(tmp_path), str(folder / "config.json")):
        assert [problem.key for problem in check_encoder(wrong)] == ["dataset.text_encoder"]


def test_a_real_encoder(tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "toy", "story", "heat"]))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {
        "vocab_size": 8,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    model = transformers.BertModel(transformers.BertConfig(**shape)).eval()
    model.save_pretrained(folder)
    texts = ["toy story", "heat", "toy toy toy story", ""]
    features = features_of(str(folder), 32)(texts, batch=2)
    tokens = transformers.AutoTokenizer.from_pretrained(str(folder))
    for text, row in zip(texts, features, strict=True):
        with torch.no_grad():
            expected = model(**tokens(text, return_tensors="pt")).last_hidden_state[0, 0, :32]
        np.testing.assert_allclose(row, expected.numpy(), atol=1e-5)
