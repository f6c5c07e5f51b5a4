"""The table of sizes in the README: what `decant check --memory` says today, and what a container of that size really carries."""

import re
import subprocess
import tempfile
import unittest

import lab
from lab import CONTAINERS, HOST_ON_UPLINK, NAME, ORIGIN, PROGRAMS, docker, get, run, until

README = CONTAINERS.parent / "README.md"
SIZES = ["64MiB", "128MiB", "256MiB", "512MiB"]
# The lines of `check --memory` that the table shows.
ROWS = ["idle connections", "inspected exchanges", "of them in gzip", "bodies in br or zstd", "HTTP/2 window"]
# By how much a number may be off.
TOLERANCE = 0.02
# Of what is promised, what is asked for and has to stand at once: the rest is room for those who ask whether all is well.
SHARE = 0.95
ALONE = "10.201.0.9"
CONFIG = """
version: 1
listen: {{proxy: ["0.0.0.0:9099"], admin: "0.0.0.0:9190", admin_from: [{host}/32, 127.0.0.0/8]}}
upstream:
  roots: [bundled, test-ca.pem]
  resolvers: [{origin}]
  addresses: {{allow: [{origin}/32]}}
limits: {{upstream_connections_per_target: 4096}}
bottles: [{{name: crowd, sources: [{host}/32], policy: default}}]
policies: {{default: {{routes: [{{name: origin, hosts: [origin.test]}}]}}}}
"""


def promised(size):
    with tempfile.TemporaryDirectory() as state:
        said = run(PROGRAMS / "decant", "check", "--memory", size, "--config", CONTAINERS / "config/gateway", "--state-dir", state)
    return [re.search(rf"^{re.escape(row)} +(\S+)", said, re.M)[1] for row in ROWS]


def table():
    """As the README has to show it, but for numbers, which move a little with what is measured at start."""
    columns = [promised(size) for size in SIZES]
    return [["", *SIZES]] + [[row, *(column[place] for column in columns)] for place, row in enumerate(ROWS)]


def shown():
    """The README's table of sizes."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.read_text().splitlines() if line.startswith("| ")]
    start = lines.index(["", *SIZES])
    return [lines[start]] + lines[start + 1 : start + 1 + len(ROWS)]


class Sizes(unittest.TestCase):
    def test_the_readme_shows_what_check_says(self):
        expected = table()
        hint = "the README has to say:\n" + "\n".join(f"| {' | '.join(row)} |" for row in expected)
        for here, there in zip(shown(), expected, strict=True):
            for cell, value in zip(here, there, strict=True):
                if value.isdigit():
                    self.assertAlmostEqual(int(cell.replace(",", "")), int(value), delta=max(1, TOLERANCE * int(value)), msg=hint)
                else:
                    self.assertEqual(cell, value, hint)

    def test_a_container_of_each_size_carries_what_is_promised(self):
        the_lab = lab.shared()
        for size in SIZES:
            with self.subTest(size):
                self.carries(the_lab, size, int(SHARE * int(promised(size)[ROWS.index("inspected exchanges")])))

    def carries(self, the_lab, size, exchanges):
        name, config = f"{NAME}-alone", the_lab.dir / "config/alone.yaml"
        config.write_text(CONFIG.format(host=HOST_ON_UPLINK, origin=ORIGIN))
        docker("run", "-d", "--name", name, "--label", f"{NAME}=1", "--network", f"{NAME}-uplink", "--ip", ALONE, "--read-only",
               "--memory", size.removesuffix("iB"), "--memory-swap", size.removesuffix("iB"), "--tmpfs", "/var/lib/decant:uid=65532,mode=0700",
               "--volume", f"{the_lab.dir}/config:/config:ro", lab.IMAGE, "run", "--config", "/config/alone.yaml", "--state-dir", "/var/lib/decant")
        try:
            until("it is ready", lambda: get(f"http://{ALONE}:9190/readyz"), 20)
            (the_lab.dir / "alone.pem").write_text(get(f"http://{ALONE}:9190/ca.pem"))
            asked = ["python3", "-B", lab.TESTS / "crowd.py", f"{ALONE}:9099", "origin.test", exchanges, the_lab.dir / "alone.pem"]
            crowd = subprocess.Popen([str(word) for word in asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            began = int(crowd.stdout.readline())
            resident = float(re.search(r"^decant_memory_resident_bytes (\S+)", get(f"http://{ALONE}:9190/metrics"), re.M)[1])
            peak = lab.peak(name)
            crowd.communicate("\n", timeout=30)
            print(f"\n    {size}: {began} of {exchanges} downloads stand, resident {resident / 2**20:.0f} MiB, the container's peak "
                  f"{peak >> 20 if peak else '?'} MiB ", end="", flush=True)
            self.assertEqual(began, exchanges)
            self.assertEqual(docker("inspect", "--format", "{{.State.OOMKilled}}", name), "false")
            restarts = re.findall(r"^decant_worker_restarts_total\{.*\} (\S+)", get(f"http://{ALONE}:9190/metrics"), re.M)
            self.assertEqual(sum(map(float, restarts)), 0, "no worker died of it")
        finally:
            docker("rm", "-f", name)


if __name__ == "__main__":
    unittest.main()
