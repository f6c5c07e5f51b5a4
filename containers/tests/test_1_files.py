"""The files of the appliance, without the stack: both Composes read the compose file, the programs read their configurations."""

import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import venv
from pathlib import Path

from lab import CONTAINERS, NAME, PROGRAMS, TARGET, compose_2, docker, run

COMPOSE = CONTAINERS / "compose.yaml"
README = CONTAINERS.parent / "README.md"
CLIENT_ENV = CONTAINERS.parent / "config/src/client_env.rs"
REFUSALS = CONTAINERS.parent / "proxy/src/http/refusal.rs"
CHECKERS = ["check-jsonschema==0.39.0", "cyclonedx-python-lib[json-validation]==11.12.0"]
# What a bill of materials has to say by itself before anybody can look anything up in it.
VALIDATE_BOM = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(JsonStrictValidator(SchemaVersion.V1_5).validate_str(sys.stdin.read()))
"""
# An image with the Rust of rust-toolchain.toml, a C compiler, binutils and Python: the Dockerfile compiles in it, which takes long.
RUST_IMAGE = os.environ.get("DECANT_TEST_RUST_IMAGE")


def checkers():
    """The folder of the programs that check files against published schemas."""
    folder = TARGET / "containers-test/venv"
    wanted, mark = " ".join(CHECKERS), folder / "checkers"
    if not mark.exists() or mark.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        run(folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *CHECKERS, timeout=300)
        mark.write_text(wanted)
    return folder / "bin"


class Files(unittest.TestCase):
    def test_docker_compose_1_reads_the_compose_file(self):
        services = run("docker-compose", "--file", COMPOSE, "config", "--services").split()
        self.assertEqual(sorted(services), ["allocator", "gateway", "grafana", "prometheus"])

    def test_it_keeps_to_the_specification_that_compose_2_reads(self):
        run(checkers() / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)

    def test_the_bill_of_materials_is_one_and_whole(self):
        bill_of = lambda: subprocess.run([CONTAINERS / "sbom", "--commit", "0123456789ab"], stdout=subprocess.PIPE, text=True, check=True).stdout
        said = bill_of()
        self.assertEqual(run(checkers() / "python", "-c", VALIDATE_BOM, input=said), "")
        bill = json.loads(said)
        listed = {(one["name"], one["version"]) for one in bill["components"]}
        locked = set(re.findall(r'^name = "(.*)"\nversion = "(.*)"$', (CONTAINERS.parent / "Cargo.lock").read_text(), re.M))
        self.assertEqual(listed - locked, set())
        names = {name for name, _ in listed}
        self.assertLessEqual({"decant-proxy", "decant-allocator", "hyper", "rustls"}, names)
        self.assertNotIn("proptest", names, "what tests alone need is not shipped")
        self.assertEqual(said, bill_of(), "the same source gives the same bytes")

    @unittest.skipUnless(RUST_IMAGE, "DECANT_TEST_RUST_IMAGE names no image to compile in")
    def test_the_dockerfile_makes_the_image_by_itself(self):
        commit, tag, root = "0123456789ab", f"{NAME}-registry:run", CONTAINERS.parent
        docker("build", "--file", CONTAINERS / "Dockerfile", "--build-arg", f"RUST_IMAGE={RUST_IMAGE}", "--build-arg", f"COMMIT={commit}",
               "--tag", tag, root, timeout=3600)
        size, user, revision = docker("image", "inspect", "--format", "{{.Size}}|{{.Config.User}}|"
                                      '{{index .Config.Labels "org.opencontainers.image.revision"}}', tag).split("|")
        self.assertLess(int(size), 25 << 20)
        self.assertEqual((user, revision), ("65532:65532", commit))
        # That they run where nothing else is shows that they are static.
        for program in ("decant", "decant-allocator"):
            self.assertIn(f"({commit})", docker("run", "--rm", "--read-only", "--entrypoint", f"/usr/bin/{program}", tag, "--version"))

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

    def test_the_worked_example_of_the_readme_works(self):
        blocks = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.S)
        starting = lambda words: next(block for block in blocks if block.startswith(words))
        detector = starting("# team.yaml")
        gateway = starting("version: 1\nmode:") + "detectors: {files: [team.yaml]}\n" + starting("tests:") + starting("exceptions:")
        leak = '{"key": "' + re.search("match: \\['(\\w+)'", detector)[1] + '"}\n'
        with tempfile.TemporaryDirectory() as folder:
            write = lambda name, data: Path(folder, name).write_bytes(data)
            write("gateway.yaml", gateway.encode())
            write("leak.json", leak.encode())
            write("leak.json.gz", gzip.compress(leak.encode()))
            decant = lambda verb, *words: run(PROGRAMS / "decant", verb, "--config", "gateway.yaml", *words, cwd=folder, check=False)
            check = lambda: decant("check", "--state-dir", f"{folder}/state")
            write("team.yaml", detector.encode())
            self.assertRegex(check(), r"^gateway.yaml:\d+:\d+: `acme-key` must stop this request.*$", "while it only alerts")
            self.assertIn("acme_", decant("explain", "acme-key"))
            self.assertRegex(decant("scan", "leak.json"), r"^leak.json:\d+: acme-key")
            write("team.yaml", detector.replace("action: alert", "action: block").encode())
            self.assertRegex(check(), "^fine")

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
