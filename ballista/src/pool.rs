//! Connections to other executors, kept while idle.
//!
//! ```text
//!  a reader wants rows of host:port ─▶ acquire ─┬─ one is idle ─▶ that one
//!                                               └─ none        ─▶ a new one
//!  the reader is done ─▶ it is idle ─▶ dropped once it was idle for too long
//! ```
//!
//! A stage reads from every executor, many partitions each. With a connection for each read, a
//! query can use up the ports of a host. Ballista's own pool is private to it, and its engine has
//! none where another engine stands before it. This one drops what is stale whenever it is used,
//! and so needs no task in the background.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ballista_core::client::BallistaClient;
use ballista_core::client_pool::{BallistaClientPool, PooledClient};
use ballista_core::error::Result;
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::utils::GrpcClientConfig;

/// The peer of a connection, and the way in which it was made.
type Peer = (String, u16, GrpcClientConfig);

/// Things of type `T` that are idle, with the time since when, the newest last.
type Idle<T> = HashMap<Peer, Vec<(Instant, T)>>;

/// A pool of connections; clones share them.
#[derive(Clone)]
pub struct Pool<T = BallistaClient> {
    idle: Arc<Mutex<Idle<T>>>,
    longest: Duration,
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("longest", &self.longest)
            .finish()
    }
}

impl<T> Pool<T> {
    /// Returns a pool whose connections may be idle as long as `longest`.
    pub fn new(longest: Duration) -> Self {
        Self {
            idle: Arc::default(),
            longest,
        }
    }

    fn take(&self, peer: &Peer) -> Option<T> {
        let newest = self.fresh().get_mut(peer).and_then(Vec::pop);
        newest.map(|(_, client)| client)
    }

    fn give_back(&self, peer: Peer, client: T) {
        let mut idle = self.fresh();
        idle.entry(peer).or_default().push((Instant::now(), client));
    }

    /// Returns what is idle, after it dropped what was for too long.
    fn fresh(&self) -> MutexGuard<'_, Idle<T>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|_, clients| {
            clients.retain(|(since, _)| since.elapsed() < self.longest);
            !clients.is_empty()
        });
        idle
    }
}

#[async_trait]
impl BallistaClientPool for Pool {
    async fn acquire(
        &self,
        host: &str,
        port: u16,
        config: &GrpcClientConfig,
        customize_endpoint: Option<Arc<BallistaConfigGrpcEndpoint>>,
    ) -> Result<PooledClient> {
        let peer = (host.to_owned(), port, config.clone());
        let client = match self.take(&peer) {
            Some(client) => client,
            None => connect(&peer, customize_endpoint).await?,
        };
        let pool = self.clone();
        let give_back = move |client| pool.give_back(peer, client);
        Ok(PooledClient::new(client, Box::new(give_back)))
    }

    async fn evict_idle(&self) {
        drop(self.fresh());
    }
}

async fn connect(
    (host, port, config): &Peer,
    customize_endpoint: Option<Arc<BallistaConfigGrpcEndpoint>>,
) -> Result<BallistaClient> {
    BallistaClient::try_new(
        host,
        *port,
        config.max_message_size,
        config.use_tls,
        customize_endpoint,
        config.io_retries_times,
        config.io_retry_wait_time_ms,
        config.initial_connection_window_size,
        config.initial_stream_window_size,
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Peer {
        ("host".to_owned(), port, GrpcClientConfig::default())
    }

    #[test]
    fn what_is_idle_is_used_again_by_its_peer_alone() {
        let pool = Pool::new(Duration::from_secs(3600));
        pool.give_back(peer(1), "old");
        pool.give_back(peer(1), "new");
        assert_eq!(pool.take(&peer(2)), None);
        assert_eq!(pool.take(&peer(1)), Some("new"));
        assert_eq!(pool.take(&peer(1)), Some("old"));
        assert_eq!(pool.take(&peer(1)), None);
    }

    #[test]
    fn what_is_idle_for_too_long_is_dropped() {
        let pool = Pool::new(Duration::ZERO);
        pool.give_back(peer(1), "stale");
        assert_eq!(pool.take(&peer(1)), None);
        assert!(pool.fresh().is_empty());
    }
}
