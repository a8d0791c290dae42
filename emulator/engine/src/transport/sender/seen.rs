// SPDX-License-Identifier: Apache-2.0

use super::Sender;
use crate::engine::SendingEnd;

impl Sender {
    pub(crate) fn packets_sent(&self) -> u32 {
        self.sent
    }

    pub(crate) fn has_sent_all(&self) -> bool {
        self.sent >= self.total
    }

    pub(crate) fn seen(&self) -> SendingEnd {
        SendingEnd {
            acknowledged: self.acked,
            in_flight: self.in_flight,
            window: self.window,
            pace: self.controller.as_ref().and_then(|controller| controller.pace()),
            resent: self.resent,
        }
    }
}
