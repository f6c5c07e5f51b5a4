"""Tries to reach something from inside a bottle, and says `reached` or why not.

    attempt.py tcp ADDRESS PORT | udp ADDRESS PORT | dns ADDRESS NAME | ping ADDRESS | packet | spoof SOURCE ADDRESS PORT
    attempt.py onlink ADDRESS PORT | frame TAGS SOURCE ADDRESS PORT MAC | watch SECONDS

The same program runs on the host as the control: there it must reach what a bottle must not. `watch` runs in another's network
namespace and prints what is heard there of the packets that `frame` sends, and of the answers to them.
"""

import concurrent.futures
import itertools
import os
import socket
import struct
import sys
import time

PATIENCE_SECONDS = 1.5
ETH_ALL, IPV4 = 3, 0x0800
# The tag before the packet: none, or one of VLAN 0, which names a priority and no network.
TAGS = {"plain": b"", "vlan0": struct.pack("!HH", 0x8100, 0), "vlan0-priority": struct.pack("!HH", 0x8100, 0xE000)}
# By its port a packet of `frame` is known, and which tags it came with.
FRAME_PORTS = {40990 + place: tags for place, tags in enumerate(TAGS)}


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


def onlink(address, port):
    """As if the address were on this link, by options of the socket that everybody may set: whoever has it answers for it."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as one:
            one.settimeout(PATIENCE_SECONDS)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0\0")
            one.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
            one.connect((address, int(port)))
            one.send(question("onlink.test"))


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def packets(frame_port, source, address, port):
    """The first packet of a connection, and a datagram."""
    ends = socket.inet_aton(source) + socket.inet_aton(address)
    ports = struct.pack("!HH", frame_port, int(port))
    text = question("frame.test")
    syn = ports + struct.pack("!IIBBHHH", 1, 0, 5 << 4, 2, 1024, 0, 0)
    sums = checksum(ends + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(syn)) + syn)
    syn = syn[:16] + struct.pack("!H", sums) + syn[18:]
    datagram = ports + struct.pack("!HH", 8 + len(text), 0) + text
    for protocol, body in ((socket.IPPROTO_TCP, syn), (socket.IPPROTO_UDP, datagram)):
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0) + ends
        yield head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def frame(tags, source, address, port, mac):
    """Frames with any tag and any source; the caller holds NET_RAW."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL)) as link:
        link.bind(("eth0", 0))
        ours = link.getsockname()[4]
        frame_port = next(number for number, known in FRAME_PORTS.items() if known == tags)
        for one in packets(frame_port, source, address, port):
            link.send(bytes.fromhex(mac.replace(":", "")) + ours + TAGS[tags] + struct.pack("!H", IPV4) + one)


def heard(packet):
    """Who sends what to whom, with which tags, of a packet that belongs to `frame`; none of any other."""
    head = (packet[0] & 15) * 4
    protocol, ports = packet[9], struct.unpack("!HH", packet[head : head + 4])
    tags = next((FRAME_PORTS[port] for port in ports if port in FRAME_PORTS), None)
    if packet[0] >> 4 != 4 or protocol not in (socket.IPPROTO_TCP, socket.IPPROTO_UDP) or not tags:
        return None
    kind = "udp" if protocol == socket.IPPROTO_UDP else "syn" if packet[head + 13] & 0x12 == 2 else "answer"
    return tags, kind, socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])


def watch(seconds):
    end = time.monotonic() + float(seconds)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_ALL)) as link:
        print("watching", flush=True)
        while (left := end - time.monotonic()) > 0:
            link.settimeout(left)
            try:
                packet = link.recv(2048)
            except TimeoutError:
                return
            said = heard(packet) if len(packet) >= 40 else None
            if said:
                print(*said, flush=True)


def outcome(words):
    verb, *arguments = words
    try:
        {f.__name__: f for f in (tcp, udp, dns, ping, packet, spoof, onlink, frame)}[verb](*arguments)
    except OSError as error:
        return f"not there: {error}"
    return "reached"


def main():
    """Attempts that `--` separates are made at once, and told one a line in their order."""
    if sys.argv[1] == "watch":
        return watch(sys.argv[2])
    attempts = [list(words) for ends, words in itertools.groupby(sys.argv[1:], lambda word: word == "--") if not ends]
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        print(*pool.map(outcome, attempts), sep="\n")


if __name__ == "__main__":
    main()
