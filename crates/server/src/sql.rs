//! SQL's place in the server: its engine, replaced when the store is reopened, and the PostgreSQL wire.

use std::sync::Arc;

use strongback_query::{PgAuth, Query, QueryOptions, SystemRows};

use crate::server::{Server, stopped};

/// What it takes to make the engine anew and to serve its wire.
pub struct Sql {
    /// The server.
    pub server: Arc<Server>,
    /// What the server knows beyond the store.
    pub rows: Arc<dyn SystemRows>,
    /// Bounds of the engine.
    pub options: QueryOptions,
    /// Who may connect.
    pub auth: PgAuth,
    /// Where PostgreSQL clients connect, if they may.
    pub listener: Option<std::net::TcpListener>,
}

impl Sql {
    /// Serves until the server stops. When the store was reopened, the engine is made anew over it; PostgreSQL
    /// connections end then, as they hold the old one, and clients connect again.
    pub async fn serve(self) {
        let mut reopened = self.server.ingest.reopened();
        let mut stopping = self.server.stopping.subscribe();
        loop {
            let wire = self.listener.as_ref().map(std::net::TcpListener::try_clone).transpose();
            let wire = match wire {
                Ok(wire) => wire,
                Err(error) => {
                    tracing::error!(%error, "the PostgreSQL wire cannot be served any more");
                    None
                }
            };
            let (mut again, mut stop) = (reopened.clone(), stopping.clone());
            let until = async move {
                tokio::select! {
                    _ = again.changed() => {}
                    () = stopped(&mut stop) => {}
                }
            };
            match wire {
                None => until.await,
                Some(wire) => {
                    let engine = self.server.query.load_full();
                    if let Err(error) = engine.serve_pg(wire, self.auth.clone(), until).await {
                        tracing::error!(%error, "the PostgreSQL wire ended");
                        stopped(&mut stopping).await;
                    }
                }
            }
            if *stopping.borrow_and_update() {
                return;
            }
            reopened.borrow_and_update();
            let store = self.server.ingest.store();
            match Query::new((*store).clone(), self.rows.clone(), self.options.clone()) {
                Ok(engine) => self.server.query.store(Arc::new(engine)),
                Err(error) => tracing::error!(%error, "SQL reads the store as it was before the disk failed"),
            }
            self.server.ledger.rewind();
        }
    }
}
