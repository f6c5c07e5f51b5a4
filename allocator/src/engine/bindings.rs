//! What containers that do not run will publish: it stands only in their inspection and never changes after their creation, so each is
//! inspected once.
//!
//! An inspection waits for the container's lock, which a start holds to its end. So nobody waits long for one: a container that gives no
//! answer is being started, and what it publishes is listed, and held, as soon as it runs.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bollard::Docker;
use bollard::query_parameters::InspectContainerOptions;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::bollard::{bindings_of, timed};
use super::{Container, Failure, Outcome, Refused};
use crate::limits;
use crate::pool::ports::Proto;

type Ports = Vec<(Proto, u16)>;

/// The containers that were inspected, and those that are.
pub(super) struct Bindings(Arc<Shared>);

struct Shared {
    docker: Docker,
    known: Mutex<Known>,
    places: Semaphore,
}

#[derive(Default)]
struct Known {
    ports: HashMap<String, Ports>,
    asked: HashSet<String>,
    /// The first look is over, for which there is more time: everything is new to it.
    looked: bool,
}

impl Bindings {
    pub(super) fn new(docker: Docker) -> Self {
        let places = Semaphore::new(limits::INSPECTIONS);
        Self(Arc::new(Shared { docker, known: Mutex::default(), places }))
    }

    /// Fills in what the containers that do not run will publish, and forgets those that are gone.
    pub(super) async fn fill_in(&self, containers: &mut [Container]) -> Outcome<()> {
        self.read(containers).await?;
        let mut known = self.0.known();
        known.looked = true;
        known.ports.retain(|id, _| containers.iter().any(|container| container.id == *id));
        for container in containers.iter_mut().filter(|container| !container.running) {
            container.will_publish = known.ports.get(&container.id).cloned().unwrap_or_default();
        }
        Ok(())
    }

    /// Inspects what was not inspected before, for as long as answers come.
    async fn read(&self, containers: &[Container]) -> Outcome<()> {
        let mut tasks: FuturesUnordered<JoinHandle<Outcome<()>>> =
            self.unread(containers).into_iter().map(|id| tokio::spawn(self.0.clone().inspect(id))).collect();
        let patience =
            if self.0.known().looked { limits::INSPECT_PATIENCE } else { limits::INSPECT_PATIENCE_FIRST };
        loop {
            match tokio::time::timeout(patience, tasks.next()).await {
                Ok(None) => return Ok(()),
                // A task that was cancelled belongs to a runtime that ends.
                Ok(Some(done)) => done.unwrap_or(Ok(()))?,
                Err(_) => {
                    tracing::debug!(
                        waiting = tasks.len(),
                        "containers that are being started are not waited for"
                    );
                    return Ok(());
                }
            }
        }
    }

    /// Those to inspect; they count as asked from here on.
    fn unread(&self, containers: &[Container]) -> Vec<String> {
        let mut known = self.0.known();
        let mut unread = Vec::new();
        for one in containers.iter().filter(|one| !one.running) {
            if !known.ports.contains_key(&one.id) && known.asked.insert(one.id.clone()) {
                unread.push(one.id.clone());
            }
        }
        unread
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task of its own (as many at work as there are places), for it goes on when nobody waits for it any more.
    async fn inspect(self: Arc<Self>, id: String) -> Outcome<()> {
        let place = self.places.acquire().await;
        let call = self.docker.inspect_container(&id, None::<InspectContainerOptions>);
        let answer = timed(limits::ENGINE_TIMEOUT, call).await;
        drop(place);
        let mut known = self.known();
        known.asked.remove(&id);
        match answer {
            Ok(inspected) => drop(known.ports.insert(id, bindings_of(&inspected))),
            Err(error) if error.failure == Failure::Refused(Refused::Missing) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
