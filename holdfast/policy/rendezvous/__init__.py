"""The rendezvous of an elastic gang: members, rounds, orders."""
