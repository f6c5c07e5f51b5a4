"""The world outside, in one container: an HTTPS origin, a name server, and plain ports that nobody should reach.

    origin.py CERT KEY SITE

Everything that arrives is remembered with the address it came from and told to whoever asks `/_seen` on the control port,
so that a test can say what got through and from where. `/big/N` names N MiB; `/v2` is a registry with layers of the sizes that
its tags name, and with images of one layer each that lies as `TAG.tar` in the site; `/git` takes pushes.
"""

import hashlib
import http.server
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.parse

CONTROL_PORT, PLAIN_PORT = 8099, 8080
REPOSITORIES = "/tmp/repositories"
MIB = 1 << 20
BLOCK = bytes(hashlib.shake_128(b"a layer").digest(MIB))
# Names to addresses; what ends with a key is answered alike.
ZONE = {"test": os.environ["ORIGIN_ADDRESS"], **json.loads(os.environ.get("ORIGIN_ZONE", "{}"))}

seen, lock = [], threading.Lock()


def remember(kind, peer, what):
    with lock:
        seen.append({"kind": kind, "peer": peer, "what": what})


class Layers:
    """Layers by size in MiB, each the same block over and over, with the digest that a registry names it by."""

    known = {}

    @classmethod
    def digest(cls, mib):
        for digest, size in cls.known.items():
            if size == mib:
                return digest
        hashed = hashlib.sha256()
        for _ in range(mib):
            hashed.update(BLOCK)
        digest = "sha256:" + hashed.hexdigest()
        cls.known[digest] = mib
        return digest


MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Images:
    """By tag: a number's layer has so many MiB and is no archive, any other's is a file of the site."""

    blobs = {}

    @classmethod
    def manifest(cls, tag):
        if tag.isdigit():
            digest, size, contents = Layers.digest(int(tag)), int(tag) * MIB, []
        else:
            with open(f"{tag}.tar", "rb") as file:
                data = file.read()
            digest, size = cls.keep(data), len(data)
            contents = [digest]
        layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": size}
        config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": contents}}).encode()
        about = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": cls.keep(config), "size": len(config)}
        return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": about, "layers": [layer]}).encode()

    @classmethod
    def keep(cls, data):
        digest = digest_of(data)
        cls.blobs[digest] = data
        return digest


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    control = False
    manifests = {}

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.serve(body=b"")

    def do_HEAD(self):
        self.serve(body=b"")

    def do_POST(self):
        self.serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    do_PUT = do_POST

    def serve(self, body):
        if self.control:
            return self.answer(json.dumps(seen).encode(), "application/json")
        head = f"{self.command} {self.headers.get('Host')} {self.path} {dict(self.headers)}"
        remember("http", self.client_address[0], head + " " + body[:4096].decode("latin-1"))
        path = urllib.parse.urlsplit(self.path).path
        if path.startswith("/big/"):
            return self.blocks(int(path.removeprefix("/big/")))
        if path.startswith("/v2/"):
            return self.registry(path)
        if path.startswith("/git/"):
            return self.git(path.removeprefix("/git"), body)
        if path.startswith("/site/"):
            self.path = path.removeprefix("/site")
            return super().do_HEAD() if self.command == "HEAD" else super().do_GET()
        return self.answer(b"the origin\n", "text/plain")

    def registry(self, path):
        parts = path.strip("/").split("/")
        if len(parts) == 1:
            return self.answer(b"{}", "application/json")
        kind, name = parts[-2:]
        if kind == "manifests":
            tag = next((tag for tag, data in self.manifests.items() if digest_of(data) == name), name)
            try:
                self.manifests[tag] = Images.manifest(tag)
            except OSError:
                return self.send_error(404)
            return self.answer(self.manifests[tag], MANIFEST_TYPE)
        if kind == "blobs" and name in Images.blobs:
            return self.answer(Images.blobs[name], "application/octet-stream")
        if kind == "blobs" and name in Layers.known:
            return self.blocks(Layers.known[name])
        return self.send_error(404)

    def git(self, path, body):
        """By Git's own program for servers."""
        about = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": REPOSITORIES,
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "somebody",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": urllib.parse.urlsplit(self.path).query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
        }
        said = subprocess.run(["git", "http-backend"], input=body, env=about, stdout=subprocess.PIPE, check=True).stdout
        head, _, content = said.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.answer(content, fields["Content-Type"], int(fields.get("Status", "200")[:3]))

    def answer(self, body, kind, status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def blocks(self, mib):
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(mib * MIB))
        self.end_headers()
        if self.command != "HEAD":
            for _ in range(mib):
                self.wfile.write(BLOCK)


class ControlHandler(Handler):
    control = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    context = None

    def finish_request(self, request, client_address):
        # The handshake belongs to the connection's own thread: a client that says nothing holds up nobody.
        if self.context:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass


def serve(port, handler, context=None):
    server = Server(("0.0.0.0", port), handler)
    server.context = context
    threading.Thread(target=server.serve_forever, daemon=True).start()


def question_of(packet):
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("latin-1"))
        at += 1 + packet[at]
    return ".".join(labels).lower(), struct.unpack("!H", packet[at + 1 : at + 3])[0], packet[12 : at + 5]


def address_of(name):
    labels = name.split(".")
    return next((ZONE[end] for end in (".".join(labels[n:]) for n in range(len(labels))) if end in ZONE), None)


def name_server(port=53):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("0.0.0.0", port))
    while True:
        packet, peer = udp.recvfrom(4096)
        try:
            name, kind, question = question_of(packet)
        except (IndexError, struct.error):
            remember("udp", peer[0], repr(packet))
            continue
        remember("dns", peer[0], name)
        address = address_of(name) if kind == 1 else None
        answers = b""
        if address:
            answers = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + socket.inet_aton(address)
        code = 0x8180 if address_of(name) else 0x8183
        udp.sendto(packet[:2] + struct.pack("!HHHHH", code, 1, 1 if answers else 0, 0, 0) + question + answers, peer)


def main():
    certificate, key, site = sys.argv[1:]
    os.chdir(site)
    subprocess.run(["git", "init", "--quiet", "--bare", f"{REPOSITORIES}/pushed.git"], check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    serve(443, Handler, context)
    serve(80, Handler)
    serve(PLAIN_PORT, Handler)
    serve(CONTROL_PORT, ControlHandler)
    name_server()


if __name__ == "__main__":
    main()
