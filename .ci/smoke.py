"""What the installed wheel must do in an environment that has nothing but its dependencies."""

import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

import numpy as np

import rankbits as rb

assert "site-packages" in rb.__file__, f"not the installed package: {rb.__file__}"
assert resources.files("rankbits").joinpath("py.typed").is_file()
assert resources.files("rankbits.data").joinpath("digits.npz").is_file()

draw = np.random.default_rng(0)
embeddings = draw.normal(size=(300, 24)).astype(np.float32)
labels = np.arange(300) % 3
embeddings[:, :3] += 3 * np.eye(3, dtype=np.float32)[labels]
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    np.savez(folder / "x.npz", embeddings=embeddings, labels=labels)

    def rankbits(*words: str) -> str:
        command = [sys.executable, "-m", "rankbits", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    assert rankbits("--version").strip() == f"rankbits {rb.__version__}"
    rankbits("fit", "x.npz", "--bits", "16", "-o", "q")
    rankbits("encode", "q", "x.npz", "-o", "codes.npz")
    rankbits("index", "codes.npz", "-o", "codes.index")
    assert "0" in rankbits("search", "codes.index", "codes.npz", "-k", "3")
    assert "mAP" in rankbits("evaluate", "codes.npz", "codes.npz")
    rankbits("train", "--data", "x.npz", "-o", "run", "--bits", "8", "--epochs", "1")
    rankbits("embed", "run", "x.npz", "-o", "y.npz")
print(f"the wheel of rankbits {rb.__version__} works")
