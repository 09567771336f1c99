"""The agent: the small process in each pod of an elastic gang, which joins its rendezvous and runs a round's workers.

It runs inside users' training images, so this package imports the standard library and `holdfast.names`, and nothing
else; one process, one thread that forks nothing (the keeper does), and no state beyond the container's life. What it
says and is told is decision record 0030; what it does with its processes, record 0031.
"""
