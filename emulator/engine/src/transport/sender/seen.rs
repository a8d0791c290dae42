// SPDX-License-Identifier: Apache-2.0

use super::Sender;
use crate::engine::SendingEnd;

impl From<&Sender> for SendingEnd {
    fn from(sender: &Sender) -> Self {
        Self {
            acknowledged: sender.acked,
            in_flight: sender.in_flight,
            window: sender.window,
            pace: sender.controller.as_ref().and_then(|controller| controller.pace()),
            resent: sender.resent,
        }
    }
}
