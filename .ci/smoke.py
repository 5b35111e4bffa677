"""What the installed wheel must do in an environment that has nothing but its dependencies."""

import io
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from importlib import metadata, resources
from pathlib import Path

import numpy as np

import rankbits as rb
from rankbits.cli import main

here = Path(sys.prefix)
assert here in Path(rb.__file__).parents, f"not the installed package: {rb.__file__}"
assert not any("editable" in str(file) for file in metadata.files("rankbits"))
assert resources.files("rankbits").joinpath("py.typed").is_file()
for name in ("digits.npz", "notes.tsv", "questions.tsv"):
    assert resources.files("rankbits.data").joinpath(name).is_file(), name

for words in ([here / "bin" / "rankbits"], [sys.executable, "-m", "rankbits"]):
    done = subprocess.run([*words, "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"rankbits {rb.__version__}", (words, done.stderr)


def rankbits(*words: str) -> str:
    """One command, in this process: a second import of torch would tell nothing more."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(words) == 0, words
    return said.getvalue()


draw = np.random.default_rng(0)
embeddings = draw.normal(size=(300, 24)).astype(np.float32)
labels = np.arange(300) % 3
embeddings[:, :3] += 3 * np.eye(3, dtype=np.float32)[labels]
with tempfile.TemporaryDirectory() as name:
    os.chdir(name)
    np.savez("x.npz", embeddings=embeddings, labels=labels)
    rankbits("fit", "x.npz", "--bits", "16", "-o", "q")
    rankbits("encode", "q", "x.npz", "-o", "codes.npz")
    rankbits("index", "codes.npz", "-o", "codes.index")
    assert "0" in rankbits("search", "codes.index", "codes.npz", "-k", "3")
    assert "mAP" in rankbits("evaluate", "codes.npz", "codes.npz")
    rankbits("train", "--data", "x.npz", "-o", "run", "--bits", "8", "--epochs", "1")
    rankbits("embed", "run", "x.npz", "-o", "y.npz")
    os.chdir(here)
print(f"the wheel of rankbits {rb.__version__} works")
