"""The paper that runs are drawn on: shapes, signs, and texts that keep out of each other's way."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

COLOURS = {"A": "a", "B": "b", "C": "c", "D": "d", "E": "e"}
STYLE = """
.paper{fill:#fff}.ink{fill:#1c2733}.faint{fill:#5d6975}.light{fill:#fff}.strong{font-weight:600}
.good{fill:#1a7f4b}.bad{fill:#c2252e}.grid{stroke:#e4e8ec}.lane{stroke:#c3cbd3}
.a{fill:#2f6fd0}.b{fill:#23855a}.c{fill:#a85a12}.d{fill:#7a4bb5}.e{fill:#5d6975}
.a-line{stroke:#2f6fd0}.b-line{stroke:#23855a}.c-line{stroke:#a85a12}.d-line{stroke:#7a4bb5}.e-line{stroke:#5d6975}
.ask{fill:none;stroke-dasharray:4 3}.belief{fill:none;stroke-width:1.6;stroke-dasharray:2 3}
.pause{fill:url(#hatch);stroke:#8894a0}.gone{fill:#8894a0;opacity:.28}.down{fill:#8894a0;opacity:.55}
.quarantine{fill:#f3c64b;opacity:.75}.cut{stroke:#c2252e;stroke-width:2;stroke-dasharray:3 3}
.clash{fill:#e5484d;opacity:.22}.told{stroke:#1c2733;stroke-width:1.6}.hatch{stroke:#8894a0;opacity:.75}
.good-strip{fill:#1a7f4b;opacity:.13}.bad-strip{fill:#c2252e;opacity:.12}.way{fill:none;stroke-width:1.8}
.renewed{fill:none;stroke:#fff;stroke-width:1.6;opacity:.85}
@media(prefers-color-scheme:dark){.paper{fill:#12171e}.ink{fill:#e6ebf0}.faint{fill:#9ba7b3}.good{fill:#4cc38a}
.bad{fill:#ff6e72}.grid{stroke:#232b35}.lane{stroke:#3c4752}.told{stroke:#e6ebf0}.quarantine{fill:#b48a17}
.clash{opacity:.34}.good-strip,.bad-strip{opacity:.22}}
""".strip()
HATCH = (
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hatch" d="M0 0V7" stroke-width="2.6"/></pattern>'
)


class Box(NamedTuple):
    """Where a text is."""

    left: float
    top: float
    right: float
    bottom: float
    text: str

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


class Paper:
    """A growing picture. Shapes are drawn in the order they are put."""

    def __init__(self, width: float) -> None:
        self.width = width
        self.texts: list[Box] = []
        self._reserved: list[Box] = []
        self._shapes: list[str] = []
        self._below: list[str] = []

    @staticmethod
    def width_of(text: str, size: float) -> float:
        """About as wide as in a wide font: rather too much than too little."""
        return sum(0.36 if letter in "il.,:;'|! " else 0.92 if letter in "mwMW" else 0.61 for letter in text) * size

    # Texts.

    def _box(self, text: str, x: float, y: float, size: float, anchor: str) -> Box:
        width = self.width_of(text, size)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        return Box(left, y - 0.8 * size, left + width, y + 0.25 * size, text)

    def reserve(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """No text is put where this line is going to be."""
        parts = max(1, int(abs(x2 - x1) / 12))
        for part in range(parts):
            xs = sorted((x1 + (x2 - x1) * part / parts, x1 + (x2 - x1) * (part + 1) / parts))
            ys = sorted((y1 + (y2 - y1) * part / parts, y1 + (y2 - y1) * (part + 1) / parts))
            self._reserved.append(Box(xs[0] - 3, ys[0], xs[1] + 3, ys[1], ""))

    def free(self, left: float, top: float, right: float, bottom: float) -> bool:
        """Is no text there?"""
        box = Box(left, top, right, bottom, "")
        return not any(box.meets(other) for other in self.texts)

    def near(
        self, text: str, x: float, rows: list[float], size: float, css: str, anchor: str, *, backed: bool = False
    ) -> bool:
        """Writes it on the first of these rows where there is room; False: nowhere. `backed`: on a ground."""
        if not text:
            return True
        for y in rows:
            box = self._box(text, x, y, size, anchor)
            if anchor == "middle":  # it may stand a little aside
                shift = max(0.0, 4 - box.left) - max(0.0, box.right - self.width + 4)
                box = box._replace(left=box.left + shift, right=box.right + shift)
            fits = box.left >= 2 and box.right <= self.width - 2
            if fits and not any(box.meets(other) for other in self.texts + self._reserved):
                if backed:
                    self.rect(box.left - 2, box.top, box.right - box.left + 4, box.bottom - box.top, "paper")
                at = {"start": box.left, "middle": (box.left + box.right) / 2, "end": box.right}[anchor]
                self._write(text, at, y, size, css, anchor, box)
                return True
        return False

    def text(self, text: str, x: float, y: float, size: float, css: str, anchor: str = "start") -> None:
        """Writes it here; whoever comes later keeps out of its way."""
        self._write(text, x, y, size, css, anchor, self._box(text, x, y, size, anchor))

    def _write(self, text: str, x: float, y: float, size: float, css: str, anchor: str, box: Box) -> None:
        self.texts.append(box)
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" class="{css}" text-anchor="{anchor}">'
            f"{escape(text, quote=False)}</text>"
        )

    def block(self, text: str, x: float, y: float, size: float, css: str, width: float) -> float:
        """Lines of text, broken where they would be too long; returns where the last one ends."""
        lines, line = [], ""
        for word in text.split():
            if line and self.width_of(f"{line} {word}", size) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        for number, one in enumerate([*lines, line]):
            self.text(one, x, y + number * size * 1.35, size, css)
        return y + len(lines) * size * 1.35 + 0.6 * size

    # Shapes.

    def rect(self, x: float, y: float, width: float, height: float, css: str) -> None:
        self._shapes.append(_rect(x, y, width, height, css))

    def under(self, css: str, x: float, y: float, width: float, height: float) -> None:
        """A ground for what is drawn already."""
        self._below.append(_rect(x, y, width, height, css, 6))

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        self._shapes.append(f'<path class="{css}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, colour: str, *, dashed: bool) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._shapes.append(
            f'<path class="way {colour}-line" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"{dash}/>'
            f'<path class="{colour}" d="M{x2 - 4:.1f} {y2 - 3:.1f}h8l-4 7z"/>'
        )

    def sign(self, kind: str, x: float, y: float, css: str) -> None:
        """A mark: a ring for a read, a dot for a write, a shield for a refusal, a cross for what is lost."""
        if kind == "read":
            shape = f'<circle class="paper {css}-line" stroke-width="2" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
        elif kind == "write":
            shape = f'<circle class="{css}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        elif kind == "renewed":
            shape = f'<path class="renewed" d="M{x - 3:.1f} {y - 5:.1f}l4 5-4 5"/>'
        elif kind == "refused":
            shape = f'<path class="good" d="M{x - 6:.1f} {y - 6:.1f}h12v6q0 6-6 8q-6-2-6-8z"/>'
            shape += (
                f'<path d="M{x - 3:.1f} {y - 1:.1f}l2.4 3 4-5.5" fill="none" stroke="#fff" stroke-width="1.8"/>'
            )
        elif kind == "lost":
            shape = f'<circle class="bad" cx="{x:.1f}" cy="{y:.1f}" r="7"/>'
            shape += f'<path d="M{x - 3:.1f} {y - 3:.1f}l6 6m0-6l-6 6" stroke="#fff" stroke-width="2"/>'
        else:
            shape = f'<path class="bad" d="M{x:.1f} {y - 7:.1f}l6 12h-12z"/>'
        self._shapes.append(shape)

    def svg(self, height: float, title: str, description: str) -> str:
        size = f'viewBox="0 0 {self.width:g} {height:.0f}" width="{self.width:g}" height="{height:.0f}"'
        fonts = "font-family=\"ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif\""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {fonts}>',
                f"<title>{escape(title, quote=False)}</title>",
                f"<desc>{escape(description, quote=False)}</desc>",
                f"<style>{STYLE}</style>",
                f"<defs>{HATCH}</defs>",
                f'<rect class="paper" width="{self.width:g}" height="{height:.0f}" rx="8"/>',
                *self._below,
                *self._shapes,
                "</svg>\n",
            ]
        )


def _rect(x: float, y: float, width: float, height: float, css: str, round_: float = 3) -> str:
    return (
        f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height:.1f}" '
        f'rx="{round_:g}"/>'
    )
