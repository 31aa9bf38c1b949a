"""Fit a curve to noisy points by stochastic gradient descent. Plain Python: nothing has to be installed."""

import argparse
import json
import math
import random
from pathlib import Path

arguments = argparse.ArgumentParser()
arguments.add_argument("--lr", type=float, required=True)
arguments.add_argument("--epochs", type=int, default=300)
arguments.add_argument("--model", required=True, help="the directory of the model")
args = arguments.parse_args()

random.seed(1)
points = [(x / 50, math.sin(3 * x / 50) + random.gauss(0, 0.1)) for x in range(-50, 51)]
weights = [0.0] * 6  # of 1, x, x², …


def predict(x):
    return math.fsum(weight * x**power for power, weight in enumerate(weights))


for epoch in range(1, args.epochs + 1):
    random.shuffle(points)
    for x, y in points:
        error = predict(x) - y
        for power in range(len(weights)):
            weights[power] -= args.lr * error * x**power
    loss = math.fsum((predict(x) - y) ** 2 for x, y in points) / len(points)
    if epoch % (args.epochs // 5 or 1) == 0:
        print(f"epoch {epoch:3}  loss {loss:.4f}")

model = {"lr": args.lr, "loss": loss, "weights": weights}
Path(args.model, "model.json").write_text(json.dumps(model))
