//! Reloading: a configuration whose files say something else by now is put in force.
//!
//! Invariants: a configuration with problems changes nothing and is told once, until its files change again; one that was
//! seen to change is put in force only when it has stayed the same for one more look, so that a file that is being
//! written is not taken for a whole one.

use std::sync::Arc;

use decant_config::{Config, Inputs};

use super::load::{self, Source};
use crate::app::{Gateway, RuleBook};
use crate::budget::Reservation;
use crate::exceptions::today;

/// Follows one configuration.
pub(super) struct Reloader<'a> {
    source: &'a Source,
    gateway: &'a Arc<Gateway>,
    /// What a reload cannot change: as it was at the start.
    started: Config,
    /// The files as they were read last, with problems or without.
    inputs: Inputs,
}

impl<'a> Reloader<'a> {
    /// Follows what `started` was read from.
    pub(super) fn new(source: &'a Source, gateway: &'a Arc<Gateway>, started: &Config) -> Self {
        Self { source, gateway, started: started.clone(), inputs: started.inputs.clone() }
    }

    /// Returns once a file holds something else than when it was read. Safe to drop and call again.
    pub(super) async fn changed(&self) {
        loop {
            tokio::time::sleep(self.gateway.budget.reload_poll).await;
            if self.inputs.changed().is_some() {
                return;
            }
        }
    }

    /// Reads the configuration until it stays the same, and puts it in force.
    pub(super) async fn settle(&mut self) {
        loop {
            let read = self.read();
            tokio::time::sleep(self.gateway.budget.reload_poll).await;
            if self.inputs.changed().is_none() {
                return self.put_in_force(read);
            }
        }
    }

    /// Reads the configuration now, and puts it in force.
    pub(super) fn reload(&mut self) {
        let read = self.read();
        self.put_in_force(read);
    }

    /// Reads and compiles the configuration; the error is in words.
    fn read(&mut self) -> Result<(Config, RuleBook, Reservation), String> {
        let config = match self.source.read() {
            Ok(config) => config,
            Err(problems) => {
                self.inputs = problems.inputs().clone();
                return Err(problems.to_string());
            }
        };
        self.inputs = config.inputs.clone();
        // For a while there are two; the new one is about as large as the old.
        let room = self.gateway.admission.charge(self.gateway.book().memory_usage());
        let book = RuleBook::compile(&config).map_err(|problems| load::report(&problems).message)?;
        Ok((config, book, room))
    }

    fn put_in_force(&self, read: Result<(Config, RuleBook, Reservation), String>) {
        let swapped = read.and_then(|(config, book, room)| match self.gateway.swap(book, room) {
            Ok(()) => Ok(config),
            Err(overlap) => Err(overlap.to_string()),
        });
        let result = match swapped {
            Ok(config) => {
                self.gateway.set_config(&config);
                tracing::info!("the configuration was reloaded");
                self.warn_of_the_rest(&config);
                warn_expired(self.gateway);
                "ok"
            }
            Err(problems) => {
                tracing::error!(%problems, "the configuration was not reloaded");
                "refused"
            }
        };
        self.gateway.metrics.reloads.with_label_values(&[result]).inc();
    }

    /// Says which sections have changed and take effect later: with the next worker, or at the next start alone.
    fn warn_of_the_rest(&self, config: &Config) {
        let (old, new) = (&self.started, config);
        const WORKER: &str = "with the next worker (SIGUSR2)";
        const START: &str = "when the gateway is started again";
        let listen = |config: &Config| (config.listen.proxy.clone(), config.listen.admin);
        let log = |config: &Config| (config.log.level, config.log.format);
        let rest = [
            ("listen", listen(old) != listen(new), START),
            ("state_dir", old.state_dir != new.state_dir, START),
            ("memory", old.memory_budget != new.memory_budget, WORKER),
            ("limits", old.limits != new.limits, WORKER),
            ("tls", old.ca != new.ca, WORKER),
            ("upstream", old.upstream != new.upstream, WORKER),
            ("allocator", old.allocator != new.allocator, WORKER),
            ("log.level or log.format", log(old) != log(new), WORKER),
            ("metrics", old.metrics != new.metrics, WORKER),
        ];
        for (section, _, when) in rest.iter().filter(|(_, differs, _)| *differs) {
            tracing::warn!("`{section}` has changed, which takes effect {when}");
        }
    }
}

/// An exception that no longer holds shows as blocks; its owner should hear of it.
pub(super) fn warn_expired(gateway: &Gateway) {
    let book = gateway.book();
    for one in book.exceptions.expired(today()) {
        tracing::warn!("{}: exception `{}` held until {} and is inert now", one.at, one.name, one.until);
    }
}
