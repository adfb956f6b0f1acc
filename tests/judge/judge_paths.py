"""Where the judge's references and candidates lie."""

from pathlib import Path

HERE = Path(__file__).parent
REFERENCES = HERE / "references"
CANDIDATES = HERE / "candidates"
