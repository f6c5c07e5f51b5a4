//! `decant run`: starts the gateway and stays until told to stop.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};

use decant_config::Config;

use super::args::RunArgs;
use super::load::Source;
use super::{Exit, Failure};
use crate::app::prepare_state_dir;
use crate::budget::Budget;
use crate::handover::{LISTENERS_MAX, Terms};
use crate::supervisor::{self, Ended, Settings, WorkerRecipe};
use crate::{probe, telemetry};

/// Runs the command.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let config = Source::new(&args.config, args.proxy, args.admin).without_pack().load()?;
    telemetry::init_log(&config.log);
    prepare_state_dir(&config.state_dir)
        .map_err(|error| Failure::internal(format!("state_dir: {}: {error}", config.state_dir.display())))?;
    let (admin, recipe) = sockets(args, &config)?;
    let settings = Settings {
        budget: Budget::new(&config.limits),
        state_dir: config.state_dir.clone(),
        admin_from: config.listen.admin_from.clone(),
        metrics_bottles: config.metrics.bottles,
        proxy: first_address(&recipe)?,
        probe_token: recipe.terms.probe_token.clone(),
    };
    drop(config);
    // It asks and waits: one thread is enough, and the least memory.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build();
    let runtime = runtime.map_err(|error| Failure::internal(format!("no runtime: {error}")))?;
    match runtime.block_on(supervisor::run(settings, recipe, admin)).map_err(Failure::internal)? {
        Ended::Told => Ok(Exit::Fine),
        // The worker has said why.
        Ended::Worker(code) if code == Exit::Config as i32 => Ok(Exit::Config),
        Ended::Worker(_) => Ok(Exit::Internal),
    }
}

/// Binds every socket, and says how workers are started that share them.
fn sockets(args: &RunArgs, config: &Config) -> Result<(TcpListener, WorkerRecipe), Failure> {
    let proxies = &config.listen.proxy;
    if proxies.len() > LISTENERS_MAX {
        return Err(Failure::config(format!("listen.proxy: at most {LISTENERS_MAX} addresses")));
    }
    let proxies = proxies.iter().map(|address| bind(*address, "listen.proxy"));
    let proxies = proxies.collect::<Result<Vec<_>, _>>()?;
    let admin = bind(config.listen.admin, "listen.admin")?;
    let terms = Terms {
        admin: admin.local_addr().map_err(Failure::internal)?,
        probe_token: probe::new_token().map_err(Failure::internal)?,
        supervisor: std::process::id(),
        before: Vec::new(),
        announce: false,
    };
    let program = std::env::current_exe()
        .map_err(|error| Failure::internal(format!("this program's own file is not known: {error}")))?;
    Ok((admin, WorkerRecipe { program, arguments: worker_arguments(args), terms, proxies }))
}

/// How many connections may wait for a worker, as far as net.core.somaxconn allows.
const BACKLOG: i32 = 4096;

fn bind(address: SocketAddr, setting: &str) -> Result<TcpListener, Failure> {
    let bound = || {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        // What lingers of an earlier process is no reason not to start (socket(7)).
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    bound().map_err(|error: std::io::Error| {
        Failure::internal(format!("{setting}: cannot listen on {address}: {error}"))
    })
}

fn first_address(recipe: &WorkerRecipe) -> Result<SocketAddr, Failure> {
    let first = recipe.proxies.first().ok_or_else(|| Failure::config("listen.proxy: no address"))?;
    first.local_addr().map_err(Failure::internal)
}

/// The worker reads the same configuration.
fn worker_arguments(args: &RunArgs) -> Vec<OsString> {
    let mut arguments = vec!["worker".into()];
    let mut add = |flag: &str, value: OsString| arguments.extend([flag.into(), value]);
    args.config.config.iter().for_each(|path| add("--config", path.into()));
    args.config.state_dir.iter().for_each(|path| add("--state-dir", path.into()));
    args.proxy.iter().for_each(|address| add("--proxy", address.to_string().into()));
    args.admin.iter().for_each(|address| add("--admin", address.to_string().into()));
    arguments
}
