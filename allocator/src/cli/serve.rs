//! `serve`: from a configuration file and flags to settings, then run until a signal.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use decant_config::{AllocatorConfig, Docker, Gateway, OnExpire as ConfiguredEnd, load_allocator};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{Failure, environment};
use crate::app::{App, StartError};
use crate::error::chain;
use crate::settings::{EngineChoice, GatewayChoice, LeaseTimes, OnExpire, Settings};

/// The folder for sockets where it can be made.
pub(super) const RUN_DIR: &str = "/run/decant";

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The configuration (YAML); without it, the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of the store; the configuration's state_dir
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The socket to serve leases on; gateway.sock stands beside it
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where metrics and health are served
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Log as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn serve(args: ServeArgs) -> Result<(), Failure> {
    start_log(args.json);
    raise_descriptor_limit();
    let config = load_allocator(args.config.as_deref(), &environment()).map_err(|problems| {
        Failure::new(Failure::CONFIG, format!("the configuration has problems\n{problems}"))
    })?;
    let settings = settings_of(config, &args);
    let signals =
        |kind| signal(kind).map_err(|error| Failure::internal(format!("signals cannot be caught: {error}")));
    let (mut terminated, mut interrupted) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let mut app = App::start(settings).await.map_err(|error| {
        let code = if matches!(error, StartError::Settings(_)) { Failure::CONFIG } else { Failure::INTERNAL };
        Failure::new(code, chain(&error))
    })?;
    let metrics = app.metrics().map(|address| address.to_string()).unwrap_or_default();
    tracing::info!(socket = %app.socket().display(), %metrics, "serving leases");
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
        () = app.failed() => return Err(Failure::internal("the allocator cannot go on; see the log")),
    }
    tracing::info!("ending");
    app.stop().await;
    Ok(())
}

/// As many descriptors as this process may have: guard sockets take up to two for each leased port.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Refused or not, the process runs with what it has.
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn start_log(json: bool) {
    let filter = EnvFilter::try_from_env("DECANT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let set = if json { builder.json().try_init() } else { builder.with_ansi(false).try_init() };
    // Only a log that is set already can fail here, and then there is one.
    drop(set);
}

fn settings_of(config: AllocatorConfig, args: &ServeArgs) -> Settings {
    let state_dir = args.state_dir.clone().unwrap_or(config.state_dir);
    let socket = args.socket.clone().or(config.socket).unwrap_or_else(|| default_socket(&state_dir));
    Settings {
        ports: config.ports.range,
        excluded: config.ports.exclude.into_iter().flatten().collect(),
        allow_ephemeral: config.ports.allow_ephemeral,
        guard: config.ports.guard,
        pool: config.subnets.pool,
        prefix: config.subnets.prefix,
        strict_routes: config.subnets.strict_routes,
        times: LeaseTimes { ttl: config.leases.ttl, drain: config.leases.drain, grace: config.leases.grace },
        on_expire: match config.leases.on_expire {
            ConfiguredEnd::Cut => OnExpire::Cut,
            ConfiguredEnd::Stop => OnExpire::Stop,
        },
        engine: match config.docker {
            Docker::Auto => EngineChoice::Auto,
            Docker::Socket(path) => EngineChoice::Socket(path),
            Docker::Off => EngineChoice::None,
        },
        gateway: match config.gateway {
            None => GatewayChoice::None,
            Some(Gateway::Container { name, proxy_port }) => GatewayChoice::Container { name, proxy_port },
            Some(Gateway::Host { proxy_port }) => GatewayChoice::Host { proxy_port },
            Some(Gateway::Url(url)) => GatewayChoice::Url(url),
        },
        state_dir,
        socket,
        group: config.group,
        gateway_group: config.gateway_group,
        listen: Some(args.listen.unwrap_or(config.listen)),
    }
}

/// `/run/decant` where that folder can be made and written, else the state folder.
fn default_socket(state_dir: &Path) -> PathBuf {
    let run = Path::new(RUN_DIR);
    let usable =
        std::fs::create_dir_all(run).is_ok() && rustix::fs::access(run, rustix::fs::Access::WRITE_OK).is_ok();
    let dir = if usable { run } else { state_dir };
    dir.join(SOCKET_NAME)
}

/// The lease socket's name in its folder.
pub(super) const SOCKET_NAME: &str = "allocator.sock";
