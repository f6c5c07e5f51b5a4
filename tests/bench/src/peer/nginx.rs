//! nginx as a TLS reverse proxy, one process: what every other proxy is measured by.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Surroundings, write};

/// nginx in front of the origin, with a certificate for its name and the origin verified.
pub(super) fn command(folder: &Path, address: SocketAddr, around: &Surroundings<'_>) -> Command {
    let leaf = around.ca.leaf(&[around.name]);
    write(folder, "leaf.pem", &leaf.chain_pem);
    write(folder, "leaf.key.pem", &leaf.key_pem);
    let text = configuration(&folder.display().to_string(), around.name, address, around.origin);
    write(folder, "nginx.conf", &text);
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf")).args(["-e", "stderr"]);
    command
}

fn configuration(folder: &str, name: &str, address: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  access_log off; server_tokens off; keepalive_requests 100000000; client_max_body_size 0;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream origin {{ server {origin}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen {address} ssl http2;
    ssl_certificate {folder}/leaf.pem; ssl_certificate_key {folder}/leaf.key.pem; ssl_protocols TLSv1.2 TLSv1.3;
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
