"""Models of libraries as their users call them: ids and masks by keyword, labels, caches, and
generate(). Small configurations with random weights; each is skipped where its library is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from refold.backend import refold

from .steps import all_ours, check, squares

Made = tuple[nn.Module, dict[str, Any]]
WORDS = 128


def tokens(labels: bool = True, rows: int = 2) -> dict[str, Any]:
    ids = torch.randint(0, WORDS, (rows, 16))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    return given | ({"labels": ids} if labels else {})


def gpt2() -> Made:
    hf = pytest.importorskip("transformers")
    off = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": WORDS, "n_positions": 64}
    return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **off, **ends)), tokens()


def llama() -> Made:
    hf = pytest.importorskip("transformers")
    config = hf.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=WORDS,
        max_position_embeddings=64,
    )
    return hf.LlamaForCausalLM(config), tokens()


def bert() -> Made:
    hf = pytest.importorskip("transformers")
    config = hf.BertConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=WORDS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    given = tokens(labels=False) | {"labels": torch.tensor([0, 1])}
    return hf.BertForSequenceClassification(config), given


def vit() -> Made:
    hf = pytest.importorskip("transformers")
    config = hf.ViTConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    images = torch.randn(2, 3, 32, 32)
    return hf.ViTForImageClassification(config), {
        "pixel_values": images,
        "labels": torch.tensor([0, 1]),
    }


def resnet() -> Made:
    timm = pytest.importorskip("timm")
    return timm.create_model("resnet18", num_classes=10), {"x": torch.randn(2, 3, 64, 64)}


def densenet() -> Made:
    vision = pytest.importorskip("torchvision")
    model = vision.models.DenseNet(8, (2, 2), 16, num_classes=10)
    return model, {"x": torch.randn(2, 3, 64, 64)}


def of(result: Any) -> torch.Tensor:
    """The loss that a model gives, or one of its result."""
    loss = getattr(result, "loss", None)
    return squares(result) if loss is None else loss


@pytest.mark.parametrize(
    "make", [gpt2, llama, bert, vit, resnet, densenet], ids=lambda make: make.__name__
)
def test_steps_of_a_model(make: Callable[[], Made]) -> None:
    """Two steps of training with every graph ours that can be read."""
    model, given = make()
    found = check(model, [given, given], loss=of, kept=None)
    assert all("failed" not in g.reason for g in found), [g.reason for g in found]
    assert {"forward", "backward"} <= {g.kind for g in found if g.by == "refold"}


@pytest.mark.parametrize("make", [gpt2, llama], ids=lambda make: make.__name__)
def test_generation(make: Callable[[], Made]) -> None:
    """A few tokens, whose caches grow by one a call: the same tokens, results of the very class."""
    model, _ = make()
    model.eval()
    given = tokens(labels=False)
    settings = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    wanted = model.generate(**given, **settings)
    kind = type(model(**given))
    with all_ours():
        model.compile(backend=lambda m, i: refold(m, i, options={"measure": False}))
        assert torch.equal(model.generate(**given, **settings), wanted)
        assert type(model(**given)) is kind
