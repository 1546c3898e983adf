"""Several ranks of a group in one process, each a client in a thread of its own."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import lossd

_names = itertools.count()


def fresh(prefix="p"):
    """A group name that no other test has."""
    return f"{prefix}{next(_names)}"


class Ranks:
    """
    world_size clients that have joined one group. As a context manager it leaves the group at the end, at an
    exception too.
    """

    def __init__(self, world_size, config, **options):
        self.group = fresh()
        self.clients = [lossd.Client(**options) for _ in range(world_size)]
        self.pool = ThreadPoolExecutor(world_size)
        for rank, client in enumerate(self.clients):
            client.join(config, group=self.group, rank=rank, world_size=world_size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pool.shutdown()
        for client in self.clients:
            if not client.closed:
                client.leave()
                client.close()

    def __getitem__(self, rank):
        return self.clients[rank]

    def together(self, *calls):
        """Run functions at the same time, one a rank: what they return, or the lossd.Error that they end with."""

        def run(call):
            try:
                return call()
            except lossd.Error as error:
                return error

        return list(self.pool.map(run, calls))

    def compute(self, batches, step):
        return self.together(*[lambda c=c, b=b: c.compute(b, step) for c, b in zip(self.clients, batches)])


BCE = {"tasks": [{"name": "t", "losses": [{"binary_cross_entropy": {}}]}]}


def fill(client, lengths, logits, labels, **shape):
    """A batch of a group with one task."""
    batch = client.batch(len(lengths), sum(lengths), **shape)
    batch.lengths = lengths
    (task,) = batch.tasks.values()
    task.logits, task.labels = logits, labels
    return batch
