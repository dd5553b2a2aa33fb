"""The edges that the user's file lists, those of a server too, and no others."""

from pathlib import Path

from vflbench.cards.federation.topologies.edge_list import Config
from vflbench.types import ConfigError, Problem, closest, refuse


def edges(config: Config, servers: list[str], clients: list[str], seed: int) -> list[tuple[str, str]]:
    """The file's pairs.

    Raises
    ------
    ConfigError
        Lines are bad: every one, by number.
    """
    path, parties = Path(config.edges or ""), (*servers, *clients)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("topology.edges", path, f"cannot be read as text: {error}")]) from error
    found, problems, known = [], [], set(parties)
    for number, line in enumerate(lines, start=1):
        words = line.split("#", 1)[0].split()
        where = f"topology.edges ({path}, line {number})"
        if not words:
            continue
        if len(words) != 2:
            problems.append(Problem(where, " ".join(words), "must be two party names"))
        elif words[0] == words[1]:
            problems.append(Problem(where, " ".join(words), "connects a party with itself"))
        elif unknown := [word for word in words if word not in known]:
            shown = ", ".join(parties[:8]) + (", ..." if len(parties) > 8 else "")
            problems += [
                Problem(where, word, f"no such party; there are {shown}", closest(word, parties)) for word in unknown
            ]
        else:
            found.append((words[0], words[1]))
    refuse(problems)
    return found
