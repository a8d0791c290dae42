# SPDX-License-Identifier: Apache-2.0
"""Packet-level network for Python programs, through ``liblightloom`` and ctypes."""

import ctypes
import ctypes.util
import json
import os
import shutil
from pathlib import Path

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_HANDLE, _U32, _U64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
_ABI = 1
_FUNCTIONS = {
    "open": [ctypes.c_char_p, ctypes.POINTER(_HANDLE)],
    "open_text": [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_HANDLE)],
    "ranks": [_HANDLE, ctypes.POINTER(_U32)],
    "time": [_HANDLE, ctypes.POINTER(_U64)],
    "schedule": [_HANDLE, _U64, _CALLBACK, ctypes.c_void_p],
    "send": [_HANDLE, _U32, _U32, _U64, _U64, _CALLBACK, ctypes.c_void_p],
    "receive": [_HANDLE, _U32, _U32, _U64, _U64, _CALLBACK, ctypes.c_void_p],
    "run": [_HANDLE],
    "finish": [_HANDLE],
    "packet_hops": [_HANDLE, ctypes.POINTER(_U64)],
    "close": [_HANDLE],
}
_loaded = None


class Refused(RuntimeError):
    """The library rejected a call: ``str(error)`` is the reason, ``error.code`` the code in lightloom.h."""

    def __init__(self, code, words):
        super().__init__(words)
        self.code = code


def library():
    """Returns the path: ``LIGHTLOOM_LIBRARY``, else in this package, else next to the program, else the system library."""
    named = os.environ.get("LIGHTLOOM_LIBRARY")
    program = os.environ.get("LIGHTLOOM") or shutil.which("lightloom") or ""
    near = [Path(__file__).parent, Path(program).parent, Path(program).parent.parent / "lib"]
    found = [str(folder / "liblightloom.so") for folder in near if (folder / "liblightloom.so").is_file()]
    found = named or (found[0] if found else ctypes.util.find_library("lightloom"))
    if not found:
        raise FileNotFoundError("cannot find `liblightloom.so`: install the wheel for Linux, or set LIGHTLOOM_LIBRARY to its path")
    return found


def _load():
    global _loaded
    if _loaded is None:
        loaded = ctypes.CDLL(library())
        for name, arguments in _FUNCTIONS.items():
            getattr(loaded, f"lightloom_{name}").argtypes = arguments
        loaded.lightloom_last_error.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        loaded.lightloom_last_error.restype = ctypes.c_size_t
        if loaded.lightloom_abi_version() != _ABI:
            raise ImportError(f"{library()} does not have ABI version {_ABI}")
        _loaded = loaded
    return _loaded


class Network:
    """Network whose hosts, numbered from 0, exchange messages. Times are in picoseconds.

        with lightloom.Network("fabric.yaml", seed=7) as network:
            network.receive(1, 0, 1 << 20, done=lambda: print(network.time))
            network.send(0, 1, 1 << 20)
            network.run()

    ``fabric`` is a fabric or scenario file, or the value of a scenario's ``on:`` key: ``{"ring": {"hosts": 8}}``. Other
    scenario keys (``links``, ``transport``, ``faults`` …) are keyword arguments. :meth:`run` makes all callbacks, which
    may send, receive and schedule. A network may be used only by the thread that created it.
    """

    def __init__(self, fabric, **settings):
        self._library, self._handle = _load(), _HANDLE()
        self._calls, self._number, self._error = {}, 0, None
        self._trampoline = _CALLBACK(self._called)
        if settings or isinstance(fabric, dict):
            on = fabric if isinstance(fabric, dict) else {"fabric": os.path.abspath(fabric)}
            text = json.dumps({"name": "network", "on": on, **settings}).encode()
            self._ask("open_text", text, None, ctypes.byref(self._handle))
        else:
            self._ask("open", os.fsencode(fabric), ctypes.byref(self._handle))

    def _ask(self, name, *arguments):
        code = getattr(self._library, f"lightloom_{name}")(*arguments)
        if code:
            length = self._library.lightloom_last_error(None, 0)
            words = ctypes.create_string_buffer(length + 1)
            self._library.lightloom_last_error(words, length + 1)
            raise Refused(code, words.value.decode())

    def _read(self, name, kind):
        value = kind()
        self._ask(name, self._handle, ctypes.byref(value))
        return value.value

    def _order(self, name, arguments, call):
        """Requests an operation and registers ``call`` for its completion."""
        if call is None:
            return self._ask(name, self._handle, *arguments, _CALLBACK(), None)
        number = self._number + 1
        self._ask(name, self._handle, *arguments, self._trampoline, number)
        self._number, self._calls[number] = number, call

    def _called(self, number):
        call = self._calls.pop(number)
        if self._error is None:
            try:
                call()
            except BaseException as error:  # raised again by run: it cannot pass through the library
                self._error = error

    @property
    def ranks(self):
        """Number of hosts."""
        return self._read("ranks", _U32)

    @property
    def time(self):
        """Simulated time in picoseconds."""
        return self._read("time", _U64)

    @property
    def packet_hops(self):
        """Number of packets sent so far, counted once per link."""
        return self._read("packet_hops", _U64)

    def send(self, source, destination, size, tag=0, done=None):
        """Sends ``size`` bytes now; calls ``done()`` when the last byte has arrived."""
        self._order("send", (source, destination, size, tag), done)

    def receive(self, destination, source, size, tag=0, done=None):
        """Calls ``done()`` when ``size`` more bytes with this tag have arrived from ``source``."""
        self._order("receive", (destination, source, size, tag), done)

    def schedule(self, after, call):
        """Calls ``call()`` after this number of picoseconds."""
        self._order("schedule", (after,), call)

    def run(self):
        """Runs until all messages and timers have completed. Returns the time."""
        return self._go("run")

    def finish(self):
        """Like :meth:`run`, but raises an error if a receive is pending at the end."""
        return self._go("finish")

    def _go(self, name):
        try:
            self._ask(name, self._handle)
        finally:
            error, self._error = self._error, None
            if error is not None:
                raise error
        return self.time

    def close(self):
        """Frees the network. Further calls have no effect."""
        handle, self._handle = self._handle, _HANDLE()
        if handle:
            self._ask("close", handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
