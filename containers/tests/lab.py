"""The lab: the appliance on images made here, a world outside in one container, and bottles.

Everything it makes carries its own name and lives in its own network range, and is gone at the end. Traffic goes to what it
made and to nothing else. What takes long to make (the Debian folder of bottles) is kept in the target folder.
"""

import atexit
import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

CONTAINERS = Path(__file__).resolve().parent.parent
TESTS = CONTAINERS / "tests"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", CONTAINERS.parent / "target")).resolve()
PROGRAMS = Path(os.environ.get("DECANT_PROGRAMS", TARGET / "x86_64-unknown-linux-gnu/release"))

NAME = "decant-test"
IMAGE = f"{NAME}:run"
# The same programs in another image, to upgrade to and to roll back from.
NEXT_IMAGE = f"{NAME}:next"
BOTTLE_IMAGE = f"{NAME}-bottle:run"
PROMETHEUS_IMAGE = f"{NAME}-prometheus:run"
UPLINK, HOST_ON_UPLINK, GATEWAY, ORIGIN = "10.201.0.0/28", "10.201.0.1", "10.201.0.2", "10.201.0.5"
POOL = "10.201.128.0/17"
ADMIN_PORT, ALLOCATOR_PORT, PROMETHEUS_PORT, HOST_PORT = 28190, 28191, 28090, 28777
NAMES = ["origin.test", "alias.test", "git.test", "pypi.test", "registry.test"]
DEBIAN = ["ca-certificates", "curl", "git", "iproute2", "python3", "python3-pip"]
# Their dependencies name packages that several provide, which debootstrap cannot choose among.
ENGINES = ["skopeo", "podman", "crun", "slirp4netns"]
RP_FILTER = Path("/proc/sys/net/ipv4/conf/default/rp_filter")
# The second factor of a bottle that none of the lab's is.
TOKEN = "of-another-bottle"
# A fixed address that answers for one name, for the tests of addresses.
ZONE = {"metadata.test": "169.254.169.254", "host.test": HOST_ON_UPLINK, "gateway.test": GATEWAY}

GATEWAY_OVERLAY = """
version: 1
listen: {{admin_from: [127.0.0.0/8, {uplink}]}}
upstream:
  roots: [bundled, ../test-ca.pem]
  addresses: {{allow: [10.201.0.0/16]}}
bottles:
  - {{name: fixed, sources: [192.0.2.77/32], token: {{sha256: {token}}}, policy: open}}
policies:
  default:
    routes:
      - {{name: pushes, hosts: [git.test], git: {{push: allow}}}}
      - {{name: origin, hosts: [{names}, "*.wild.test"]}}
  open:
    routes:
      - {{name: anything, hosts: ["*"], ports: ["1-65535"]}}
"""


class Failed(Exception):
    """A command that had to succeed and did not."""


def run(*command, check=True, timeout=120, **options):
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, **options
    )
    if check and done.returncode:
        raise Failed(f"{command} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout.strip()


def docker(*arguments, **options):
    return run("docker", *arguments, **options)


def compose_2():
    """The command of a Compose v2: Docker's own plugin, else Debian's of a later release, which is kept in the target folder."""
    with contextlib.suppress(Failed):
        run("docker", "compose", "version")
        return ["docker", "compose"]
    folder = TARGET / "containers-test/compose"
    plugin = folder / "usr/libexec/docker/cli-plugins/docker-compose"
    if not plugin.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "lists/partial").mkdir(parents=True)
        key = "/usr/share/keyrings/debian-archive-keyring.gpg"
        (folder / "trixie.list").write_text(f"deb [signed-by={key}] http://deb.debian.org/debian trixie main\n")
        places = {"Dir::Etc::SourceList": folder / "trixie.list", "Dir::Etc::SourceParts": "/dev/null", "Dir::State::Lists": folder / "lists",
                  "Dir::Cache": folder}
        options = [f"--option={name}={value}" for name, value in places.items()]
        try:
            run("apt-get", *options, "-qq", "update")
            run("apt-get", *options, "-qq", "download", "docker-compose", cwd=folder)
            run("dpkg-deb", "--extract", *folder.glob("docker-compose_*.deb"), folder)
        except (Failed, OSError):
            return None
    return [plugin]


def until(what, condition, seconds=30, every=0.05):
    """Waits for a condition that nothing announces; its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(Failed, OSError, ValueError, KeyError, IndexError):
            found = condition()
            if found:
                return found
        time.sleep(every)
    raise AssertionError(f"not within {seconds} s: {what}")


def get(url, seconds=10):
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return answer.read().decode()


def aws_key():
    """Right in form, and nobody's: no whole key stands in the source."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    return "AK" + "IA" + random.choice(letters[16:]) + "".join(random.choice(letters) for _ in range(15))


def peak(name):
    """The most memory that a container had in use, in bytes; none where control groups lie elsewhere."""
    container = docker("inspect", "--format", "{{.Id}}", name)
    places = [f"memory/docker/{container}/memory.max_usage_in_bytes", f"system.slice/docker-{container}.scope/memory.peak",
              f"docker/{container}/memory.peak"]
    found = next((path for path in (Path("/sys/fs/cgroup", place) for place in places) if path.exists()), None)
    return int(found.read_text()) if found else None


class Bottle:
    """A container that lives until its lease is released."""

    def __init__(self, lab, name, policy=None, options=()):
        self.lab, self.name = lab, f"{NAME}-{name}"
        asked = ["--policy", policy] if policy else []
        self.lease = json.loads(lab.allocator("acquire", "--internal", "--session", self.name, *asked))
        self.start(options)

    def start(self, options=()):
        docker("run", "-d", "--name", self.name, "--label", f"{NAME}=1", *self.lease["docker_args"],
               "--volume", f"{TESTS}/attempt.py:/attempt.py:ro", "--tmpfs", "/data", *options, BOTTLE_IMAGE, "sleep", "infinity")

    @property
    def gateway(self):
        return re.search(r"//([\d.]+):", self.lease["proxy"]["url"])[1]

    @property
    def subnet(self):
        return self.lease["subnet"]["cidr"]

    @property
    def address(self):
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return docker("inspect", "--format", form, self.name)

    def sh(self, command, check=False, timeout=120):
        return docker("exec", self.name, "bash", "-c", command, check=check, timeout=timeout)

    def attempt(self, words):
        return self.sh(f"python3 /attempt.py {words}")

    def remove(self):
        docker("rm", "-f", self.name, check=False)
        self.lab.allocator("release", self.lease["id"], check=False)


class Lab:
    def __init__(self):
        # Not below the target folder: the paths of Unix sockets have 108 bytes.
        self.dir = Path(tempfile.mkdtemp(prefix=f"{NAME}-", dir=os.environ.get("DECANT_TEST_DIR", "/var/tmp")))
        self.client = self.dir / "decant-allocator"
        self.bottles = []
        self.image = IMAGE
        self.rp_filter = RP_FILTER.read_text()
        self.composer = compose_2() if os.environ.get("DECANT_TEST_COMPOSE") == "2" else ["docker-compose"]

    # ---- images

    def images(self):
        source = ["--from", PROGRAMS] if (PROGRAMS / "decant").exists() else []
        run(CONTAINERS / "build", "--tag", IMAGE, *source, timeout=1800)
        run(CONTAINERS / "build", "--tag", NEXT_IMAGE, "--from", PROGRAMS, env={**os.environ, "DECANT_COMMIT": "next"})
        self.bottle_image()
        with tempfile.TemporaryDirectory() as context:
            shutil.copy(shutil.which("prometheus"), context)
            Path(context, "Dockerfile").write_text(
                f"FROM {BOTTLE_IMAGE}\nCOPY prometheus /usr/bin/\nRUN install -d -o 65534 /prometheus\n"
                "USER 65534\nENTRYPOINT [\"/usr/bin/prometheus\"]\n"
            )
            docker("build", "--quiet", "--tag", PROMETHEUS_IMAGE, context)

    def bottle_image(self):
        if docker("image", "ls", "--quiet", BOTTLE_IMAGE):
            return
        folder = TARGET / "containers-test/rootfs"
        if not (folder / "usr/bin/podman").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            run("debootstrap", "--variant=minbase", f"--include={','.join(DEBIAN)}", "bookworm", folder,
                "http://deb.debian.org/debian", timeout=900)
            run("chroot", folder, "apt-get", "-y", "-qq", "install", "--no-install-recommends", *ENGINES, timeout=300)
        archive = subprocess.Popen(["tar", "-C", folder, "--exclude=./var/cache/apt", "--exclude=./var/lib/apt/lists", "-c", "."],
                                   stdout=subprocess.PIPE)
        docker("import", "-", BOTTLE_IMAGE, stdin=archive.stdout, timeout=600)

    # ---- the world outside

    def certificates(self):
        names = [*NAMES, "*.wild.test"]
        (self.dir / "config").mkdir()
        (self.dir / "origin").mkdir()
        subject = ",".join(f"DNS:{name}" for name in names) + f",IP:{ORIGIN}"
        ca, origin = self.dir / "origin/ca.key", self.dir / "origin"
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-keyout", ca, "-out", self.dir / "config/test-ca.pem", "-subj", "/CN=the lab")
        run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", origin / "key.pem", "-out", origin / "request.pem", "-subj", "/CN=origin.test")
        (origin / "extensions").write_text(f"subjectAltName={subject}\nextendedKeyUsage=serverAuth\n")
        run("openssl", "x509", "-req", "-days", "2", "-in", origin / "request.pem", "-CA", self.dir / "config/test-ca.pem",
            "-CAkey", ca, "-CAcreateserial", "-extfile", origin / "extensions", "-out", origin / "cert.pem")

    def site(self):
        """A repository to clone and an index with one package."""
        site = self.dir / "origin/site"
        package = site / "simple/demo"
        package.mkdir(parents=True)
        with zipfile.ZipFile(package / "demo-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("demo.py", "answer = 42\n")
            wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
            wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr("demo-1.0.dist-info/RECORD", "")
        (package / "index.html").write_text('<a href="demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>\n')
        work = self.dir / "work"
        run("git", "init", "-q", work)
        (work / "file").write_text("cloned\n")
        run("git", "-C", work, "add", "file")
        run("git", "-C", work, "-c", "user.name=lab", "-c", "user.email=lab@test", "commit", "-qm", "first")
        run("git", "clone", "-q", "--bare", work, site / "demo.git")
        run("git", "-C", site / "demo.git", "update-server-info")
        self.nested_image(site / "nested.tar")

    def nested_image(self, layer):
        """The layer of an image for an engine in a bottle, which lends it its programs: what is below /usr is mounted there."""
        with tarfile.open(layer, "w") as archive:
            for name in ("usr", "etc", "proc", "sys", "dev", "tmp"):
                about = tarfile.TarInfo(name)
                about.type, about.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(about)
            for name in ("bin", "lib", "lib64", "sbin"):
                about = tarfile.TarInfo(name)
                about.type, about.linkname = tarfile.SYMTYPE, f"usr/{name}"
                archive.addfile(about)
            # Of another owner, as files in images are.
            about = tarfile.TarInfo("tmp/pulled")
            about.uid, about.size = 1234, 7
            archive.addfile(about, io.BytesIO(b"pulled\n"))

    def origin(self):
        docker("run", "-d", "--name", f"{NAME}-origin", "--label", f"{NAME}=1", "--network", f"{NAME}-uplink", "--ip", ORIGIN,
               "--volume", f"{TESTS}:/tests:ro", "--volume", f"{self.dir}/origin:/origin:ro",
               "--env", f"ORIGIN_ADDRESS={ORIGIN}", "--env", f"ORIGIN_ZONE={json.dumps(ZONE)}",
               BOTTLE_IMAGE, "python3", "/tests/origin.py", "/origin/cert.pem", "/origin/key.pem", "/origin/site")
        until("the origin answers", lambda: self.seen() is not None)

    def seen(self):
        """What arrived outside so far."""
        return json.loads(get(f"http://{ORIGIN}:8099/_seen"))

    # ---- the appliance

    def configure(self):
        config = self.dir / "config"
        shutil.copytree(CONTAINERS / "config/gateway", config / "gateway")
        (config / "gateway/zz-lab.yaml").write_text(GATEWAY_OVERLAY.format(uplink=UPLINK, names=", ".join(NAMES), token=hashlib.sha256(TOKEN.encode()).hexdigest()))
        text = (CONTAINERS / "config/allocator.yaml").read_text()
        text = text.replace("decant-gateway", f"{NAME}-gateway").replace("10.252.0.0/16", POOL)
        (config / "allocator.yaml").write_text(text.replace("drain: 30s", "drain: 1s, grace: 2s") + "ports: {range: 28800-28899}\n")
        (self.dir / "resolv.conf").write_text(f"nameserver {ORIGIN}\n")
        prometheus = self.dir / "prometheus"
        shutil.copytree(CONTAINERS / "prometheus", prometheus)
        scrape = (prometheus / "prometheus.yml").read_text()
        scrape = scrape.replace(":9190", f":{ADMIN_PORT}").replace(":9191", f":{ALLOCATOR_PORT}")
        (prometheus / "prometheus.yml").write_text(re.sub(r"_interval: \d+s", "_interval: 1s", scrape))

    def environment(self):
        return {
            **os.environ,
            "DECANT_NAME": NAME,
            "DECANT_IMAGE": self.image,
            "DECANT_PROMETHEUS_IMAGE": PROMETHEUS_IMAGE,
            "DECANT_UPLINK_SUBNET": UPLINK,
            "DECANT_UPLINK_ADDRESS": GATEWAY,
            "DECANT_ADMIN_PORT": str(ADMIN_PORT),
            "DECANT_ALLOCATOR_PORT": str(ALLOCATOR_PORT),
            "DECANT_PROMETHEUS_PORT": str(PROMETHEUS_PORT),
            "DECANT_CONFIG_DIR": str(self.dir / "config"),
            "DECANT_PROMETHEUS_DIR": str(self.dir / "prometheus"),
            "DECANT_RESOLV_CONF": str(self.dir / "resolv.conf"),
            "DECANT_RUN_DIR": str(self.dir / "run"),
            "DECANT_STATE_DIR": str(self.dir / "state"),
            "DECANT_SYSCTL_FILE": str(self.dir / "sysctl.conf"),
            "XDG_CACHE_HOME": str(self.dir / "cache"),
            "DECANT_COMPOSE": str(self.composer[0]) if len(self.composer) == 1 else "",
        }

    def compose(self, *arguments):
        return run(*self.composer, "--project-name", NAME, "--file", CONTAINERS / "compose.yaml", *arguments, env=self.environment())

    def up(self):
        self.images()
        self.certificates()
        self.site()
        self.configure()
        self.change_to(IMAGE)
        self.origin()
        made = docker("create", IMAGE)
        docker("cp", f"{made}:/usr/bin/decant-allocator", self.client)
        docker("rm", made)

    def change_to(self, image):
        """As an operator upgrades and rolls back."""
        self.image = image
        run(CONTAINERS / "up", "gateway", "allocator", "prometheus", env=self.environment(), timeout=180)

    def allocator(self, verb, *arguments, check=True):
        return run(self.client, verb, "--socket", self.dir / "run/allocator.sock", *arguments, check=check)

    def ready(self):
        return get(f"http://127.0.0.1:{ADMIN_PORT}/readyz")

    def bottle(self, name, policy=None, options=()):
        bottle = Bottle(self, name, policy, options)
        self.bottles.append(bottle)
        return bottle

    def prometheus(self, query):
        url = f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        return json.loads(get(url))["data"]["result"]

    def pid(self, service):
        return int(docker("inspect", "--format", "{{.State.Pid}}", f"{NAME}-{service}"))

    def down(self):
        for bottle in self.bottles:
            bottle.remove()
        with contextlib.suppress(AssertionError):
            until("leases end", lambda: not docker("network", "ls", "-q", "--filter", "label=decant.session", check=True)
                  or not self.networks(), seconds=20, every=0.2)
        sweep(self)
        RP_FILTER.write_text(self.rp_filter)
        shutil.rmtree(self.dir, ignore_errors=True)

    def networks(self):
        return lab_networks()

    def store(self):
        """The allocator's database."""
        return next((self.dir / "state/allocator").glob("*.db"))


def lab_networks():
    """The networks of this lab's leases, by the sessions that they are labelled with."""
    listed = docker("network", "ls", "--filter", "label=decant.session", "--format", "{{.ID}} {{.Label \"decant.session\"}}")
    return [line.split()[0] for line in listed.splitlines() if line.partition(" ")[2].startswith(NAME)]


def sweep(lab=None):
    """Removes what this run, or one that was broken off, has left."""
    owned = docker("ps", "-aq", "--filter", f"label={NAME}")
    if owned:
        docker("rm", "-f", *owned.split())
    if lab:
        lab.compose("down", "--volumes", "--timeout", "5")
    for service in ("gateway", "allocator", "prometheus"):
        docker("rm", "-f", f"{NAME}-{service}", check=False)
    for network in [*lab_networks(), f"{NAME}-uplink"]:
        docker("network", "rm", network, check=False)


_shared = None


def shared():
    """The one lab of this run, brought up by the first test that asks for it and taken down at the end."""
    global _shared
    if _shared is None:
        sweep()
        _shared = Lab()
        atexit.register(_shared.down)
        _shared.up()
    return _shared
