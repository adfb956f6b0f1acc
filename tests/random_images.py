"""Random models of images: convolutions of all kinds, and what may stand around them."""

from __future__ import annotations

from random_models import Choose, Model, model_text

KINDS = (
    *("conv", "conv", "up", "pool", "pool", "adaptive", "factor", "factor", "number", "act"),
    *("sums", "sums", "norm", "two"),
)
ACTS = ("torch.relu({v})", "F.gelu({v})", "torch.sigmoid({v})", "{v}.softmax(1)", "{v}.square()")
NUMBERS = ("{v} * 2.5", "{v} - 0.5", "{v} / 3", "1 - {v}")
SUMS = (
    *("{v}.sum({axes}, keepdim={keep})", "{v}.mean({axes}, keepdim={keep})"),
    *("{v}.mean({axes}, keepdim={keep})", "{v}.amax({axes}, keepdim={keep})"),
)


class Images(Model):
    """A model under construction whose input is a batch of images with one to three places."""

    rank = 5

    def begin(self) -> None:
        self.places = self.choose((2, 1, 3))
        sizes = ", ".join(str(self.choose((9, 6, 12, 7))) for _ in range(self.places))
        self.take("x", f"torch.randn(n, {self.choose((4, 2, 6))}, {sizes})")

    def step(self) -> None:
        v = self.choose([*self.values][::-1][:2])
        x = self.values[v]
        getattr(self, "_" + self.choose(KINDS))(v, x.shape[1] if x.dim() > 1 else 1, x.dim())

    def _each(self, options: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each place, alike half of the time."""
        if self.choose((True, False)):
            return (self.choose(options),) * self.places
        return tuple(self.choose(options) for _ in range(self.places))

    def _made(self, text: str, v: str) -> None:
        name = f"m{len(self.init)}"
        self._own(text, f"self.{name}({v})", name)

    def _conv(self, v: str, c: int, rank: int, kind: str = "Conv", extra: str = "") -> None:
        kernel, stride = self._each((3, 2, 1, 4)), self._each((1, 2, 3))
        padding, dilation = self._each((0, 1, 2)), self._each((1, 1, 2))
        self._made(
            f"nn.{kind}{self.places}d({c}, {self.choose((4, 2, 8))}, {kernel}, stride={stride},"
            f" padding={padding}, dilation={dilation}, groups={self.choose((1, 1, 2))},"
            f" bias={self.choose((True, False))}{extra})",
            v,
        )

    def _up(self, v: str, c: int, rank: int) -> None:
        extra = self._each((0, 0, 1))
        self._conv(v, c, rank, "ConvTranspose", f", output_padding={extra}")

    def _pool(self, v: str, c: int, rank: int) -> None:
        size, stride = self._each((2, 3, 1)), self._each((2, 1, 3))
        padding = self.choose((0, 0, 0, 1))
        self._made(f"nn.AvgPool{self.places}d({size}, {stride}, padding={padding})", v)

    def _adaptive(self, v: str, c: int, rank: int) -> None:
        self._made(f"nn.AdaptiveAvgPool{self.places}d({self._each((1, 2, 3))})", v)

    def _norm(self, v: str, c: int, rank: int) -> None:
        self._made(self.choose((f"nn.BatchNorm{self.places}d({c})", f"nn.GroupNorm(2, {c})")), v)

    def _factor(self, v: str, c: int, rank: int) -> None:
        name, ones = f"m{len(self.init)}", ", 1" * (rank - 2)
        made = f"nn.Parameter(torch.rand({c}{ones}) + 0.5)"
        self._own(made, f"{v} {self.choose(('*', '+', '/'))} self.{name}", name)

    def _number(self, v: str, c: int, rank: int) -> None:
        self._keep(self.choose(NUMBERS).format(v=v))

    def _act(self, v: str, c: int, rank: int) -> None:
        self._keep(self.choose(ACTS).format(v=v))

    def _sums(self, v: str, c: int, rank: int) -> None:
        axes = [a for a in range(1, rank) if self.choose((True, False))]
        keep = self.choose((True, False))
        if axes:
            self._keep(self.choose(SUMS).format(v=v, axes=tuple(axes), keep=keep))

    def _two(self, v: str, c: int, rank: int) -> None:
        self._keep(f"{self.choose([*self.values])} {self.choose(('+', '*'))} {v}")


def image_text(choose: Choose, longest: int = 8) -> str:
    """The text of a random model of images; see `random_models.model_text`."""
    return model_text(choose, longest, Images)
