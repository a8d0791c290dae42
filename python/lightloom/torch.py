# SPDX-License-Identifier: Apache-2.0
"""A PyTorch process group that requests the circuits of each training phase from ``lightloomd``.

    import lightloom.torch                              # registers the backend
    torch.distributed.init_process_group("lightloom")   # gloo or NCCL carries the data

Before a collective of another phase, all ranks announce the phase to the daemon and wait until its circuits are lit. The
wait is bounded. If the daemon is away or refuses, the collective uses the circuits that are lit: results never depend on
the daemon. Settings are environment variables:

    LIGHTLOOM_JOB_LINES   address of the daemon's ``job_lines``, such as ``10.0.0.1:1234``; without it, nothing is announced
    LIGHTLOOM_PHASES      number of the phase by kind of collective, such as ``all_reduce=2,all_to_all=3``
    LIGHTLOOM_BACKEND     ``gloo`` or ``nccl`` [default: ``nccl`` if CUDA is available]
    LIGHTLOOM_WAIT        longest wait for an answer in seconds [default: 10]

Only collectives in which all ranks of a group take part can be announced, so sends and receives cannot.
"""

import logging
import os
import secrets
import socket
import threading
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = dist = None

log = logging.getLogger("lightloom.torch")

#: Methods of a process group, by the kind that ``LIGHTLOOM_PHASES`` names.
KINDS = {
    "all_reduce": ("allreduce", "allreduce_coalesced"),
    "all_gather": ("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced",
                   "all_gather_single", "all_gather_single_coalesced"),
    "reduce_scatter": ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced",
                       "reduce_scatter_single", "reduce_scatter_single_coalesced"),
    "all_to_all": ("alltoall", "alltoall_base", "all_to_all_single"),
    "broadcast": ("broadcast",),
}
OTHERS = ("barrier", "gather", "gather_into_tensor", "gather_single", "monitored_barrier", "recv", "recv_anysource",
          "reduce", "scatter", "send")

CONNECT_WITHIN = 1.0
JOIN_WITHIN = 1.0
#: While the daemon is away, ranks retry at every such change of phase. Ranks that counted time would not retry together.
RETRY_EVERY = 16
#: Answers after which ranks are out of step, so that each further request would time out.
OUT_OF_STEP = ("groups-missing", "late", "member-gone", "members-missing", "not-joined", "too-slow")


class Announcer:
    """The connection of a process to the daemon."""

    def __init__(self, address, wait=10.0):
        self.address, self.wait = address, wait
        self.is_away = False
        self.answers = {}       # number of answers by code
        self._phase = None
        self._changes = 0
        self._socket = None
        self._received = b""
        self._joined = set()
        self._lock = threading.Lock()

    def announce(self, group, phase, before=lambda: None):
        """Requests a phase for a group unless it is the current one. ``before`` waits for earlier collectives.

        Never raises: the caller continues with the circuits that are lit.
        """
        with self._lock:
            if phase == self._phase:
                return
            before()
            self._phase = phase
            self._changes += 1
            group.count += 1
            if not self.address or (self.is_away and self._changes % RETRY_EVERY):
                return
            try:
                code = self._request(group, phase)
            except (OSError, ValueError) as error:
                self.close()
                code = "away"
                log.warning("lightloomd at %s: %s; training continues with static circuits", self.address, error)
            self.is_away = code == "away" or code in OUT_OF_STEP
            self.answers[code] = self.answers.get(code, 0) + 1
            if code not in ("lit", "away"):
                log.warning("phase %s has no circuits: %s; training continues", phase, code)

    def close(self):
        if self._socket is not None:
            self._socket.close()
        self._socket, self._received = None, b""
        self._joined.clear()

    def _request(self, group, phase):
        until = time.monotonic() + self.wait
        if self._socket is None:
            host, port = self.address.rsplit(":", 1)
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=min(CONNECT_WITHIN, self.wait))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if group.id not in self._joined and not self._join(group):
            return "not-joined"
        operation = f"{group.id},{phase},{group.count}"
        self._socket.sendall(f"CONFIG_REQ;{operation}\n".encode())
        code = "lit"
        while True:
            header, body = self._line(until)
            if header == "CONFIG_NACK" and body.startswith(operation + ","):
                code = body[len(operation) + 1:]
            elif header == "CONFIG_ACK" and body == group.id:
                return code

    def _join(self, group):
        """Returns whether the daemon accepts the group. It answers only once all members have joined."""
        self._socket.sendall(f"COMM;{group.id},{group.size},{group.rank}\n".encode())
        until, accepted = time.monotonic() + JOIN_WITHIN, True
        try:
            while True:
                header, body = self._line(until)
                if header == "CHECKIN_ACK" and body.startswith(group.id + ","):
                    accepted = not body.endswith(",-1")
                    break
        except TimeoutError:
            pass
        if accepted:
            self._joined.add(group.id)
        return accepted

    def _line(self, until):
        while b"\n" not in self._received:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                more = self._socket.recv(4096)
            except socket.timeout as late:  # another class than TimeoutError before Python 3.10
                raise TimeoutError("no answer in time") from late
            if not more:
                raise ConnectionError("the connection was closed")
            self._received += more
        line, self._received = self._received.split(b"\n", 1)
        header, _, body = line.decode("ascii", "replace").partition(";")
        return header, body


def _announcer():
    """Returns the announcer of this process, which all its groups share."""
    if _announcer.known is None:
        _announcer.known = Announcer(os.environ.get("LIGHTLOOM_JOB_LINES"), float(os.environ.get("LIGHTLOOM_WAIT", "10")))
    return _announcer.known


_announcer.known = None


def phases_of(text):
    """Reads ``LIGHTLOOM_PHASES``. Returns the number of the phase by method."""
    phases = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        kind, _, number = entry.partition("=")
        if kind not in KINDS or not number.isdigit():
            raise ValueError(f"LIGHTLOOM_PHASES: `{entry}` is not KIND=NUMBER with a kind of {', '.join(KINDS)}")
        phases.update(dict.fromkeys(KINDS[kind], int(number)))
    return phases


class Group:
    """A group as the daemon knows it. Every member counts the same requests, also those it could not send."""

    def __init__(self, id, rank, size):
        self.id, self.rank, self.size, self.count = id, rank, size, 0


class PhasedGroup(dist.ProcessGroup if dist else object):
    """A process group that announces phases and passes every operation to ``inner``."""

    def __init__(self, inner, group, phases, announcer):
        if dist:
            super().__init__(group.rank, group.size)
        self.inner, self.group, self.phases, self.announcer = inner, group, phases, announcer
        self.works = []

    def getBackendName(self):
        return "lightloom"

    def _finish(self):
        """Waits for earlier collectives, which need the circuits that are about to change."""
        for work in self.works:
            work.wait()
        self.works.clear()
        if torch and torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()

    def _run(self, method, arguments, options):
        phase = self.phases.get(method)
        if phase is not None:
            self.announcer.announce(self.group, phase, self._finish)
        work = getattr(self.inner, method)(*arguments, **options)
        self.works = [work for work in self.works if not work.is_completed()]
        if work is not None:
            self.works.append(work)
        return work


def _passed_on(method):
    return lambda self, *arguments, **options: self._run(method, arguments, options)


for _method in (*OTHERS, *(method for methods in KINDS.values() for method in methods)):
    if dist is None or hasattr(dist.ProcessGroup, _method):
        setattr(PhasedGroup, _method, _passed_on(_method))


def _create(options, _):
    """Creates a group for ``init_process_group`` and ``new_group``."""
    store, rank, size = options.store, options.group_rank, options.group_size
    name = os.environ.get("LIGHTLOOM_BACKEND", "nccl" if torch.cuda.is_available() else "gloo")
    kinds = dist.ProcessGroup.BackendType
    if name == "gloo":
        device, kind, backend = "cpu", kinds.GLOO, dist.ProcessGroupGloo(store, rank, size, options.timeout)
    elif name == "nccl":
        device, kind, backend = "cuda", kinds.NCCL, dist.ProcessGroupNCCL(store, rank, size, options.timeout)
    else:
        raise ValueError(f"LIGHTLOOM_BACKEND: `{name}` is neither gloo nor nccl")
    if rank == 0:
        store.set("lightloom/group", secrets.token_hex(32).upper())
    id = store.get("lightloom/group").decode()
    inner = dist.ProcessGroup(store, rank, size)
    group = PhasedGroup(inner, Group(id, rank, size), phases_of(os.environ.get("LIGHTLOOM_PHASES", "")), _announcer())
    for one in (inner, group):
        one._register_backend(torch.device(device), kind, backend)
        one._set_default_backend(kind)
    return group


if dist:
    dist.Backend.register_backend("lightloom", _create, extended_api=True, devices=["cpu", "cuda"])
