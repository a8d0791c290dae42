// SPDX-License-Identifier: Apache-2.0

use super::Sender;
use crate::engine::SendingEnd;

impl From<&Sender> for SendingEnd {
    fn from(sender: &Sender) -> Self {
        let controller = sender.controller.as_ref();
        let window = controller.filter(|controller| controller.credits().is_none());
        Self {
            acknowledged: sender.acked,
            in_flight: sender.in_flight,
            window: window.map_or(sender.window, |controller| controller.window()),
            pace: controller.and_then(|controller| controller.pace()),
            resent: sender.resent,
        }
    }
}
