"""Tries to reach something from inside a bottle, and says `reached` or why not.

    attempt.py tcp ADDRESS PORT | udp ADDRESS PORT | dns ADDRESS NAME | ping ADDRESS | packet | spoof SOURCE ADDRESS PORT

The same program runs on the host as the control: there it must reach what a bottle must not.
"""

import concurrent.futures
import itertools
import os
import socket
import struct
import sys

PATIENCE_SECONDS = 1.5


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def tcp(address, port):
    with socket.create_connection((address, int(port)), PATIENCE_SECONDS) as stream:
        stream.sendall(b"GET /escaped HTTP/1.0\r\n\r\n")
        return stream.recv(64)


def exchange(address, port, packet):
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as udp:
        udp.settimeout(PATIENCE_SECONDS)
        udp.connect((address, int(port)))
        udp.send(packet)
        return udp.recv(512)


def question(name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", 1, 1)


def udp(address, port):
    return exchange(address, port, question("escaped.test"))


def dns(address, name):
    answer = exchange(address, 53, question(name))
    if answer[3] & 15:
        raise OSError(f"answered with code {answer[3] & 15}")
    return answer


def ping(address):
    kind = socket.IPPROTO_ICMPV6 if ":" in address else socket.IPPROTO_ICMP
    with socket.socket(family_of(address), socket.SOCK_DGRAM, kind) as icmp:
        icmp.settimeout(PATIENCE_SECONDS)
        echo = 128 if ":" in address else 8
        icmp.connect((address, 0))
        icmp.send(struct.pack("!BBHHH", echo, 0, 0, os.getpid() & 0xFFFF, 1))
        return icmp.recv(64)


def packet():
    """Raw frames, with any tag and any source: needs NET_RAW."""
    for arguments in [(socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)]:
        socket.socket(*arguments).close()


def spoof(source, address, port):
    """A connection from somebody else's address; the caller holds NET_ADMIN and has put it on its interface."""
    with socket.socket() as stream:
        stream.settimeout(PATIENCE_SECONDS)
        stream.bind((source, 0))
        stream.connect((address, int(port)))


def outcome(words):
    verb, *arguments = words
    try:
        {f.__name__: f for f in (tcp, udp, dns, ping, packet, spoof)}[verb](*arguments)
    except OSError as error:
        return f"not there: {error}"
    return "reached"


def main():
    """Attempts that `--` separates are made at once, and told one a line in their order."""
    attempts = [list(words) for ends, words in itertools.groupby(sys.argv[1:], lambda word: word == "--") if not ends]
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        print(*pool.map(outcome, attempts), sep="\n")


if __name__ == "__main__":
    main()
