"""Models of libraries, with random weights, and calls of them as their users make them.

Two sizes of each: "small" takes milliseconds on a CPU, "base" is what people run on a GPU. What
they are built of stands in one row each; `made` builds one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Call = dict[str, Any]
Sizes = dict[str, int]


@dataclass(frozen=True)
class Model:
    """One model. build: of its sizes. call: arguments of forward, by keyword, of the same sizes;
    `labels` among them for training alone. small, base: its sizes. generates: has generate().
    draws: drops out in training, so that no two sides have the same gradients.
    """

    build: Callable[[Sizes], nn.Module]
    call: Callable[[Sizes], Call]
    small: Sizes
    base: Sizes
    generates: bool = False
    draws: bool = False


# --- what they are called with --------------------------------------------------------------------
def ids(s: Sizes) -> Call:
    """Rows of ids, the first padded on the left."""
    made = torch.randint(4, s["vocab_size"], (s["rows"], s["tokens"]))
    mask = torch.ones_like(made)
    mask[0, : s["tokens"] // 8] = 0
    return {"input_ids": made, "attention_mask": mask}


def text(s: Sizes) -> Call:
    given = ids(s)
    return given | {"labels": given["input_ids"].clone()}


def classed(s: Sizes) -> Call:
    return ids(s) | {"labels": torch.arange(s["rows"]) % 2}


def image(s: Sizes) -> torch.Tensor:
    return torch.randn(s["rows"], 3, s["image"], s["image"])


def pixels(s: Sizes) -> Call:
    return {"pixel_values": image(s), "labels": torch.arange(s["rows"]) % 2}


def pairs(s: Sizes) -> Call:
    return ids(s) | {"pixel_values": image(s), "return_loss": True}


def speech(s: Sizes) -> Call:
    features = torch.randn(s["rows"], 80, 2 * s["frames"])
    return {"input_features": features, "labels": ids(s)["input_ids"]}


def images(name: str) -> Callable[[Sizes], Call]:
    return lambda s: {name: image(s)}


# --- how they are built ---------------------------------------------------------------------------
INPUTS = {"rows", "tokens", "image", "frames"}


def transformer(
    name: str, config: str, drops: bool = False, **given: Any
) -> Callable[[Sizes], nn.Module]:
    """A model of transformers; without dropout, but where `drops`."""

    def build(s: Sizes) -> nn.Module:
        library = importlib.import_module("transformers")
        sizes = {k: v for k, v in s.items() if k not in INPUTS}
        made = getattr(library, config)(**given, **sizes)
        if not drops:
            for key, value in vars(made).items():
                if "drop" in key and isinstance(value, float):
                    setattr(made, key, 0.0)
        module: nn.Module = getattr(library, name)(made)
        return module

    return build


def clip(s: Sizes) -> nn.Module:
    library = importlib.import_module("transformers")
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    layers = {"num_hidden_layers": s["layers"], "num_attention_heads": s["heads"]}
    widths = {"hidden_size": s["width"], "intermediate_size": 4 * s["width"]}
    words = {"vocab_size": s["vocab_size"], "max_position_embeddings": max(77, s["tokens"])}
    seen = {"image_size": s["image"], "patch_size": s["patch"]}
    config = library.CLIPConfig(
        text_config=layers | widths | words | ends,
        vision_config=layers | widths | seen,
        projection_dim=s["width"],
    )
    module: nn.Module = library.CLIPModel(config)
    return module


def timm(name: str, **small: Any) -> Callable[[Sizes], nn.Module]:
    """small: what the model is made of at the small size."""

    def build(s: Sizes) -> nn.Module:
        given = dict(small) if s.get("small") else {}
        if any(kind in name for kind in ("vit", "swin", "mixer")):
            given["img_size"] = s["image"]
        library = importlib.import_module("timm")
        module: nn.Module = library.create_model(name, num_classes=s["classes"], **given)
        return module

    return build


def vision(name: str, **given: Any) -> Callable[[Sizes], nn.Module]:
    def build(s: Sizes) -> nn.Module:
        library = importlib.import_module("torchvision.models")
        module: nn.Module = getattr(library, name)(num_classes=s["classes"], **given)
        return module

    return build


def densenet(s: Sizes) -> nn.Module:
    library = importlib.import_module("torchvision.models")
    blocks = (2, 2, 2) if s.get("small") else (6, 12, 24, 16)
    growth, first = (16, 32) if s.get("small") else (32, 64)
    module: nn.Module = library.DenseNet(growth, blocks, first, num_classes=s["classes"])
    return module


# --- models of no library -------------------------------------------------------------------------
class TwoTowers(nn.Module):
    """A recommender: users and items by embeddings and layers, scored against each other."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(words, width) for _ in range(2))
        self.towers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, 4 * width), nn.ReLU(), nn.LayerNorm(4 * width),
                nn.Linear(4 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width),
            )
            for _ in range(2)
        )  # fmt: skip

    def forward(
        self, users: torch.Tensor, items: torch.Tensor, labels: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        sides = (users, items)
        u, v = (
            F.normalize(tower(table(side)), dim=-1)
            for tower, table, side in zip(self.towers, self.tables, sides, strict=True)
        )
        scores = u @ v.T * 20
        return (scores,) if labels is None else (F.cross_entropy(scores, labels), scores)


def visits(s: Sizes) -> Call:
    users, items = (torch.randint(0, s["words"], (s["rows"], 8)) for _ in range(2))
    return {"users": users, "items": items, "labels": torch.arange(s["rows"])}


class Tagger(nn.Module):
    """An LSTM between an embedding and a head."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.cells = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, words)

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        scores = self.head(self.cells(self.table(input_ids))[0])
        found = {"scores": scores}
        if labels is not None:
            found["loss"] = F.cross_entropy(scores.flatten(0, 1), labels.flatten())
        return found


def tags(s: Sizes) -> Call:
    made = text(dict(s, vocab_size=s["words"]))
    return {name: made[name] for name in ("input_ids", "labels")}


class Encoder(nn.Module):
    """PyTorch's own encoder, with a mask of padding."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x, src_key_padding_mask=padding)
        return found


def padded(s: Sizes) -> Call:
    padding = torch.zeros(s["rows"], s["tokens"], dtype=torch.bool)
    padding[0, -s["tokens"] // 4 :] = True
    return {"x": torch.randn(s["rows"], s["tokens"], s["width"]), "padding": padding}


class UNet(nn.Module):
    """Down and up again, with what was seen on the way beside."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        self.first = self._twice(3, width)
        self.down = nn.ModuleList(self._twice(w, 2 * w) for w in widths[:-1])
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1])
        )
        self.join = nn.ModuleList(self._twice(2 * w, w) for w in reversed(widths[:-1]))
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _twice(a: int, b: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for i in (a, b):
            layers += [nn.Conv2d(i, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        seen = []
        for layer in self.down:
            seen.append(x)
            x = layer(F.max_pool2d(x, 2))
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), seen.pop()], 1))
        found: torch.Tensor = self.last(x)
        return found


# --- the rows -------------------------------------------------------------------------------------
LITTLE: Sizes = {"rows": 4, "tokens": 64, "vocab_size": 512}
LARGE: Sizes = {"rows": 8, "tokens": 512}
DECODER: Sizes = {
    "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
BILLION: Sizes = {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
}  # fmt: skip
READER: Sizes = {
    "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SEEN: Sizes = {"rows": 4, "image": 64, "classes": 10, "small": 1}
SIGHTS: Sizes = {"rows": 64, "image": 224, "classes": 1000}
GPT2: Sizes = {"n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 256}
T5: Sizes = {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 2, "num_heads": 4}
WHISPER: Sizes = {
    "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512,
    "vocab_size": 512, "frames": 64, "max_source_positions": 64,
}  # fmt: skip

gpt2 = transformer("GPT2LMHeadModel", "GPT2Config", **ENDS)
gpt2_drops = transformer("GPT2LMHeadModel", "GPT2Config", drops=True, **ENDS)
bert = transformer("BertForSequenceClassification", "BertConfig")
bert_drops = transformer("BertForSequenceClassification", "BertConfig", drops=True)
distilbert = transformer("DistilBertForSequenceClassification", "DistilBertConfig")
t5 = transformer("T5ForConditionalGeneration", "T5Config", decoder_start_token_id=0)
whisper = transformer(
    "WhisperForConditionalGeneration", "WhisperConfig", decoder_start_token_id=1, **ENDS
)
DISTIL: Sizes = {"dim": 128, "hidden_dim": 512, "n_layers": 2, "n_heads": 4}

MODELS: Mapping[str, Model] = {
    "gpt2": Model(gpt2, text, LITTLE | GPT2, LARGE | {"vocab_size": 50257}, True),
    "gpt2_dropout": Model(
        gpt2_drops, text, LITTLE | GPT2, LARGE | {"vocab_size": 50257}, draws=True
    ),
    **{
        name: Model(
            transformer(f"{kind}ForCausalLM", f"{kind}Config"),
            text,
            LITTLE | DECODER,
            LARGE | BILLION,
            name == "llama",
        )
        for name, kind in (("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2"))
    },
    "bert": Model(bert, classed, LITTLE | READER, LARGE | {"vocab_size": 30522}),
    "bert_dropout": Model(
        bert_drops, classed, LITTLE | READER, LARGE | {"vocab_size": 30522}, draws=True
    ),
    "electra": Model(
        transformer("ElectraForSequenceClassification", "ElectraConfig", embedding_size=64),
        classed, LITTLE | READER, LARGE | {"vocab_size": 30522},
    ),
    "distilbert": Model(distilbert, classed, LITTLE | DISTIL, LARGE | {"vocab_size": 30522}),
    "t5": Model(t5, text, LITTLE | T5, LARGE | {"vocab_size": 32128}),
    "vit": Model(
        transformer("ViTForImageClassification", "ViTConfig"),
        pixels,
        READER | {"rows": 4, "image": 64, "image_size": 64, "patch_size": 8},
        {"rows": 64, "image": 224},
    ),
    "clip": Model(
        clip,
        pairs,
        LITTLE | {"width": 128, "layers": 2, "heads": 4, "image": 64, "patch": 8},
        {"width": 768, "layers": 12, "heads": 12, "image": 224, "patch": 16, "vocab_size": 49408,
         "rows": 64, "tokens": 64},
    ),
    "whisper": Model(
        whisper,
        speech,
        LITTLE | WHISPER,
        {"rows": 8, "tokens": 128, "vocab_size": 51865, "frames": 1500},
    ),
    "timm_resnet": Model(timm("resnet18"), images("x"), SEEN, SIGHTS),
    "timm_convnext": Model(
        timm("convnext_tiny", depths=(1, 1, 2, 1), dims=(24, 48, 96, 192)),
        images("x"), SEEN, SIGHTS,
    ),
    "timm_vit": Model(
        timm("vit_tiny_patch16_224", depth=2, patch_size=8), images("x"), SEEN, SIGHTS
    ),
    "timm_swin": Model(
        timm("swin_tiny_patch4_window7_224", depths=(2, 2), num_heads=(2, 4), embed_dim=48,
             window_size=4, drop_path_rate=0.0),
        images("x"), SEEN, SIGHTS,
    ),
    "timm_efficientnet": Model(timm("efficientnet_b0"), images("x"), SEEN, SIGHTS),
    "timm_mixer": Model(
        timm("mixer_s32_224"), images("x"), {**SEEN, "image": 128}, SIGHTS
    ),
    "resnet": Model(vision("resnet18"), images("x"), SEEN, SIGHTS),
    "densenet": Model(densenet, images("x"), SEEN, SIGHTS),
    "mobilenet": Model(vision("mobilenet_v2", dropout=0.0), images("x"), SEEN, SIGHTS),
    "two_towers": Model(
        lambda s: TwoTowers(s["words"], s["width"]),
        visits,
        {"rows": 256, "words": 4096, "width": 64},
        {"rows": 8192, "words": 1 << 20, "width": 256},
    ),
    "lstm": Model(
        lambda s: Tagger(s["words"], s["width"]),
        tags,
        {"rows": 8, "tokens": 32, "words": 512, "width": 64},
        {"rows": 64, "tokens": 128, "words": 16384, "width": 512},
    ),
    "encoder": Model(
        lambda s: Encoder(s["width"], s["layers"], s["heads"]),
        padded,
        {"rows": 4, "tokens": 64, "width": 128, "layers": 2, "heads": 4},
        {"rows": 8, "tokens": 512, "width": 768, "layers": 6, "heads": 12},
    ),
    "unet": Model(
        lambda s: UNet(s["width"], s["depth"]),
        images("x"),
        {"rows": 2, "image": 64, "width": 16, "depth": 2},
        {"rows": 16, "image": 256, "width": 64, "depth": 4},
    ),
}  # fmt: skip


def made(name: str, sizes: Sizes) -> tuple[nn.Module, Call]:
    """A model and its call, on the CPU, the same at each time."""
    torch.manual_seed(0)
    row = MODELS[name]
    return row.build(sizes), row.call(sizes)
