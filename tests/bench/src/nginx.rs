//! nginx as a TLS reverse proxy: the thing to compare with, set up to do this job as well as it can.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use decant_tests::ca::TestCa;
use tempfile::TempDir;
use tokio::net::TcpStream;

/// A running nginx of one process.
pub(crate) struct Nginx {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Nginx {
    /// Starts nginx in front of `origin`, with a certificate for `name` and the origin verified against `ca`.
    pub(crate) async fn start(ca: &TestCa, name: &str, origin: SocketAddr) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let leaf = ca.leaf(&[name]);
        let put =
            |file: &str, text: &str| fs::write(folder.path().join(file), text).expect("a writable folder");
        put("cert.pem", &leaf.chain_pem);
        put("key.pem", &leaf.key_pem);
        put("ca.pem", ca.pem());
        let address = free_address();
        put("nginx.conf", &configuration(&folder.path().display().to_string(), name, address, origin));
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        command.args(["-e", "stderr"]).stdin(Stdio::null());
        let child = command.spawn().expect("nginx starts: is it installed?");
        let nginx = Self { child, address, _folder: folder };
        nginx.wait_until_listening().await;
        nginx
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    async fn wait_until_listening(&self) {
        for _attempt in 0..500 {
            if TcpStream::connect(self.address).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nginx does not listen on {}", self.address);
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener")
}

fn configuration(folder: &str, name: &str, address: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off; server_tokens off; keepalive_requests 100000000; client_max_body_size 0;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream origin {{ server {origin}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen {address} ssl http2;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
    location / {{
      proxy_pass https://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
      proxy_ssl_server_name on; proxy_ssl_name {name}; proxy_ssl_verify on;
      proxy_ssl_trusted_certificate {folder}/ca.pem; proxy_ssl_protocols TLSv1.2 TLSv1.3;
      proxy_buffers 16 16k; proxy_max_temp_file_size 0; proxy_request_buffering off;
    }}
  }}
}}
"
    )
}
