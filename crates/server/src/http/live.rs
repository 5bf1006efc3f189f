//! `/api/live`: from HTTP to the WebSocket.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;

use super::answer::Failure;
use crate::live::binary::PROTOCOL;
use crate::live::outlet::Form;
use crate::server::Server;
use crate::ws::{self, MESSAGE_BYTES_MAX};

/// `GET /api/live`
pub(super) async fn live(
    State(server): State<Arc<Server>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade = upgrade.map_err(|e| Failure::bad_request(format!("this path speaks WebSocket: {e}")))?;
    let Ok(permit) = server.live_clients.clone().try_acquire_owned() else {
        return Err(Failure::unavailable(format!("{} live clients already", server.config.live.max_clients)));
    };
    let upgrade = upgrade.protocols([PROTOCOL]);
    let form = if upgrade.selected_protocol().is_some() { Form::Binary } else { Form::Json };
    Ok(upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX).on_upgrade(
        move |socket| async move {
            ws::serve(socket, server, form).await;
            drop(permit);
        },
    ))
}
