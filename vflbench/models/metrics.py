"""What predictions are judged by. All take scores (n, outputs) and labels (n,)."""

import numpy as np


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows of `scores` (n, classes) whose largest entry is at the label, (n,)."""
    return float(np.mean(scores.argmax(axis=1) == labels))


def rmse(scores: np.ndarray, targets: np.ndarray) -> float:
    """Root mean squared error of `scores` (n, 1) against `targets`, (n,)."""
    return float(np.sqrt(np.mean((scores[:, 0] - targets) ** 2)))


def auroc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Area under the ROC curve of class 1 against class 0 by `scores` (n, 2); labels (n,) hold both classes."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores[:, 1] - scores[:, 0]))


METRICS = {"accuracy": accuracy, "rmse": rmse, "auroc": auroc}
