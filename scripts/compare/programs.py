"""horton-sql of a commit, in a release build.

    git ─▶ OUT/base/tree ─ cargo, OUT/base/target ─▶ OUT/base/target/release/horton-sql
           OUT/head/tree …

Each side keeps its tree and its target folder, so that the next call compiles only what differs
from the commit before. One target folder for both would mix up two versions of each member.
"""

import os
import pathlib
import subprocess
from dataclasses import dataclass


class Failure(Exception):
    """What the user must know, and mend."""


@dataclass
class Program:
    """A program, and what the report calls it."""

    file: pathlib.Path
    name: str


def output(*command):
    """The first line that a command prints."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.partition("\n")[0]


def ready(file):
    """A program that was built elsewhere."""
    file = file.absolute()
    try:
        return Program(file, f"{output(str(file), '--version')}, `{file}`")
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(f"{file} does not run: {error}") from error


def built(commit, folder):
    """The program of a commit, built in `folder`."""
    try:
        wanted = output("git", "rev-parse", "--verify", "--quiet", commit + "^{commit}")
    except subprocess.CalledProcessError as error:
        raise Failure(f"git knows no commit '{commit}'") from error
    tree, target = folder / "tree", folder / "target"
    if (tree / ".git").exists():
        subprocess.run(["git", "-C", tree, "checkout", "--quiet", "--force", "--detach", wanted],
                       check=True)
    else:
        # A folder that was removed by hand is still in git's list, which --force overrides.
        subprocess.run(["git", "worktree", "add", "--force", "--detach", tree, wanted], check=True)
    subprocess.run(["cargo", "build", "--release", "-p", "horton-sql"], check=True, cwd=tree,
                   env={**os.environ, "CARGO_TARGET_DIR": str(target)})
    title = output("git", "log", "-1", "--format=%h %s", wanted)
    return Program(target / "release" / "horton-sql", title)
