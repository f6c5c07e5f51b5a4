"""An ordinary day in a bottle: what is allowed works by the tools' own means, what is not is refused in words."""

import contextlib
import json
import re
import unittest
from pathlib import Path

import lab
from lab import BOTTLE_IMAGE, CONTAINERS, NAME, docker, run, until
from test_1_monitoring import expressions, used

# What a bottle does, and what it must print at the end.
WORKS = [
    ("curl, https", "curl -sS https://origin.test/", "the origin"),
    ("curl, http", "curl -sS http://origin.test/", "the origin"),
    ("git", "git clone -q https://git.test/site/demo.git /data/demo && cat /data/demo/file", "cloned"),
    (
        "pip",
        "pip install -q --no-cache-dir --break-system-packages --target /data/pip --index-url https://pypi.test/site/simple demo"
        " && PYTHONPATH=/data/pip python3 -c 'import demo; print(demo.answer)'",
        "42",
    ),
    ("a registry's client", "skopeo copy -q docker://registry.test/layer:2 dir:/data/image && ls -s /data/image | grep -c 2048", "1"),
    ("who am I", "curl -sS http://decant.internal/whoami", f'"session":"{NAME}-demo"'),
    ("the CA at hand", "curl -sS https://decant.internal/bundle.pem | cmp - /etc/decant/ca/bundle.pem && echo same", "same"),
    ("its own network is not proxied", "echo $NO_PROXY", "10.201."),
]
# What it may not do, and the words that it is told.
REFUSED = [
    ("a host that nobody allowed", "curl -sS https://elsewhere.test/", "no route of policy `default` allows elsewhere.test"),
    ("a secret in a body", "curl -sS -d key={secret} https://origin.test/", '"reason":"detector"'),
    ("a secret, as git shows it", "git ls-remote https://git.test/site/{secret}.git", "Blocked by Decant: detector"),
    ("a secret, as pip is told", "pip download https://pypi.test/{secret}/demo-1.0-py3-none-any.whl", "Blocked by Decant: detector"),
]

GROUPED = re.compile(r"by \(([\w, ]+)\) \((?:\w+\()?(decant_\w+)")


class Demo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = lab.shared()
        cls.bottle = cls.lab.bottle("demo")

    def test_what_is_allowed_works(self):
        for name, command, expected in WORKS:
            with self.subTest(name):
                self.assertIn(expected, self.bottle.sh(command))

    def test_what_is_not_is_refused_in_words(self):
        for name, command, words in REFUSED:
            with self.subTest(name):
                secret = lab.aws_key()
                self.assertIn(words, self.bottle.sh(command.format(secret=secret)))
                self.assertNotIn(secret, json.dumps(self.lab.seen()))

    def test_the_launcher_runs_a_command_and_releases_everything(self):
        before = set(self.lab.networks())
        command = [CONTAINERS / "bottle", "--session", f"{NAME}-launcher", "--label", f"{NAME}=1", BOTTLE_IMAGE]
        said = run(*command, "sh", "-c", "curl -sS https://origin.test/; grep -E 'CapEff|NoNewPrivs' /proc/self/status; exit 7", check=False,
                   env=self.lab.environment())
        self.assertIn("the origin", said)
        # Docker's usual capabilities without NET_RAW.
        self.assertIn("00000000a80405fb", said, "the usual capabilities without NET_RAW and NET_ADMIN")
        self.assertIn("NoNewPrivs:\t1", said)
        until("its network is gone", lambda: set(self.lab.networks()) <= before, 30)

    def test_the_launcher_hands_on_the_exit_code(self):
        command = [CONTAINERS / "bottle", "--session", f"{NAME}-code", "--label", f"{NAME}=1", BOTTLE_IMAGE, "sh", "-c", "exit 7"]
        self.assertIn("7", run("bash", "-c", '"$@"; echo "code $?"', "-", *command, env=self.lab.environment()).splitlines()[-1])

    def test_the_lines_of_the_readme_do_the_same_by_hand(self):
        readme = (CONTAINERS.parent / "README.md").read_text()
        lines = next(block for block in re.findall(r"```sh\n(.*?)```", readme, re.S) if "readarray" in block)
        variables = {**self.lab.environment(), "SOCKET": f"{self.lab.dir}/run/allocator.sock", "IMAGE": BOTTLE_IMAGE}
        said = run("bash", "-euo", "pipefail", "-c", lines, env=variables)
        self.assertIn('"policy":"default"', said)

    def test_leases_are_the_launchers_and_the_gateway_only_follows(self):
        for name, group in (("allocator", 0), ("gateway", 65532)):
            about = (self.lab.dir / f"run/{name}.sock").stat()
            self.assertEqual((about.st_gid, about.st_mode & 0o777), (group, 0o660), name)

    def test_the_cas_key_has_a_volume_of_its_own(self):
        mounts = json.loads(docker("inspect", "--format", "{{json .Mounts}}", f"{NAME}-gateway"))
        volumes = {mount["Destination"]: (mount.get("Name"), Path(mount["Source"])) for mount in mounts}
        name, keys = volumes["/var/lib/decant/ca"]
        self.assertEqual(name, f"{NAME}_gateway-ca")
        self.assertEqual({path.stat().st_mode & 0o777 for path in keys.glob("*/key.pem")}, {0o600})
        _, state = volumes["/var/lib/decant"]
        self.assertEqual(list((state / "ca").iterdir()), [])

    def test_prometheus_has_scraped_both_and_the_blocks_alert_fires(self):
        up = lambda: {one["metric"]["job"] for one in self.lab.prometheus("up == 1")}
        until("both targets are up", lambda: up() == {"decant-gateway", "decant-allocator"}, 30)
        asked = "for n in $(seq 30); do curl -sS -o /dev/null https://surge-$n.test/; done"
        self.bottle.sh(asked)
        firing = 'ALERTS{alertname="DecantBlocksSurge", alertstate="firing"}'
        bottles = until("the alert fires", lambda: [one["metric"]["bottle"] for one in self.lab.prometheus(firing)], 30)
        self.assertEqual(bottles, [self.bottle.lease["id"]])

    def test_prometheus_has_every_series_of_rules_and_dashboard(self):
        self.bottle.sh(f"curl -sS https://elsewhere.test/; curl -sS https://origin.test/{lab.aws_key()}")
        # Its labels are known only when it happens, and here it does not.
        wanted = used() - {"decant_memory_shed_total", "decant_upstream_errors_total"}
        asked = '{__name__=~"decant_.+"}'
        there = lambda: {one["metric"]["__name__"].removesuffix("_bucket") for one in self.lab.prometheus(asked)}
        with contextlib.suppress(AssertionError):
            until("all are scraped", lambda: wanted <= there(), 15, every=0.5)
        self.assertEqual(wanted - there(), set())
        # Of what is there, every label that a panel goes by.
        for labels, series in GROUPED.findall("\n".join(expressions())):
            with self.subTest(f"{series} by {labels}"):
                for one in self.lab.prometheus(f"count by ({labels}) ({series})"):
                    self.assertEqual(set(one["metric"]), set(labels.split(", ")))

    def test_prometheus_understands_every_panel(self):
        for expression in expressions():
            with self.subTest(expression):
                self.assertIsInstance(self.lab.prometheus(expression), list)


class Image(unittest.TestCase):
    """What the image promises by itself."""

    @classmethod
    def setUpClass(cls):
        lab.shared()

    def test_it_is_small_and_runs_as_nobody(self):
        size, user, check = docker("image", "inspect", "--format", "{{.Size}}|{{.Config.User}}|{{.Config.Healthcheck.Test}}", lab.IMAGE).split("|")
        self.assertLess(int(size), 25 << 20)
        self.assertEqual((user, check), ("65532:65532", "[CMD /usr/bin/decant health]"))

    def test_it_is_healthy_by_itself_on_read_only_files(self):
        name = f"{NAME}-alone"
        docker("run", "-d", "--name", name, "--label", f"{NAME}=1", "--read-only", "--cap-drop", "ALL", "--tmpfs", "/var/lib/decant:uid=65532,mode=0700",
               "--volume", f"{lab.shared().dir}/resolv.conf:/etc/resolv.conf:ro", lab.IMAGE)
        until("a request goes through", lambda: docker("exec", name, "/usr/bin/decant", "health") == "", 20)
        docker("rm", "-f", name)

    def test_the_allocator_reaches_its_state_where_the_compose_file_has_it_by_default(self):
        name = f"{NAME}-alone"
        state = lab.shared().dir / "default-state"
        state.mkdir()
        docker("run", "-d", "--name", name, "--label", f"{NAME}=1", "--read-only", "--cap-drop", "ALL", "--user", "0:0", "--group-add", "65532",
               "--tmpfs", "/run/decant", "--volume", f"{state}:/var/lib/decant/allocator", "--entrypoint", "/usr/bin/decant-allocator", lab.IMAGE,
               "serve", "--state-dir", "/var/lib/decant/allocator", "--socket", "/run/decant/allocator.sock")
        asked = ["exec", name, "/usr/bin/decant-allocator", "status", "--socket", "/run/decant/allocator.sock"]
        until("it serves", lambda: docker(*asked), 10)
        docker("rm", "-f", name)

    def test_both_programs_say_what_they_are(self):
        form = '{{index .Config.Labels "org.opencontainers.image.version"}}|{{index .Config.Labels "org.opencontainers.image.revision"}}'
        version, commit = docker("image", "inspect", "--format", form, lab.IMAGE).split("|")
        for program in ("decant", "decant-allocator"):
            said = docker("run", "--rm", "--entrypoint", f"/usr/bin/{program}", lab.IMAGE, "--version")
            self.assertEqual(said, f"{program} {version} ({commit})" if commit else f"{program} {version}")


if __name__ == "__main__":
    unittest.main()
