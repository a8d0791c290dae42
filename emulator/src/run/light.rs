// SPDX-License-Identifier: Apache-2.0
//! Tracks which links carry packets: those selected by the plan and not dark because of a fault.

use lightloom_engine::steady::Stage;
use lightloom_engine::{LinkChange, LinkId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Context;

#[derive(Default)]
pub(super) struct Links {
    unlit: FxHashSet<LinkId>,
    faulted: FxHashMap<LinkId, u32>,
}

impl Context<'_> {
    pub(crate) fn carries(&self, link: LinkId) -> bool {
        !self.links.unlit.contains(&link) && self.links.faulted.get(&link).is_none_or(|n| *n == 0)
    }

    pub(crate) fn is_lit(&self, link: LinkId) -> bool {
        !self.links.unlit.contains(&link)
    }

    pub(crate) fn is_faulted(&self, link: LinkId) -> bool {
        self.links.faulted.get(&link).is_some_and(|count| *count > 0)
    }

    pub(crate) fn change(&mut self, links: &[LinkId], change: LinkChange) {
        let now = self.engine.now();
        for link in links {
            self.engine.change_link(now, *link, change);
        }
    }

    /// Does not notify the engine, so it may only be called before the run starts.
    pub(crate) fn select(&mut self, link: LinkId, is_lit: bool) {
        if is_lit {
            self.links.unlit.remove(&link);
        } else {
            self.links.unlit.insert(link);
        }
    }

    pub(crate) fn light(&mut self, link: LinkId, is_lit: bool) {
        self.select(link, is_lit);
        self.refresh(&[link]);
    }

    fn refresh(&mut self, links: &[LinkId]) {
        for link in links {
            let change = if self.carries(*link) { LinkChange::Up } else { LinkChange::Down };
            self.change(&[*link], change);
        }
    }

    pub(crate) fn count_fault(&mut self, links: &[LinkId]) {
        for link in links {
            *self.links.faulted.entry(*link).or_default() += 1;
        }
    }

    pub(super) fn put_out(&mut self, links: &[LinkId]) {
        self.count_fault(links);
        self.refresh(links);
    }

    pub(super) fn let_go(&mut self, links: &[LinkId]) {
        for link in links {
            let count =
                self.links.faulted.get_mut(link).expect("only links with a fault are released");
            *count -= 1;
        }
        self.refresh(links);
    }
}
