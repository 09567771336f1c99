"""Random scripts: a seed says what happens to a workload, one thing after another."""

from __future__ import annotations

from random import Random

from tests.fakes.ledger import Kind
from tests.policy.lives.play import Play
from tests.policy.lives.weather import NODES


def walk(play: Play, random: Random, moves: int) -> None:
    """Take a random walk over everything that may happen."""
    for _ in range(moves):
        if play.flow.ended is not None:
            return
        step(play, random)


def step(play: Play, random: Random) -> None:
    """Let one thing happen; what goes on every day is likelier than what goes wrong."""
    index = random.randrange(6)
    match random.randrange(40):
        case 0 | 1 | 2 | 3 | 4 | 5 | 6:
            play.acts(random.randint(1, 8))
        case 7 | 8 | 9 | 10:
            play.cluster_goes_on()
        case 11:
            play.weather.controllers_act(lagging=True)
        case 12:
            play.weather.collector_acts()
        case 13 | 14 | 15:
            play.watch_tells()
        case 16 | 17 | 18:
            play.mail_arrives(index, twice=random.random() < 0.2)
        case 19:
            play.mail_is_lost(index)
        case 20 | 21 | 22:
            play.goes_on(random.choice((1, 10, 40, 100)), watched=random.random() < 0.8)
        case 23:
            play.jumps(random.choice((1, 20, 70, 200)))
        case 24 | 25:
            play.pod_ends(index, random.choice((1, 1, 137, 0)))
        case 26:
            play.all_pods_succeed() if random.random() < 0.3 else play.weather.nodes_act()
        case 27:
            play.person_deletes(random.choice((Kind.POD, Kind.POD, Kind.COMPONENT, Kind.OWNER, Kind.ANCHOR)), index)
        case 28:
            play.person_holds(index)
            play.pod_becomes_stubborn(index)
        case 29:
            if not play.strip():
                play.weather.lift()
        case 30:
            play.weather.node_dies(index % NODES)
            if random.random() < 0.5:
                play.weather.node_controller_acts()
        case 31:
            play.weather.dead_nodes.clear()
            play.weather.replaces = random.random() < 0.5
        case 32:
            play.cluster.go_dark(down=random.random() < 0.6)
        case 33 | 34:
            play.cluster.get_light()
            play.cluster.refusing = random.random() < 0.1
        case 35:
            play.worker_dies(last_request=random.random() < 0.6, stays=random.random() < 0.5)
        case 36:
            play.worker_comes()
            play.late_request_lands(index)
        case 37:
            play.suspend(preempted=random.random() < 0.3) if random.random() < 0.4 else play.resume()
        case 38:
            play.told_to_break_off()
            if random.random() < 0.3:
                play.history_is_full()
            play.replay()
        case _:
            people(play, random)


def people(play: Play, random: Random) -> None:
    """A person wants something that is wanted seldom."""
    match random.randrange(4):
        case 0:
            play.retry()
        case 1 if random.random() < 0.3:
            play.cancel()
        case 2:
            play.policy_changes(random.randint(0, 4), random.choice((5, 30, 60)))
        case _:
            play.resume()
