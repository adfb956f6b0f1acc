"""A model file becomes a folder that runs without a compiler: python how_to_ship.py [FOLDER]"""

import subprocess
import sys
from pathlib import Path

MODEL = '''
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1024, 1024)

    def forward(self, x):
        return torch.softmax(self.linear(x).sum(1, keepdim=True) * x, -1)


def get_inputs():
    return [torch.randn(128, 1024)]


def get_init_inputs():
    return []
'''

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
Path(folder, "model.py").write_text(MODEL)
refold = [sys.executable, "-m", "refold"]
done = subprocess.run([*refold, "optimize", "model.py", "-o", "fast.py", "--seconds", "0.5", "--no-compile"], cwd=folder)
if done.returncode == 3:
    sys.exit("the original is kept: nothing to ship")  # fast.py says why
done.check_returncode()
subprocess.run([*refold, "build", "fast.py", "-o", "built"], cwd=folder, check=True)
print("copy", folder / "built", "to where there is no compiler; there: from fast import ModelNew")
