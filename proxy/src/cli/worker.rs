//! `decant worker`: the process that carries the data. Started by `decant run` alone, so no help shows it.

use std::net::SocketAddr;

use decant_config::{Config, SecretFrom};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::announce::announce;
use super::args::RunArgs;
use super::load::Source;
use super::reload::{Reloader, warn_expired};
use super::{Exit, Failure};
use crate::app::{Gateway, Place, RuleBook, leave_room_for};
use crate::handover::Handover;
use crate::journal::Journal;
use crate::probe::Probe;
use crate::secrets::Canaries;
use crate::telemetry;
use crate::worker::api::Api;
use crate::worker::{self, Serving};

/// Stack of a worker thread, in bytes: deep enough for a debug build's TLS handshake.
const THREAD_STACK_BYTES: usize = 2 * 1024 * 1024;

/// Runs the command.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let handover = worker::take_over().map_err(Failure::usage)?;
    let source = Source::new(&args.config, args.proxy, args.admin);
    let (config, book, problems) = usable(&source, &handover)?;
    telemetry::init_log(&config.log);
    if let Some(problems) = &problems {
        tracing::error!(problems, "the configuration cannot be used; the one that was last in force is");
    }
    let journal = || handover.journal.try_clone().map(Journal::new).map_err(Failure::internal);
    worker::note_panics(journal()?);
    let journal = journal()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("decant")
        .thread_stack_size(THREAD_STACK_BYTES)
        .build()
        .map_err(|error| Failure::internal(format!("no runtime: {error}")))?;
    runtime.block_on(serve(&source, &config, book, handover, journal))
}

/// The configuration of the files; where that has gone bad since a worker before this one read it, the one that was last
/// in force, and what is wrong with the files.
fn usable(source: &Source, handover: &Handover) -> Result<(Config, RuleBook, Option<String>), Failure> {
    let compiled = |config: Config| {
        make_canaries(&config)?;
        let book = RuleBook::compile(&config).map_err(|problems| super::load::report(&problems))?;
        Ok((config, book))
    };
    let failure = match source.load().and_then(compiled) {
        Ok((config, book)) => return Ok((config, book, None)),
        Err(failure) => failure,
    };
    let Some(texts) = worker::last_config(&handover.config) else { return Err(failure) };
    // What is wrong now is what is told, also where the last one is of no use any more.
    let fallback = source.load_texts(&texts).and_then(compiled);
    fallback.map(|(config, book)| (config, book, Some(failure.message.clone()))).map_err(|_| failure)
}

/// Makes what canaries follow from, so that those that are looked for are those that are handed out.
fn make_canaries(config: &Config) -> Result<(), Failure> {
    if config.secrets.iter().all(|secret| secret.from != SecretFrom::Canary) {
        return Ok(());
    }
    Canaries::make(&config.state_dir)
        .map(drop)
        .map_err(|error| Failure::internal(format!("state_dir: {error}")))
}

async fn serve(
    source: &Source,
    config: &Config,
    book: RuleBook,
    handover: Handover,
    journal: Journal,
) -> Result<Exit, Failure> {
    let (proxies, addresses) = listeners(handover.proxies).map_err(Failure::internal)?;
    let terms = &handover.terms;
    let place = Place {
        proxies: addresses.clone(),
        admin: terms.admin,
        probe: Probe::new(&terms.probe_token),
        journal,
    };
    let gateway = Gateway::build(config, book, place).map_err(Failure::internal)?;
    leave_room_for(&gateway, terms.before.clone());
    let api = Api::serve(&gateway, handover.channel).map_err(Failure::internal)?;
    // Before it begins: a signal that comes from then on is one to act on.
    let signals = Signals::new()?;
    let serving = Serving::begin(&gateway, api.clone(), proxies, config.allocator.clone()).await;
    let serving = serving.map_err(Failure::internal)?;
    if terms.announce {
        announce(config, &gateway, &addresses, terms.admin)?;
    }
    warn_expired(&gateway);
    for line in gateway.memory.table().lines() {
        tracing::info!("memory: {line}");
    }
    until_stopped(Reloader::new(source, &gateway, config), &api, signals).await;
    tracing::info!("draining");
    serving.drain(gateway.budget.shutdown_grace).await;
    Ok(Exit::Fine)
}

fn listeners(handed: Vec<std::net::TcpListener>) -> std::io::Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for listener in handed {
        listener.set_nonblocking(true)?;
        addresses.push(listener.local_addr()?);
        listeners.push(TcpListener::from_std(listener)?);
    }
    Ok((listeners, addresses))
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let handle = |kind| {
            signal(kind).map_err(|error| Failure::internal(format!("cannot wait for signals: {error}")))
        };
        Ok(Self {
            terminate: handle(SignalKind::terminate())?,
            interrupt: handle(SignalKind::interrupt())?,
            hangup: handle(SignalKind::hangup())?,
        })
    }
}

/// Waits for SIGTERM or SIGINT, or for the supervisor's end; reloads on SIGHUP, and when a file of the configuration has
/// changed.
async fn until_stopped(mut reloader: Reloader<'_>, api: &Api, mut signals: Signals) {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            _ = signals.hangup.recv() => reloader.reload(),
            () = reloader.changed() => reloader.settle().await,
            () = api.closed() => return,
        }
    }
}
