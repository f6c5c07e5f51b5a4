"""What goes wrong on an ordinary bad day, on purpose: large pulls in little memory, kills, restarts, replacements.

Each drill of services runs under a bottle's traffic, and what the bottle noticed is measured and printed.
"""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import time
import unittest
from pathlib import Path

import lab
from lab import ADMIN_PORT, IMAGE, NAME, NEXT_IMAGE, docker, get, until

MEMORY_LIMIT = 64 << 20
# MiB; the two layers that killed a gateway which collected bodies, and one that no collecting gateway of this size survives.
LAYERS = [82, 83, 1024]

TRAFFIC = r"""
while :; do
  began=$(date +%s.%N)
  said=$(curl -sS -m 2 -o /dev/null -w '%{http_code}' https://origin.test/ 2>/dev/null)
  echo "$began $(date +%s.%N) $said"
  sleep 0.05
done >/data/traffic
"""


def kill(service):
    """As the kernel's OOM killer would: not by Docker, which would take it as meant."""
    os.kill(lab.shared().pid(service), signal.SIGKILL)


def worker():
    """The gateway's process that carries the data: its supervisor's only child, once none is being replaced."""
    main = lab.shared().pid("gateway")
    children = lambda: Path(f"/proc/{main}/task/{main}/children").read_text().split()
    [only] = until("there is one worker", lambda: len(children()) == 1 and children(), 40)
    return int(only)


def roll_back(lab):
    """To the image before, over a store that the newer program has taken one version further."""
    with contextlib.closing(sqlite3.connect(lab.store())) as store:
        version = store.execute("PRAGMA user_version").fetchone()[0]
        store.executescript(f"ALTER TABLE leases ADD COLUMN later TEXT NOT NULL DEFAULT 'so'; CREATE TABLE later (id TEXT) STRICT;"
                            f"PRAGMA user_version = {version + 1};")
    lab.change_to(IMAGE)


def healthy():
    """Whether a request goes through the data path within a tenth of a second."""
    with contextlib.suppress(OSError):
        return "ready" in get(f"http://127.0.0.1:{ADMIN_PORT}/readyz", seconds=0.1)
    return False


# What is done, and for how many seconds a bottle may go without an answer at most; 0: no request of it may fail.
DRILLS = [
    ("the gateway's worker is killed", lambda lab: os.kill(worker(), signal.SIGKILL), 1),
    ("the gateway's worker is replaced", lambda lab: os.kill(lab.pid("gateway"), signal.SIGUSR2), 0),
    ("the gateway is killed", lambda lab: kill("gateway"), 5),
    ("the gateway is restarted", lambda lab: docker("restart", f"{NAME}-gateway"), 10),
    ("the gateway is replaced", lambda lab: lab.compose("up", "-d", "--no-build", "--no-deps", "--force-recreate", "gateway"), 10),
    ("the allocator is killed", lambda lab: kill("allocator"), 0),
    ("the allocator is restarted", lambda lab: docker("restart", f"{NAME}-allocator"), 0),
    ("the allocator is replaced", lambda lab: lab.compose("up", "-d", "--no-build", "--no-deps", "--force-recreate", "allocator"), 0),
    ("the appliance is upgraded", lambda lab: lab.change_to(NEXT_IMAGE), 10),
    ("the appliance is rolled back", roll_back, 10),
    ("Prometheus is killed", lambda lab: kill("prometheus"), 0),
    ("Prometheus is restarted", lambda lab: docker("restart", f"{NAME}-prometheus"), 0),
    ("Prometheus is replaced", lambda lab: lab.compose("up", "-d", "--no-build", "--no-deps", "--force-recreate", "prometheus"), 0),
]


class Drills(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = lab.shared()
        cls.bottle = cls.lab.bottle("drill")

    def test_1_large_pulls_at_once_in_64_mib(self):
        bottles = [self.lab.bottle(f"pull-{mib}") for mib in LAYERS]
        began = time.monotonic()
        pulls = [
            subprocess.Popen(["docker", "exec", bottle.name, "skopeo", "copy", "-q", f"docker://registry.test/layer:{mib}", "dir:/data/image"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for bottle, mib in zip(bottles, LAYERS)
        ]
        for pull, mib in zip(pulls, LAYERS):
            said, _ = pull.communicate(timeout=240)
            self.assertEqual(pull.returncode, 0, f"{mib} MiB: {said}")
        print(f"\n    {sum(LAYERS)} MiB pulled in {time.monotonic() - began:.1f} s, ", end="")
        self.assertIn("the origin", self.bottle.sh("curl -sS https://origin.test/"), "the next request")
        self.a_killed_worker_turns_health_red_for_less_than_a_second()
        state = docker("inspect", "--format", "{{.State.OOMKilled}} {{.RestartCount}} {{.HostConfig.Memory}}", f"{NAME}-gateway")
        self.assertEqual(state, f"false 0 {MEMORY_LIMIT}")
        peak = lab.peak(f"{NAME}-gateway")
        if peak:
            print(f"the gateway's container at {peak >> 20} MiB at most ", end="")
            self.assertLess(peak, MEMORY_LIMIT)
        before = len(self.lab.networks())
        for bottle in bottles:
            bottle.remove()
        until("their networks are gone", lambda: len(self.lab.networks()) <= before - len(bottles), 60)

    def a_killed_worker_turns_health_red_for_less_than_a_second(self):
        os.kill(worker(), signal.SIGKILL)
        killed = time.monotonic()
        until("health is red", lambda: not healthy(), 1, every=0.001)
        until("it is back", healthy, 5, every=0.01)
        away = time.monotonic() - killed
        print(f"a killed worker was back after {away:.2f} s, ", end="")
        self.assertLess(away, 1)
        self.assertIn("the origin", self.bottle.sh("curl -sS https://origin.test/"), "the next request")

    def test_2_services_go_and_come_back_under_traffic(self):
        docker("exec", "-d", self.bottle.name, "bash", "-c", TRAFFIC)
        for name, drill, seconds in DRILLS:
            with self.subTest(name):
                before = len(self.traffic())
                drill(self.lab)
                until("both are ready", self.both_ready, 60, every=0.1)
                self.assertEqual(self.images(), {docker("image", "inspect", "--format", "{{.Id}}", self.lab.image)})
                until("requests pass again", lambda: [code for _, _, code in self.traffic()[before:]][-5:] == ["200"] * 5, 60)
                outage, failed = outage_of(self.traffic()[max(before - 1, 0):])
                print(f"\n    {name}: {outage:.1f} s without an answer, {failed} requests failed ", end="")
                self.assertTrue(outage <= seconds if seconds else failed == 0, f"{outage} s, {failed} failed")
                self.assertIn(self.bottle.lease["id"], self.bottle.sh("curl -sS http://decant.internal/whoami"))

    def images(self):
        return {docker("inspect", "--format", "{{.Image}}", f"{NAME}-{service}") for service in ("gateway", "allocator")}

    def both_ready(self):
        return self.lab.ready() and self.lab.allocator("health") == "" and "decant_allocator_watch_connected 1" in get(f"http://127.0.0.1:{ADMIN_PORT}/metrics")

    def traffic(self):
        lines = [line.split() for line in self.bottle.sh("cat /data/traffic").splitlines()]
        return [(float(line[0]), float(line[1]), line[2]) for line in lines if len(line) == 3]

    def test_3_without_the_allocator_bottles_live_and_none_begins(self):
        docker("stop", "--time", "5", f"{NAME}-allocator")
        self.assertIn("the origin", self.bottle.sh("curl -sS https://origin.test/"))
        self.assertRegex(self.lab.allocator("acquire", "--internal", check=False), "allocator.sock")
        docker("start", f"{NAME}-allocator")
        until("both are ready", self.both_ready, 60)

    def test_4_without_the_gateway_no_bottle_begins_and_its_address_stays_its_own(self):
        ended = self.lab.bottle("ended")
        docker("stop", "--time", "5", f"{NAME}-gateway")
        # A gateway that still named the network of a lease that is over could not be started again.
        ended.remove()
        until("the network is gone", lambda: not docker("network", "ls", "-q", "--filter", f"label=decant.lease={ended.lease['id']}"), 60)
        until("the allocator knows", lambda: re.search("503|gateway", self.lab.allocator("acquire", "--internal", check=False)), 20, every=0.5)
        # Whoever starts now in the lease's network gets an address, and not the gateway's.
        network = self.bottle.lease["subnet"]["network_name"]
        name = f"{NAME}-squatter"
        docker("run", "-d", "--name", name, "--label", f"{NAME}=1", "--network", network, lab.BOTTLE_IMAGE, "sleep", "60")
        address = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name)
        self.assertNotEqual(address, self.bottle.gateway)
        docker("start", f"{NAME}-gateway")
        until("both are ready", self.both_ready, 60)
        self.assertIn("the origin", self.bottle.sh("curl -sS --retry 5 --retry-connrefused https://origin.test/"))
        docker("rm", "-f", name)

    def test_5_a_bad_configuration_changes_nothing(self):
        path = self.lab.dir / "config/gateway/zz-lab.yaml"
        good = path.read_text()
        path.write_text(good + "nonsense: true\n")
        refused = 'decant_config_reloads_total{result="refused"} 1'
        until("the reload is refused", lambda: refused in get(f"http://127.0.0.1:{ADMIN_PORT}/metrics"), 20)
        self.assertIn("the origin", self.bottle.sh("curl -sS https://origin.test/"))
        path.write_text(good)

    def test_6_a_new_ca_reaches_bottles_that_run(self):
        count = lambda: int(self.bottle.sh("grep -c BEGIN /etc/decant/ca/bundle.pem"))
        before = count()
        docker("exec", f"{NAME}-gateway", "/usr/bin/decant", "ca", "--config", "/etc/decant/gateway", "rotate")
        os.kill(self.lab.pid("gateway"), signal.SIGUSR2)
        until("the bundle holds both", lambda: count() == before + 1, 30)
        until("requests pass", lambda: "the origin" in self.bottle.sh("curl -sS https://origin.test/"), 30)

    def test_7_a_worker_that_hangs_turns_health_red_and_is_replaced(self):
        hanging = worker()
        began = time.monotonic()
        os.kill(hanging, signal.SIGSTOP)
        health = subprocess.run(["docker", "exec", f"{NAME}-gateway", "/usr/bin/decant", "health"], capture_output=True, text=True)
        self.assertEqual(health.returncode, 1, health.stderr)
        until("another worker serves", lambda: worker() != hanging and self.both_ready(), 20)
        print(f"\n    a hanging worker was replaced after {time.monotonic() - began:.1f} s ", end="")
        self.assertIn("the origin", self.bottle.sh("curl -sS https://origin.test/"))


def outage_of(traffic):
    """The longest time from an answer's end to the next answer's end, and how many requests had none."""
    ends = [ended for _, ended, code in traffic if code == "200"]
    gaps = [later - earlier for earlier, later in zip(ends, ends[1:])]
    return max(gaps, default=0.0), sum(code != "200" for _, _, code in traffic)


if __name__ == "__main__":
    unittest.main()
