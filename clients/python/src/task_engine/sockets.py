"""Sockets to an engine: TCP, TLS and Unix."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import dataclass
from typing import Any, Optional

from .errors import InvalidArgument

_FORMS = 'write "tcp://host:8643", "tls://host:8643" or "unix:/path"'


@dataclass(frozen=True)
class Address:
    """The address of an engine."""

    text: str
    host: str
    port: int
    path: str
    tls: Optional[ssl.SSLContext]

    @classmethod
    def parse(cls, text: str, ca: Optional[str] = None) -> Address:
        if text.startswith("unix:"):
            path = text[len("unix:") :]
            return cls(text, "", 0, path[2:] if path.startswith("//") else path, None)
        scheme, separator, rest = text.partition("://")
        host, colon, port = rest.rstrip("/").rpartition(":")
        if scheme not in ("tcp", "tls") or not separator or not colon or not port.isdigit():
            raise InvalidArgument(f"{text!r} is not the address of an engine; {_FORMS}")
        tls = None
        if scheme == "tls":
            try:
                tls = ssl.create_default_context(cafile=ca)
            except OSError as error:
                raise InvalidArgument(f"cannot read the certificates in {ca}: {error}") from error
        return cls(text, host.strip("[]"), int(port), "", tls)

    def __str__(self) -> str:
        return self.text


class SocketConnection:
    """One thread reads and another one writes at the same time."""

    def __init__(self, plain: socket.socket) -> None:
        self._socket = plain

    @staticmethod
    def open(address: Address, timeout: float) -> SocketConnection:
        """The timeout is for the connection, and for the answer to the announcement."""
        if address.path:
            plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            plain.settimeout(timeout)
            plain.connect(address.path)
            return SocketConnection(plain)
        plain = socket.create_connection((address.host, address.port), timeout)
        _keep_alive(plain)
        if address.tls is None:
            return SocketConnection(plain)
        try:
            return TlsConnection(plain, address.tls, address.host)
        except BaseException:
            plain.close()
            raise

    def accepted(self) -> None:
        """From now on the engine may say nothing for any time."""
        self._socket.settimeout(None)

    def read(self) -> bytes:
        return self._socket.recv(1 << 18)

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def __enter__(self) -> SocketConnection:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Also wakes a thread that waits for data or for room."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()


class TlsConnection(SocketConnection):
    """TLS over buffers: an SSL socket may not be read and written by two threads at a time."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        super().__init__(plain)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
        self._flush()

    def read(self) -> bytes:
        while True:
            with self._lock:
                try:
                    data = self._tls.read(1 << 18)
                except ssl.SSLWantReadError:
                    data = None
                except ssl.SSLZeroReturnError:
                    return b""
                self._flush()
            if data is not None:
                return data
            self._fill()

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            with self._lock:
                left = left[self._tls.write(left[: 1 << 18]) :]
                self._flush()

    def _fill(self) -> None:
        data = self._socket.recv(1 << 18)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
            raise OSError("the connection was closed")

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())


def _keep_alive(plain: socket.socket) -> None:
    """Notices a lost machine: first probe after 10 s, then every 5 s, 3 probes."""
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": 10,
        "TCP_KEEPALIVE": 10,  # its name on macOS
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": 25_000,  # the same for lines that are not acknowledged
    }
    for name, value in options.items():
        if hasattr(socket, name):
            plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
