"""The earlier name of worker_sgd.py, by which plug-ins import it."""

from vflbench.algorithms.gossip.worker_sgd import LocalSgd as LocalSgd
from vflbench.algorithms.gossip.worker_sgd import WorkerKeys as WorkerKeys
from vflbench.algorithms.gossip.worker_sgd import check_data as check_data
from vflbench.algorithms.gossip.worker_sgd import initial_model as initial_model
from vflbench.algorithms.gossip.worker_sgd import train_alone as train_alone
from vflbench.algorithms.gossip.worker_sgd import workers as workers
