"""Graceful reload: a new web process takes over while the old one finishes its answers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from gateway_project.configuration import data_directory
from gateway_project.processes.process_supervisor import SupervisedProcess
from gateway_project.processes.socket_handover import Handover

# Seconds for the next process to serve; the one that serves goes on meanwhile, and after it if the next one does not.
_READY_PATIENCE = 120.0


class WebProcess:
    """One web process, and what it and the supervisor tell each other; both are new each time that it starts."""

    def __init__(self, make: Callable[[WebProcess], SupervisedProcess]) -> None:
        self.handover: Handover | None = None
        self.child = make(self)

    @property
    def ready(self) -> bool:
        """Do all of its workers serve?"""
        return self.handover is not None and self.handover.ready

    def renew(self, handover: Handover) -> Handover:
        """Take the handover of a process that is about to start."""
        if self.handover is not None:
            self.handover.close()
        self.handover = handover
        return handover

    def drain(self) -> None:
        """Ask it to finish what it has begun, however long that takes, and end."""
        if self.handover is not None:
            self.handover.drain(patiently=True)
        self.child.send(self.child.spec.stop_signal)

    def cut_drain_short(self) -> None:
        """Take that time back."""
        if self.handover is not None:
            self.handover.drain(patiently=False)

    def forget(self) -> None:
        """Let go of it once it has ended."""
        self.child.forget()
        if self.handover is not None:
            self.handover.close()
            self.handover = None


class WebProcesses:
    """All web processes of a server: the one that serves, the one that will, and those that only finish."""

    def __init__(self, make: Callable[[WebProcess], SupervisedProcess], tell: Callable[[str], None]) -> None:
        self._make = make
        self._tell = tell
        self.serving = WebProcess(make)
        self._next: WebProcess | None = None
        self._deadline = 0.0
        self._leaving: list[WebProcess] = []

    @property
    def others(self) -> list[SupervisedProcess]:
        """Return the processes besides the one that serves."""
        return [process.child for process in [*self._leaving, *([self._next] if self._next else [])]]

    def reload(self) -> None:
        """Start the next process; it takes over once it serves (`look`)."""
        if self._next is not None:
            self._tell("a reload is under way already")
            return
        self._tell("reloading web …")
        following = WebProcess(self._make)
        try:
            following.child.start()
        except OSError as error:
            self._tell(f"web was not reloaded: {error}")
            return
        self._next, self._deadline = following, time.monotonic() + _READY_PATIENCE

    def look(self) -> None:
        """Go on with a reload, if one is under way, and forget who has finished."""
        for process in [process for process in self._leaving if not process.child.alive]:
            process.forget()
            self._leaving.remove(process)
            self._tell(f"web process {process.child.pid} has finished")
        following = self._next
        if following is None:
            return
        if following.ready:
            before, self.serving, self._next = self.serving, following, None
            before.drain()
            self._leaving.append(before)
            self._tell(f"reloaded web: process {following.child.pid} serves, process {before.child.pid} finishes")
        elif not following.child.alive:
            following.forget()
            self._next = None
            last = "\n".join(following.child.last_lines)
            self._tell(f"web was not reloaded: the new process ended ({following.child.end})\n{last}".rstrip())
        elif time.monotonic() > self._deadline:
            following.child.send(following.child.spec.stop_signal)
            self._leaving.append(following)
            self._next = None
            self._tell(f"web was not reloaded: the new process did not serve within {_READY_PATIENCE:.0f} s")

    def cut_drain_short(self) -> None:
        """Give none of them more time than at any stop, which is to follow."""
        for process in self._leaving:
            process.cut_drain_short()


def request_reload(tell: Callable[[str], None]) -> int:
    """Ask the server that runs on this home to replace its web process. Return the exit code."""
    number = data_directory.find_lock_holder(data_directory.path())
    if number is None:
        tell(f"no server runs on {data_directory.path()}")
        return 1
    os.kill(number, signal.SIGUSR2)
    tell(f"asked the server (process {number}) to reload; it says how that goes")
    return 0
