//! `decant run`: starts the gateway and stays until told to stop.

use std::io::Write as _;
use std::net::SocketAddr;

use decant_config::{Config, Mode};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::args::RunArgs;
use super::load::Source;
use super::reload::{Reloader, warn_expired};
use super::{Exit, Failure};
use crate::app::{Gateway, RuleBook};
use crate::{admin, leases, listen, telemetry};

/// Stack of a worker thread, in bytes: deep enough for a debug build's TLS handshake.
const THREAD_STACK_BYTES: usize = 2 * 1024 * 1024;

/// Runs the command.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let source = Source::new(&args.config, args.proxy, args.admin);
    let config = source.load()?;
    telemetry::init_log(&config.log);
    let book = RuleBook::compile(&config).map_err(|problems| super::load::report(&problems))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("decant")
        .thread_stack_size(THREAD_STACK_BYTES)
        .build()
        .map_err(|error| Failure::internal(format!("no runtime: {error}")))?;
    runtime.block_on(serve(&source, &config, book))
}

async fn serve(source: &Source, config: &Config, book: RuleBook) -> Result<Exit, Failure> {
    let mut proxies = Vec::new();
    for address in &config.listen.proxy {
        proxies.push(bind(*address, "listen.proxy").await?);
    }
    let admin = bind(config.listen.admin, "listen.admin").await?;
    let proxy_addresses: Vec<SocketAddr> =
        proxies.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let admin_address = admin.local_addr().ok();
    let gateway = Gateway::build(config, book, &proxy_addresses, admin_address).map_err(Failure::internal)?;
    announce(config, &gateway, &proxy_addresses, admin_address)?;
    warn_expired(&gateway);

    let (drain, drained) = watch::channel(());
    for listener in proxies {
        tokio::spawn(listen::run(listener, gateway.clone(), drained.clone()));
    }
    let (stop_admin, admin_stopped) = watch::channel(());
    tokio::spawn(admin::run(admin, gateway.clone(), admin_stopped));
    drop(drained);
    if let Some(socket) = &config.allocator {
        tokio::spawn(leases::follow(gateway.clone(), socket.clone()));
    }
    until_stopped(Reloader::new(source, &gateway, config)).await?;

    tracing::info!("draining");
    // The receivers are the connections; none left is as good as told.
    let _ = drain.send(());
    if tokio::time::timeout(gateway.budget.shutdown_grace, drain.closed()).await.is_err() {
        tracing::warn!("exchanges were cut off at the end of limits.shutdown_grace");
    }
    drop(stop_admin);
    Ok(Exit::Fine)
}

async fn bind(address: SocketAddr, setting: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address)
        .await
        .map_err(|error| Failure::internal(format!("{setting}: cannot listen on {address}: {error}")))
}

/// Waits for SIGTERM or SIGINT; reloads on SIGHUP, and when a file of the configuration has changed.
async fn until_stopped(mut reloader: Reloader<'_>) -> Result<(), Failure> {
    let mut terminate = handle(SignalKind::terminate())?;
    let mut interrupt = handle(SignalKind::interrupt())?;
    let mut hangup = handle(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => reloader.reload(),
            () = reloader.changed() => reloader.settle().await,
        }
    }
}

fn handle(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::internal(format!("cannot wait for signals: {error}")))
}

/// Says what runs, and how to send a first request through it.
fn announce(
    config: &Config,
    gateway: &Gateway,
    proxies: &[SocketAddr],
    admin: Option<SocketAddr>,
) -> Result<(), Failure> {
    let text = announcement(config, gateway, proxies, admin);
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::internal(format!("stdout: {error}")))
}

fn announcement(
    config: &Config,
    gateway: &Gateway,
    proxies: &[SocketAddr],
    admin: Option<SocketAddr>,
) -> String {
    let list =
        |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mode = match config.mode {
        Mode::Enforce => "enforce: what policy or a detector refuses is refused",
        Mode::Observe => "observe: what would be refused is recorded and passes",
    };
    let bottles: Vec<String> =
        config.bottles.iter().map(|bottle| format!("{} (policy {})", bottle.name, bottle.policy)).collect();
    let detectors = gateway.book().detectors.all().len();
    let first = proxies.first().map(ToString::to_string).unwrap_or_default();
    format!(
        "decant {version}\n\
         mode         {mode}\n\
         bottles      {bottles}\n\
         passes       {passes}\n\
         detectors    {detectors}\n\
         proxy        {proxies}\n\
         admin        {admin}\n\
         CA           {ca}\n\
         fingerprint  sha256 {fingerprint}\n\
         \n\
         A first request:\n\
         \n\
         curl --proxy http://{first} --cacert {ca} https://example.com/\n",
        version = env!("CARGO_PKG_VERSION"),
        bottles = bottles.join(", "),
        passes = passes(config),
        proxies = list(proxies),
        admin = admin.map(|address| address.to_string()).unwrap_or_default(),
        ca = gateway.ca_file.display(),
        fingerprint = gateway.leaves.authority().fingerprint(),
    )
}

/// What the policies let through, in a line.
fn passes(config: &Config) -> String {
    let hosts = config.policies.values().flat_map(|policy| &policy.routes).flat_map(|route| &route.hosts);
    let mut names: Vec<String> = hosts.map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    match names.as_slice() {
        [one] if one == "*" => "any public host, inspected both ways".to_owned(),
        names if names.len() <= 6 => names.join(", "),
        names => format!("{} and {} more hosts", names[..6].join(", "), names.len() - 6),
    }
}
