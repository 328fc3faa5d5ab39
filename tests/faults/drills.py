"""`drills.py [STORY...]`: disturb each run in every way that a disk and a power cut can, resume, and print a summary.

After each disturbance the same commands run again. They give an undisturbed run's bytes, or end with a short error that
says what to do. Other bytes, a traceback, or an output that a finished run lost in a power cut are failures.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from disk import FIXED, Kind, Policy, Tree, everything, files_of, only_synced, read_tree, sampled, write_tree  # noqa: E402
from promises import broken_promises  # noqa: E402
from stage import Fault, Stage, copied  # noqa: E402
from stories import STORIES, Story, contents  # noqa: E402

from webtext.base.errors import InputError  # noqa: E402
from webtext.base.parts.partset import QUARANTINE, PartSet  # noqa: E402
from webtext.base.parts.stage import _Quarantine as Quarantine  # noqa: E402
from webtext.base.storage import Folder  # noqa: E402
from webtext.train.checkpoint.checkpoint import open_checkpoint  # noqa: E402

LOG = "metrics.jsonl"  # for people: a row with another digit is taken for a row


@dataclass
class Summary:
    """What the drills of one story found."""

    faults: int = 0
    equal: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Drills:
    """The drills of one story: its undisturbed run, recorded, and what each disturbance leads to."""

    def __init__(self, stage: Stage, story: Story, scratch: Path) -> None:
        """Record the story's run."""
        self.stage, self.story, self.summary = stage, story, Summary()
        self.place = scratch / "run"  # the same for all: some records have absolute paths
        self._before = _before(stage, story, scratch)
        copied(self._before, self.place)
        ended = stage.run(self.place, story.words, learn=True)
        assert ended.well, ended.said
        copied(self._before, self.place)
        self.disk, ended = stage.record(self.place, story.words)
        assert ended.well, ended.said
        seen, real = files_of(self.disk.state(self.disk.last_moment(), everything)), files_of(read_tree(self.place))
        unseen = self.disk.unseen + sorted(name for name in {*seen, *real} if seen.get(name) != real.get(name))
        assert not unseen, f"the shim didn't see how these files were written: {unseen}"
        self.expected = contents(self.place)
        self.n_changes = ended.n_changes
        self._judge("undisturbed")

    def power_cuts(self, moments: Iterable[int], policies: dict[str, Policy]) -> None:
        """Resume from what a power cut leaves after each of these numbers of changes, under each policy."""
        seen: set[str] = set()
        for moment in moments:
            for name, policy in policies.items():
                tree = self.disk.state(moment, policy)
                state = hashlib.sha256(repr(sorted(files_of(tree).items())).encode()).hexdigest()
                if state not in seen:
                    seen.add(state)
                    self.resume(tree, f"power cut after {moment} of {self.n_changes} changes, {name}")

    def lost_writes(self, n: int, seed: int) -> None:
        """Lose one write to a file that has its final name, and keep all else, also a little of what was written later."""
        exposed = self.disk.exposed
        for i in spread(n, len(exposed), seed):
            lost, moment = exposed[i - 1], exposed[min(i + 8, len(exposed) - 1)]
            kept: Policy = lambda what, _, number, lost=lost: float(what != "data" or number != lost)  # noqa: E731
            self.power_cuts([moment], {f"but for change {lost}": kept})

    def decay(self, seeds: Iterable[int]) -> None:
        """Resume after a power cut of which one file has one other byte: a rerun notices it, or else the next reader."""
        for seed in seeds:
            chance = random.Random(seed)
            moment = chance.randint(1, self.disk.last_moment())
            tree = self.disk.state(moment, everything)
            before = files_of(self._initial())
            made = [name for name, data in files_of(tree).items() if data and name not in before and "/." not in name]
            if made:
                name = chance.choice(made)
                about = f"a flipped byte in {name} after {moment} changes"
                self.resume(_flipped(tree, name, chance), about, flipped=name)

    def _initial(self) -> Tree:
        return self.disk.state(0, only_synced)

    def faults(self, numbers: Iterable[int], kinds: Sequence[tuple[Fault, int]]) -> None:
        """Let the n-th change fail, for each of these numbers, and resume."""
        for n in numbers:
            for fault, error in kinds:
                copied(self._before, self.place)
                ended = self.stage.fail(self.place, self.story.words, n, fault, error)
                about = f"{fault.name} {errno.errorcode.get(error, '')} at change {n} of {self.n_changes}"
                if not ended.fired:
                    continue
                if ended.well:  # a change that needn't succeed, or one that was tried again
                    self._judge(about)
                elif ended.signal or ended.clearly:
                    self._resumed(about)
                else:
                    self._wrong(f"{about}: {ended.said[-1500:]}")

    def durable(self) -> None:
        """Cut the power right after a run that ended well: nothing that it promised may be lost."""
        self.summary.faults += 1
        kept = files_of(self.disk.state(self.disk.last_moment(), only_synced))
        made = files_of(self.disk.state(self.disk.last_moment(), everything))
        lost = [
            name for name, data in made.items() if name.startswith(tuple(self.story.outputs)) and kept.get(name) != data
        ]
        if lost:
            self._wrong(f"a power cut after the end loses {len(lost)} files, e.g. {lost[0]}", counted=True)
        else:
            self.summary.equal += 1

    def promises(self, moments: Iterable[int], policies: dict[str, Policy]) -> None:
        """Check every state for files that vouch for others (`promises.py`); no command runs, so all can be checked."""
        for path in self.disk.early_renames:
            self._wrong(f"'{path}' got its name before its bytes were synced")
        for moment in moments:
            for name, policy in policies.items():
                self.summary.faults += 1
                fresh = policy is everything or not self.story.replaces
                broken = broken_promises(files_of(self.disk.state(moment, policy)), fresh=fresh)
                if broken:
                    self._wrong(f"after {moment} of {self.n_changes} changes, {name}: {broken[0]}", counted=True)
                    return  # the later moments say the same
                self.summary.equal += 1

    def moments(self, n: int, seed: int) -> list[int]:
        """Return `n` moments: half of them anywhere, half while a file with its final name is written, if there are any."""
        anywhere, exposed = spread((n + 1) // 2, self.disk.last_moment(), seed), self.disk.exposed
        return sorted({*anywhere, *(exposed[i - 1] for i in spread(n // 2, len(exposed), seed))})

    def writes_to_each_file(self, n: int, seed: int) -> list[int]:
        """Return the numbers of `n` writes, to as many different files as possible."""
        chance, of_file = random.Random(seed), dict[int, list[int]]()
        numbered = [change for change in self.disk.changes if change.kind != Kind.MAP]  # the shim doesn't count those
        for number, change in enumerate(numbered, 1):
            if change.kind == Kind.WRITE and len(change.data) > 1:
                of_file.setdefault(change.inode, []).append(number)
        chosen = [chance.choice(numbers) for numbers in of_file.values()]
        return sorted(chance.sample(chosen, min(n, len(chosen))))

    def locked(self) -> None:
        """Let another process hold the first output: the run refuses; then it gives the same bytes."""
        place = copied(self._before, self.place) / self.story.outputs[0]
        place.mkdir(exist_ok=True)
        other = os.open(place, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        ended = self.stage.run(self.place, self.story.words)
        os.close(other)
        if ended.well or "another" not in ended.said:
            self._wrong(f"two runs write '{place.name}' at once: {ended.said}")
        else:
            self._resumed("after the other run")

    def resume(self, tree: Tree, about: str, *, flipped: str = "") -> None:
        """Run the commands again from this state of the disk."""
        shutil.rmtree(self.place)
        write_tree(tree, self.place)
        self._resumed(about, flipped)

    def _resumed(self, about: str, flipped: str = "") -> None:
        ended = self.stage.run(self.place, self.story.words)
        if ended.well:
            self._judge(about, flipped)
        elif ended.clearly:
            self.summary.faults += 1
            self.summary.refused[_error(ended.said)] += 1
        else:
            self._wrong(f"{about}: resumed, {ended.signal or ended.codes}: {ended.said[-1500:]}")

    def _judge(self, about: str, flipped: str = "") -> None:
        """Compare with an undisturbed run; a `flipped` file may differ if no run reads it before `_is_refused` does."""
        found = contents(self.place)
        differ = sorted(name for name in {*found, *self.expected} if found.get(name) != self.expected.get(name))
        if differ == [flipped] and flipped.endswith(LOG):
            self.summary.faults += 1
            self.summary.refused["no error, but another row in metrics.jsonl"] += 1
        elif differ == [flipped] and _is_refused(self.place / flipped):
            self.summary.faults += 1
            self.summary.refused["error: by the next reader of an older checkpoint or a quarantine.json"] += 1
        elif differ:
            self._wrong(f"{about}: other bytes: {differ[:4]}")
        else:
            self.summary.faults += 1
            self.summary.equal += 1

    def _wrong(self, text: str, *, counted: bool = False) -> None:
        self.summary.faults += not counted
        self.summary.wrong.append(f"{self.story.name}: {text}")


def _before(stage: Stage, story: Story, scratch: Path) -> Path:
    """Return a folder with what a story begins with, made once."""
    folder = scratch / "before" / story.name.replace(" ", "-")
    if not folder.exists():
        place = scratch / "run"
        if story.after:
            before = STORIES[story.after]
            copied(_before(stage, before, scratch), place)
            ended = stage.run(place, before.words, learn=True)
            assert ended.well, ended.said
        else:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            story.prepare(place)
        folder.parent.mkdir(exist_ok=True)
        copied(place, folder)
    return folder


def _flipped(tree: Tree, name: str, chance: random.Random) -> Tree:
    first, _, rest = name.partition("/")
    entry = tree[first]
    if not isinstance(entry, bytes):
        return {**tree, first: _flipped(entry, rest, chance)}
    data = bytearray(entry)
    digits = [place for place, byte in enumerate(data) if name.endswith(".json") and chr(byte).isdigit()]
    if digits and chance.random() < 0.5:  # what remains is valid JSON
        data[chance.choice(digits)] ^= 1
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return {**tree, first: bytes(data)}


def _is_refused(path: Path) -> bool:
    """Whether a file that a rerun needn't read is refused by its reader."""
    try:
        if path.parent.name.startswith("step-"):
            open_checkpoint(path.parent)
        elif path.name == QUARANTINE:
            Quarantine(Folder(path.parent))
        elif path.name.startswith("part-"):
            PartSet.open(str(path.parent)).verify()
    except InputError:
        return True
    return False


def _error(said: str) -> str:
    return [line for line in said.splitlines() if line.startswith("error: ")][-1][:160]


def spread(n: int, of: int, seed: int = 0) -> list[int]:
    """Return `n` different numbers from 1 to `of`, spread evenly, the last one included."""
    if n >= of:
        return [*range(1, of + 1)]
    chance, step = random.Random(seed), of / max(n, 1)
    return sorted({min(of, 1 + int((i + chance.random()) * step)) for i in range(n)} | {of})


def some(n: int, seed: int, *kinds: tuple[Fault, int]) -> Callable[[Drills], None]:
    """Return a drill in which `n` changes of the run fail, in each of these ways."""

    def run(drills: Drills) -> None:
        for i, number in enumerate(spread(n, drills.n_changes, seed)):
            drills.faults([number], [kinds[i % len(kinds)]] if n < drills.n_changes else kinds)

    return run


def named(n_cuts: int, n_faults: int, n_decays: int, seed: int) -> dict[str, Callable[[Drills], None]]:
    """Return the drills by name: moments of a power cut, changes that fail (of each group), and flipped bytes."""
    samples = {f"sample {seed + i}": sampled(seed + i) for i in range(3)}
    full, broken = errno.ENOSPC, errno.EIO
    return {
        "durable": Drills.durable,
        "promises": lambda drills: drills.promises(
            drills.disk.moments(), {**FIXED, "everything": everything, "sample": sampled(seed)}
        ),
        "power cuts": lambda drills: drills.power_cuts(drills.moments(n_cuts, seed), {**FIXED, **samples}),
        "lost writes": lambda drills: drills.lost_writes(n_cuts, seed),
        "failing calls": some(n_faults, seed, (Fault.FAIL, full), (Fault.FAIL, broken), (Fault.TEAR_AND_FAIL, full)),
        "short writes": lambda drills: drills.faults(drills.writes_to_each_file(n_faults, seed), [(Fault.SHORTEN, 0)]),
        "killed run": some(n_faults // 3, seed + 2, (Fault.TEAR, 0), (Fault.KILL, 0)),
        "killed worker": some(n_faults // 3, seed + 3, (Fault.DIE, 0)),
        "flipped bytes": lambda drills: drills.decay(range(seed, seed + n_decays)),
        "locked folder": Drills.locked,
    }


def drill(drills: Drills, n_cuts: int, n_faults: int, n_decays: int, seed: int = 0) -> Summary:
    """Run all drills of a story."""
    for name, run in named(n_cuts, n_faults, n_decays, seed).items():
        if name != "locked folder" or drills.story.locks:
            run(drills)
    return drills.summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stories", nargs="*", default=list(STORIES), metavar="STORY")
    parser.add_argument("--cuts", type=int, default=40, help="moments of a power cut per story")
    parser.add_argument("--faults", type=int, default=60, help="changes that fail per story")
    parser.add_argument("--decays", type=int, default=20, help="flipped bytes per story")
    parser.add_argument("--seed", type=int, default=0, help="seed of all samples")
    given = parser.parse_args()
    wrong: list[str] = []
    print(
        f"{'run':14} {'changes':>7} {'faults':>6} {'equal':>6} {'refused':>7} {'wrong':>6} {'seconds':>8}", flush=True
    )
    with tempfile.TemporaryDirectory() as scratch:
        stage = Stage(Path(scratch) / "stage")
        for name in given.stories:
            started = time.monotonic()
            drills = Drills(stage, STORIES[name], Path(scratch))
            found = drill(drills, given.cuts, given.faults, given.decays, given.seed)
            n_refused = sum(found.refused.values())
            print(
                f"{name:14} {drills.n_changes:7} {found.faults:6} {found.equal:6} {n_refused:7} {len(found.wrong):6} "
                f"{time.monotonic() - started:8.0f}",
                flush=True,
            )
            for error, n in found.refused.most_common():
                print(f"    refused {n}: {error}")
            wrong += found.wrong
            for text in found.wrong:
                print(f"    WRONG {text}")
        stage.close()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
