#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make glue.json beside this script: labels and predictions of tasks as in GLUE (Wang et al. 2019), and their measures, by definitions
that share nothing with engine/post/label_metrics.c: F1 from precision and recall, Matthews as the correlation of one-hot rows summed over
classes, in fractions; Pearson from standard scores; Spearman from counts of the smaller and the equal ones.

    make_glue.py

Needs Python alone. Neither the build nor `make check` runs it. Where scikit-learn and scipy are there, they are asked, too.
"""
import json
import math
import os
import random
from fractions import Fraction

HERE = os.path.dirname(os.path.abspath(__file__))


def f1(right, told, k):
    both = sum(r == k and t == k for r, t in zip(right, told))
    is_, said = right.count(k), told.count(k)
    if both == 0:
        return Fraction(0)
    precision, recall = Fraction(both, said), Fraction(both, is_)
    return 2 * precision * recall / (precision + recall)


def matthews(right, told):
    n = len(right)

    def cov(a, b):
        return sum(sum(Fraction((x == k) * (y == k)) for x, y in zip(a, b)) / n - Fraction(a.count(k), n) * Fraction(b.count(k), n)
                   for k in set(right) | set(told))
    below = cov(right, right) * cov(told, told)
    return float(cov(right, told)) / math.sqrt(below) if below else 0.0


def classes(right, told, n):
    seen = set(right) | set(told)
    out = {"accuracy": sum(r == t for r, t in zip(right, told)) / len(right), "macro_f1": float(sum(f1(right, told, k) for k in seen) / len(seen)),
           "matthews": matthews(right, told)}
    if n == 2:
        out["f1"] = float(f1(right, told, 1))
    return out


def pearson(x, y):
    def scores(v):
        mean = math.fsum(v) / len(v)
        spread = math.sqrt(math.fsum((a - mean) ** 2 for a in v) / len(v))
        return [(a - mean) / spread for a in v]
    return math.fsum(a * b for a, b in zip(scores(x), scores(y))) / len(x)


def ranks(v):
    return [sum(b < a for b in v) + (sum(b == a for b in v) + 1) / 2 for a in v]


def task(name, n, texts, agree):
    rng = random.Random(name)
    if n:
        right = [min(int(rng.random() ** 1.5 * n), n - 1) for _ in range(texts)]
        told = [r if rng.random() < agree else rng.randrange(n) for r in right]
        measures = classes(right, told, n)
    else:
        right = [round(rng.random() * 25) / 5 for _ in range(texts)]  # ties, as the grades of STS-B have
        told = [round(agree * r + (1 - agree) * 5 * rng.random(), 2) for r in right]
        measures = {"pearson": pearson(right, told), "spearman": pearson(ranks(right), ranks(told))}
    try:
        from scipy import stats
        from sklearn import metrics
        theirs = {"accuracy": lambda: metrics.accuracy_score(right, told), "f1": lambda: metrics.f1_score(right, told),
                  "macro_f1": lambda: metrics.f1_score(right, told, average="macro"), "matthews": lambda: metrics.matthews_corrcoef(right, told),
                  "pearson": lambda: stats.pearsonr(right, told)[0], "spearman": lambda: stats.spearmanr(right, told)[0]}
        for k, v in measures.items():
            assert abs(theirs[k]() - v) < 1e-12, (name, k, theirs[k](), v)
    except ImportError:
        print("scikit-learn and scipy are not there")
    return {"name": name, "classes": n, "right": right, "told": told, "measures": measures}


if __name__ == "__main__":
    tasks = [task("CoLA", 2, 90, 0.6), task("MRPC", 2, 70, 0.8), task("RTE, no better than chance", 2, 40, 0.0), task("MNLI", 3, 80, 0.7),
             task("a class that is never said", 6, 30, 0.3), task("STS-B", 0, 60, 0.8)]
    with open(os.path.join(HERE, "glue.json"), "w") as f:
        f.write("[\n%s\n]\n" % ",\n".join(json.dumps(t) for t in tasks))
