"""Pick the best of several models: each argument but `--best` is an input, the directory of a model."""

import argparse
import json
from pathlib import Path

arguments = argparse.ArgumentParser()
arguments.add_argument("--best", required=True, help="the directory for the best model")
args, inputs = arguments.parse_known_args()

models = []
for text in inputs:
    name, _, directory = text.partition("=")
    models.append(json.loads(Path(directory, "model.json").read_text()))
    print(f"{name.lstrip('-')}: lr {models[-1]['lr']}, loss {models[-1]['loss']:.4f}")

best = min(models, key=lambda model: model["loss"])
Path(args.best, "model.json").write_text(json.dumps(best))
print(f"best: lr {best['lr']}")
