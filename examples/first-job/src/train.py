"""Train a small neural network that tells two spirals apart. Plain Python: nothing has to be installed."""

import argparse
import json
import math
import random
from pathlib import Path

arguments = argparse.ArgumentParser()
arguments.add_argument("--epochs", type=int, default=1000)
arguments.add_argument("--lr", type=float, default=0.03)
arguments.add_argument("--train_url", default=".", help="the directory of the model")
args = arguments.parse_args()

WIDTH = 16  # of the hidden layer
random.seed(1)


def spirals(count):
    """Points in the plane, each with the number of the spiral that it belongs to."""
    for index in range(count):
        label, turn = index % 2, 0.5 + 10 * index / count
        angle = turn + math.pi * label
        noise = random.gauss(0, 0.02)
        yield turn / 10 * math.cos(angle) + noise, turn / 10 * math.sin(angle) + noise, label


def predict(x, y):
    """The values of the hidden layer, and the probability that the point is of spiral 1."""
    hidden = [math.tanh(a * x + b * y + c) for a, b, c, _ in units]
    total = math.fsum(unit[3] * value for unit, value in zip(units, hidden))
    return hidden, 1 / (1 + math.exp(-total))


points = list(spirals(200))
units = [[random.gauss(0, spread) for spread in (2, 2, 1, 0.5)] for _ in range(WIDTH)]
for epoch in range(1, args.epochs + 1):
    random.shuffle(points)
    loss, correct = 0.0, 0
    for x, y, label in points:
        hidden, probability = predict(x, y)
        loss -= math.log(max(probability if label else 1 - probability, 1e-12)) / len(points)
        correct += (probability > 0.5) == label
        for unit, value in zip(units, hidden):
            step = args.lr * (probability - label)
            inner = step * unit[3] * (1 - value * value)
            unit[0] -= inner * x
            unit[1] -= inner * y
            unit[2] -= inner
            unit[3] -= step * value
    if epoch % (args.epochs // 10 or 1) == 0:
        print(f"epoch {epoch:4}  loss {loss:.3f}  accuracy {correct / len(points):.0%}")

model = {"units": units, "loss": loss}
Path(args.train_url, "model.json").write_text(json.dumps(model))
print(f"saved model.json: {WIDTH} units")
