//! What breaks: links go down, flows are led around them, and what has no way is given up.

use lightloom_engine::{BitErrors, LinkChange, LinkId, VertexId};
use lightloom_units::{Picoseconds, SimTime};

use super::super::TrafficError;
use super::super::circuits::Circuits;
use super::super::spot::Spot;
use super::{Act, Felt, Story};
use crate::scenario::{Effect, Strike};

impl Story<'_> {
    fn links_of(&self, fault: usize) -> Vec<LinkId> {
        let parts = self.strikes[fault].targets.iter();
        let mut links: Vec<LinkId> =
            parts.flat_map(|spot| self.scenario.plant.links_of(*spot)).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    pub(super) fn strike(&mut self, fault: usize) -> Result<(), TrafficError> {
        let links = self.links_of(fault);
        self.felt[fault].hit = self.jobs.flows_on(&self.engine, &links);
        self.felt[fault].struck = true;
        let now = self.engine.now();
        match self.strikes[fault].effect {
            _ if self.is_of_control(fault) => return self.strike_control(fault),
            Effect::Stuck => return self.stick(fault, true),
            Effect::Rate(rate) => links
                .iter()
                .for_each(|link| self.engine.change_link(now, *link, LinkChange::Rate(rate))),
            Effect::BitErrors(share) => {
                let errors = LinkChange::BitErrors(BitErrors::from_share(share));
                links.iter().for_each(|link| self.engine.change_link(now, *link, errors));
            }
            Effect::PauseStorm(priority) => self.storm(&links, 1 << priority),
            _ => {
                self.darken(fault, true);
                self.at(now + self.reroute_delay(), Act::Reroute(Some(fault)));
            }
        }
        Ok(())
    }

    fn is_of_control(&self, fault: usize) -> bool {
        self.strikes[fault].targets.contains(&Spot::Control)
    }

    /// From a fault until flows are led around it, as the control plane is now.
    fn reroute_delay(&self) -> Picoseconds {
        let slower = |(strike, felt): (&Strike<Spot>, &Felt)| match strike.effect {
            Effect::Slower(times) if felt.struck && felt.restored.is_none() => {
                Some(u64::from(times))
            }
            _ => None,
        };
        let slowness: u64 = self.strikes.iter().zip(&self.felt).filter_map(slower).product();
        self.scenario.reroute_delay * slowness
    }

    fn strike_control(&mut self, fault: usize) -> Result<(), TrafficError> {
        if self.strikes[fault].effect == Effect::Down {
            self.control_gone += 1;
        }
        Ok(())
    }

    /// What was postponed is done over.
    fn repair_control(&mut self, fault: usize) -> Result<(), TrafficError> {
        let now = self.engine.now();
        self.felt[fault].restored = Some(now);
        if self.strikes[fault].effect != Effect::Down {
            return Ok(());
        }
        self.control_gone -= 1;
        if self.control_gone == 0 {
            let when = now + self.reroute_delay();
            let postponed = std::mem::take(&mut self.postponed);
            postponed.into_iter().for_each(|fault| self.at(when, Act::Reroute(fault)));
        }
        Ok(())
    }

    /// Hosts keep the circuit they hold, or obey again.
    fn stick(&mut self, fault: usize, stuck: bool) -> Result<(), TrafficError> {
        let plant = &self.scenario.plant;
        let of_spot = |spot: &Spot| match spot {
            Spot::Host(host) => plant.place_of(*host),
            _ => None,
        };
        let hosts: Vec<u32> = self.strikes[fault].targets.iter().filter_map(of_spot).collect();
        for host in hosts {
            let set = |circuits: &mut Circuits| circuits.set_stuck(host as usize, stuck);
            let next = self.circuits.as_mut().and_then(set);
            self.follow(next)?;
        }
        Ok(())
    }

    /// Hosts at the ends of these links keep asking for pauses of these priorities, or let go.
    fn storm(&mut self, links: &[LinkId], priorities: u8) {
        let now = self.engine.now();
        for link in links {
            let to = self.engine.network().link(*link).to;
            if self.scenario.plant.place_of(to).is_some() {
                self.engine.change_link(now, *link, LinkChange::Paused(priorities));
            }
        }
    }

    pub(super) fn darken(&mut self, fault: usize, dark: bool) {
        let links = self.links_of(fault);
        for link in &links {
            let down = &mut self.down[link.index()];
            *down = if dark { *down + 1 } else { *down - 1 };
            self.set(*link);
        }
        let ends = links.iter().map(|link| self.engine.network().link(*link).to);
        let mut hosts: Vec<(VertexId, usize)> = ends
            .filter_map(|end| Some((end, self.scenario.plant.place_of(end)? as usize)))
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        for (host, place) in hosts {
            self.note_service(fault, host, place);
        }
    }

    /// Notes when a host goes out of service, which it is while all of its cables are dark, and when it comes back.
    fn note_service(&mut self, fault: usize, host: VertexId, place: usize) {
        let now = self.engine.now();
        let cables = self.engine.network().outgoing(host);
        let is_out = cables.iter().all(|cable| self.down[cable.index()] > 0);
        match (self.out_since[place], is_out) {
            (None, true) => {
                self.out_since[place] = Some(now);
                self.felt[fault].hosts_lost.insert(host);
            }
            (Some(since), false) => {
                self.out_since[place] = None;
                self.out_of_service.push((since, now));
            }
            _ => {}
        }
    }

    pub(super) fn repair(&mut self, fault: usize) -> Result<(), TrafficError> {
        let now = self.engine.now();
        match self.strikes[fault].effect {
            _ if self.is_of_control(fault) => return self.repair_control(fault),
            Effect::Stuck => {
                self.felt[fault].restored = Some(now);
                return self.stick(fault, false);
            }
            Effect::Rate(_) | Effect::BitErrors(_) => {
                for link in self.links_of(fault) {
                    self.engine.change_link(now, link, LinkChange::Healthy);
                }
            }
            Effect::Flapping { .. } => {}
            Effect::PauseStorm(_) => self.storm(&self.links_of(fault), 0),
            _ => self.darken(fault, false),
        }
        self.felt[fault].restored.get_or_insert(now);
        self.at(now + self.reroute_delay(), Act::Reroute(None));
        Ok(())
    }

    /// Leads flows around what is dark, gives up those that will never have a way, and begins what could
    /// not begin before.
    pub(super) fn reroute(&mut self, fault: Option<usize>) -> Result<(), TrafficError> {
        let now = self.engine.now();
        if let Some(fault) = fault {
            self.felt[fault].detected = Some(now);
        }
        let hopeless = !self.repairs_come(now);
        let mut stranded = false;
        for flow in self.engine.flows_on_dark_links() {
            let is_led = self.engine.reroute_flow(flow).is_ok();
            let explicit = self.circuits.is_some();
            if is_led && !explicit {
                continue;
            }
            stranded = true;
            if hopeless && !explicit {
                self.engine.cancel_flow(flow);
                let hit = |felt: &&mut Felt| felt.struck && felt.hit.contains(&flow);
                if let Some(felt) = self.felt.iter_mut().rfind(hit) {
                    felt.given_up.push(flow);
                }
            }
        }
        if let Some(fault) = fault.filter(|_| !stranded || hopeless) {
            self.felt[fault].restored.get_or_insert(now);
        }
        self.jobs.try_again(now);
        self.plan_turns();
        Ok(())
    }

    /// Whether something that is down now will be repaired.
    fn repairs_come(&self, now: SimTime) -> bool {
        self.strikes.iter().any(|strike| {
            strike.at <= now && strike.repaired_at.is_some_and(|repaired| repaired > now)
        })
    }
}
