"""The files of the appliance, without the stack: both Composes read the compose file, the programs read their configurations."""

import tempfile
import unittest
import venv
from pathlib import Path

from lab import CONTAINERS, PROGRAMS, TARGET, run

COMPOSE = CONTAINERS / "compose.yaml"
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

    def test_the_gateway_accepts_its_configuration(self):
        with tempfile.TemporaryDirectory() as state:
            said = run(PROGRAMS / "decant", "check", "--config", CONTAINERS / "config/gateway", "--state-dir", state)
        self.assertRegex(said, "^fine")

    def test_every_variable_of_the_compose_file_has_a_default(self):
        bare = [line for line in COMPOSE.read_text().splitlines() if "${" in line and ":-" not in line]
        self.assertEqual(bare, [])

    def test_the_image_is_made_from_one_text(self):
        stages = [line for line in Path(CONTAINERS / "Dockerfile").read_text().splitlines() if line.startswith("FROM")]
        self.assertEqual(len(stages), 2, "containers/build takes the last of two")


if __name__ == "__main__":
    unittest.main()
