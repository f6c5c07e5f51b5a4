//! The programs that the script-language clients run. Each gets the URLs and the secret in its environment and ends
//! with an error where something is not as it should be.

use std::fs;
use std::path::Path;

use super::{Place, finish};

/// Runs `script` with `interpreter`; returns what it printed.
pub(super) async fn run(place: &Place, interpreter: &Path, script: &str, secret: &str) -> String {
    fs::write(place.path("script"), script).expect("a writable folder");
    let mut command = place.command(interpreter);
    command.arg("script").env("SITE_URL", place.url("/x")).env("DENIED_URL", place.denied("/x"));
    command.env("SECRET", secret).env("NODE_PATH", "/usr/share/nodejs");
    finish(&mut command).await.succeeds()
}

/// Python requests: an upload that passes, a host that is denied, a secret that is refused.
pub(super) const REQUESTS: &str = r#"
import hashlib, os, requests
site, denied, secret = (os.environ[name] for name in ("SITE_URL", "DENIED_URL", "SECRET"))
body = b"words " * 200000
passed = requests.post(site, data=body)
assert passed.text == f"{len(body)} {hashlib.sha256(body).hexdigest()}", passed.text
streamed = requests.post(site, data=(body[at:at + 60000] for at in range(0, len(body), 60000)))
assert streamed.text == passed.text, streamed.text
refused = requests.get(denied)
assert refused.status_code == 403 and refused.reason == "Blocked by Decant: policy denied.test", refused.reason
assert refused.json()["reason"] == "policy", refused.text
blocked = requests.post(site, json={"token": secret})
assert blocked.status_code == 403 and blocked.json()["detector"] == "github-pat", blocked.text
assert blocked.json()["surface"] == "body" and blocked.json()["offset"] == 11, blocked.text
try:
    blocked.raise_for_status()
except requests.HTTPError as error:
    assert "Blocked by Decant: detector site.test" in str(error), error
print(blocked.text)
"#;

/// Python requests: fifty mebibytes whose first bytes hold a secret.
pub(super) const LARGE_UPLOAD: &str = r#"
import os, requests
site, secret = os.environ["SITE_URL"], os.environ["SECRET"]
body = (f"token = {secret}\n").encode() + b"words " * (50 * 1024 * 1024 // 6)
read, problems = 0, []
for attempt in range(30):
    try:
        answer = requests.post(site, data=body, timeout=60)
        if answer.status_code == 403 and answer.json()["detector"] == "github-pat":
            read += 1
    except Exception as error:
        problems.append(f"{attempt}: {error!r}"[:200])
print(f"{read} of 30", *problems, sep="\n")
"#;

/// Python httpx over HTTP/1.1 and HTTP/2.
pub(super) const HTTPX: &str = r#"
import hashlib, os, httpx
site, denied, secret = (os.environ[name] for name in ("SITE_URL", "DENIED_URL", "SECRET"))
body = b"words " * 200000
for h2 in (False, True):
    with httpx.Client(http2=h2, timeout=60) as client:
        passed = client.post(site, content=body)
        assert passed.http_version == ("HTTP/2" if h2 else "HTTP/1.1"), passed.http_version
        assert passed.text == f"{len(body)} {hashlib.sha256(body).hexdigest()}", passed.text
        refused = client.get(denied)
        assert refused.status_code == 403 and refused.json()["reason"] == "policy", refused.text
        if not h2:
            assert refused.reason_phrase == "Forbidden" or "denied.test" in str(refused.extensions), refused
        blocked = client.post(site, json={"token": secret})
        assert blocked.status_code == 403 and blocked.json()["detector"] == "github-pat", blocked.text
        again = client.post(site, content=b"words")
        assert again.status_code == 200, "the connection stays usable"
"#;

/// Python aiohttp, which reads the proxy's variables only where its session is told to.
pub(super) const AIOHTTP: &str = r#"
import aiohttp, asyncio, hashlib, os
site, denied, secret = (os.environ[name] for name in ("SITE_URL", "DENIED_URL", "SECRET"))
body = b"words " * 200000
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.post(site, data=body) as passed:
            text = await passed.text()
            assert text == f"{len(body)} {hashlib.sha256(body).hexdigest()}", text
        async with session.get(denied) as refused:
            assert refused.status == 403 and refused.reason == "Blocked by Decant: policy denied.test", refused
            assert (await refused.json(content_type=None))["reason"] == "policy"
        async with session.post(site, json={"token": secret}) as blocked:
            assert blocked.status == 403 and (await blocked.json(content_type=None))["detector"] == "github-pat"
        async with session.post(site, data=b"words") as again:
            assert again.status == 200, "the session stays usable"
asyncio.run(main())
"#;

/// Node with undici's ProxyAgent.
pub(super) const UNDICI: &str = r#"
const assert = require("node:assert");
const fs = require("node:fs");
const { ProxyAgent, fetch } = require("undici");
const { SITE_URL, DENIED_URL, SECRET, HTTPS_PROXY, SSL_CERT_FILE } = process.env;
const ca = fs.readFileSync(SSL_CERT_FILE);
const dispatcher = new ProxyAgent({ uri: HTTPS_PROXY, requestTls: { ca } });
(async () => {
  const passed = await fetch(SITE_URL, { method: "POST", body: "words ".repeat(100000), dispatcher });
  assert.ok((await passed.text()).startsWith("600000 "));
  const refused = await fetch(DENIED_URL, { dispatcher });
  assert.strictEqual(refused.status, 403);
  assert.strictEqual(refused.statusText, "Blocked by Decant: policy denied.test");
  assert.strictEqual((await refused.json()).reason, "policy");
  const blocked = await fetch(SITE_URL, { method: "POST", body: `token ${SECRET}`, dispatcher });
  assert.strictEqual(blocked.status, 403);
  const { detector, surface, offset } = await blocked.json();
  assert.deepStrictEqual([detector, surface, offset], ["github-pat", "body", 6]);
  await dispatcher.close();
})().catch((error) => { console.error(error); process.exit(1); });
"#;
