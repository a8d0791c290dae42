# SPDX-License-Identifier: Apache-2.0
"""The process group over a stand-in for the daemon and one for PyTorch's group. Needs only the standard library."""

import pathlib
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lightloom import torch as phased

ID = "0A" * 32


class Daemon(threading.Thread):
    """Answers each request with the next of `codes`; `None` is silence, `close` ends the connection."""

    def __init__(self, *codes):
        super().__init__(daemon=True)
        self.codes, self.lines = list(codes), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile() as lines:
                for line in map(str.strip, lines):
                    self.lines.append(line)
                    if line.startswith("COMM;"):
                        connection.sendall(f"CHECKIN_ACK;{'0' * 64},1\nCHECKIN_ACK;{ID},0\n".encode())
                        continue
                    code = self.codes.pop(0)
                    if code == "close":
                        break
                    if code is None:
                        continue
                    refusal = "" if code == "lit" else f"CONFIG_NACK;{line.split(';')[1]},{code}\n"
                    connection.sendall(f"CONFIG_ACK;{'F' * 64}\n{refusal}CONFIG_ACK;{ID}\n".encode())

    def requests(self):
        return [line for line in self.lines if line.startswith("CONFIG_REQ")]


class Work:
    def __init__(self, log):
        self.log, self.over = log, False

    def is_completed(self):
        return self.over

    def wait(self):
        self.log.append("wait")
        self.over = True


class Inner:
    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        def operation(*arguments):
            self.log.append((name, *arguments))
            return Work(self.log)

        return operation


class Tests(unittest.TestCase):
    def setUp(self):
        phased.log.disabled = True

    def group_over(self, address, wait=5.0):
        announcer = phased.Announcer(address, wait)
        self.addCleanup(announcer.close)
        return phased.PhasedGroup(Inner(), phased.Group(ID, 1, 4), phased.phases_of("all_reduce=2, all_to_all=3"), announcer)

    def test_only_a_change_of_phase_is_announced(self):
        daemon = Daemon("lit", "lit", "lit")
        group = self.group_over(daemon.address)
        for method in ("allreduce", "allreduce", "barrier", "alltoall_base", "send", "allreduce"):
            getattr(group, method)("data")
        wanted = [f"COMM;{ID},4,1"] + [f"CONFIG_REQ;{ID},{phase},{count}" for phase, count in ((2, 1), (3, 2), (2, 3))]
        self.assertEqual(daemon.lines, wanted)
        # Earlier collectives have ended before the circuits change.
        reduce, exchange = ("allreduce", "data"), ("alltoall_base", "data")
        expected = [reduce, reduce, ("barrier", "data"), "wait", "wait", "wait", exchange, ("send", "data"), "wait", "wait", reduce]
        self.assertEqual(group.inner.log, expected)
        self.assertEqual(group.announcer.answers, {"lit": 3})

    def test_refusals_and_lost_connections_do_not_stop_the_job(self):
        daemon = Daemon("lease-held", "kept", "close", "lit")
        group = self.group_over(daemon.address)
        for number in range(phased.RETRY_EVERY):
            getattr(group, ("allreduce", "alltoall")[number % 2])()
        self.assertEqual(group.announcer.answers, {"lease-held": 1, "kept": 1, "away": 1, "lit": 1})
        # After the loss, all ranks try again at the same change.
        self.assertEqual(daemon.requests()[-1], f"CONFIG_REQ;{ID},3,{phased.RETRY_EVERY}")
        self.assertEqual(len(group.inner.log), 2 * phased.RETRY_EVERY - 1)

    def test_ranks_out_of_step_pause(self):
        daemon = Daemon("members-missing", "lit")
        group = self.group_over(daemon.address)
        for number in range(phased.RETRY_EVERY):
            getattr(group, ("allreduce", "alltoall")[number % 2])()
        self.assertEqual(group.announcer.answers, {"members-missing": 1, "lit": 1})

    def test_wait_is_bounded(self):
        for address in (Daemon(None).address, "127.0.0.1:9", "nonsense"):
            group, began = self.group_over(address, wait=0.1), time.monotonic()
            group.allreduce()
            self.assertLess(time.monotonic() - began, 2, address)
            self.assertEqual(group.announcer.answers, {"away": 1})
            self.assertEqual(group.inner.log, [("allreduce",)])

    def test_without_an_address_nothing_is_announced(self):
        group = self.group_over(None)
        group.allreduce()
        self.assertEqual((group.announcer.answers, group.inner.log), ({}, [("allreduce",)]))

    def test_unknown_kinds_are_refused(self):
        for text in ("allreduce=2", "all_reduce", "all_reduce=x", "send=3"):
            with self.assertRaisesRegex(ValueError, "LIGHTLOOM_PHASES"):
                phased.phases_of(text)


if __name__ == "__main__":
    unittest.main()
