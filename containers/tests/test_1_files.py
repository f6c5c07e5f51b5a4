"""The files of the appliance, without the stack: both Composes read the compose file, the programs read their configurations."""

import re
import shutil
import tempfile
import unittest
import venv
from pathlib import Path

from lab import CONTAINERS, PROGRAMS, TARGET, compose_2, run

COMPOSE = CONTAINERS / "compose.yaml"
README = CONTAINERS.parent / "README.md"
CLIENT_ENV = CONTAINERS.parent / "config/src/client_env.rs"
REFUSALS = CONTAINERS.parent / "proxy/src/http/refusal.rs"
CHECKER = "check-jsonschema==0.39.0"


class Files(unittest.TestCase):
    def test_docker_compose_1_reads_the_compose_file(self):
        services = run("docker-compose", "--file", COMPOSE, "config", "--services").split()
        self.assertEqual(sorted(services), ["allocator", "gateway", "grafana", "prometheus"])

    def test_it_keeps_to_the_specification_that_compose_2_reads(self):
        folder = TARGET / "containers-test/venv"
        if not (folder / "bin/check-jsonschema").exists():
            venv.create(folder, with_pip=True)
            run(folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", CHECKER, timeout=300)
        run(folder / "bin/check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)

    def test_compose_2_reads_the_compose_file(self):
        compose = compose_2()
        if compose is None:
            self.skipTest("there is no Compose v2 here, and Debian's cannot be fetched")
        services = run(*compose, "--file", COMPOSE, "config", "--services").split()
        self.assertEqual(sorted(services), ["allocator", "gateway", "grafana", "prometheus"])

    def test_the_gateway_accepts_its_configuration(self):
        with tempfile.TemporaryDirectory() as state:
            said = run(PROGRAMS / "decant", "check", "--config", CONTAINERS / "config/gateway", "--state-dir", state)
        self.assertRegex(said, "^fine")

    def test_an_engine_in_a_bottle_hands_on_what_the_bottle_is_told_to_trust(self):
        known = set(re.findall(r'"(\w+)"', re.search(r"_VARIABLES.*?\[(.*?)\];", CLIENT_ENV.read_text(), re.S)[1]))
        known.add(re.search(r'EXTRA_VARIABLE: &str = "(\w+)"', CLIENT_ENV.read_text())[1])
        handed_on = set(re.findall(r'"(\w+)=/etc/decant/ca/', (CONTAINERS / "nested/containers.conf").read_text()))
        self.assertEqual(handed_on, known)

    def test_the_readme_says_what_to_do_about_each_refusal(self):
        reasons = re.search(r"enum Reason \{(.*?)\n\}", REFUSALS.read_text(), re.S)[1]
        named = {name.lower() for name in re.findall(r"^    (\w+),", reasons, re.M)}
        self.assertIn("detector", named)
        table = README.read_text().partition("| a refusal says | do |")[2].partition("\n\n")[0]
        self.assertEqual(named - set(re.findall(r"`(\w+)`", table)), set())

    def test_systemd_reads_the_units(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("there is no systemd-analyze")
        with tempfile.TemporaryDirectory() as folder:
            for unit in CONTAINERS.glob("systemd/*.service"):
                text = unit.read_text().replace("/usr/local/bin/decant-allocator", str(PROGRAMS / "decant-allocator"))
                Path(folder, unit.name).write_text(text)
            self.assertEqual(run("systemd-analyze", "verify", *Path(folder).iterdir()), "")

    def test_unit_and_compose_file_run_the_gateway_alike(self):
        unit = (CONTAINERS / "systemd/decant-gateway.service").read_text()
        gateway = COMPOSE.read_text().partition("  gateway:")[2].partition("  allocator:")[0]
        for name, value in re.findall(r'      (net\.[\w.]+): "(\d)"', gateway):
            self.assertIn(f"--sysctl {name}={value}", unit)
        for words in ("--read-only", "--cap-drop ALL", "no-new-privileges", "--pids-limit 256", "--memory 64m", "--memory-swap 64m"):
            self.assertIn(words, unit)

    def test_every_variable_of_the_compose_file_has_a_default(self):
        bare = [line for line in COMPOSE.read_text().splitlines() if "${" in line and ":-" not in line]
        self.assertEqual(bare, [])

    def test_the_image_is_made_from_one_text(self):
        stages = [line for line in Path(CONTAINERS / "Dockerfile").read_text().splitlines() if line.startswith("FROM")]
        self.assertEqual(len(stages), 2, "containers/build takes the last of two")

    def test_one_version_stands_everywhere(self):
        version = re.search(r'^version = "(.*)"', (CONTAINERS.parent / "Cargo.toml").read_text(), re.M)[1]
        self.assertIn(f"ARG VERSION={version}\n", (CONTAINERS / "Dockerfile").read_text())
        self.assertIn(f"\n## {version} ", (CONTAINERS.parent / "CHANGELOG.md").read_text())


if __name__ == "__main__":
    unittest.main()
