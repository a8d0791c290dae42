// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_gnmi::message::Path;
use lightloom_gnmi::model::ConnectionStatus as Stands;
use lightloom_gnmi::path::bare;

use super::config::{IntendedConnection, PortConfig};
use super::state::{EstablishedConnection, State};
use super::tree::{LeafValue, TreeNode, leaf};
use crate::misbehave::Misbehaviour;

fn tree<const N: usize>(below: [(&'static str, TreeNode); N]) -> TreeNode {
    TreeNode::Tree(below.into())
}

impl State {
    pub(crate) fn tree(&self, path: &Path) -> TreeNode {
        let first = path.elem.first().map_or("*", |step| bare(&step.name));
        let only = path.elem.get(1).and_then(|step| step.key.get("name"));
        let only = only.filter(|name| *name != "*").map(String::as_str);
        let mut below = BTreeMap::new();
        let any = first == "*";
        for (name, is_wanted) in
            ["optical-switch", "connections", "components"].map(|name| (name, any || name == first))
        {
            let empty = TreeNode::Tree(BTreeMap::new());
            let node = match name {
                _ if !is_wanted => empty,
                "optical-switch" => self.switch_tree(),
                "connections" => self.connections_tree(only),
                _ => self.components_tree(only),
            };
            below.insert(name, node);
        }
        TreeNode::Tree(below)
    }

    fn switch_tree(&self) -> TreeNode {
        let config = BTreeMap::from([
            ("bidirectional", TreeNode::Leaf(LeafValue::Bool(self.config.bidirectional))),
            ("cold-boot-recovery", leaf(self.config.recovery.word())),
        ]);
        let [first, second] = self.spec.groups();
        let directions =
            if self.spec.any_direction { ["ANY", "ANY"] } else { ["INPUT-ONLY", "OUTPUT-ONLY"] };
        let groups = [(first, directions[0], second), (second, directions[1], first)];
        let groups = groups.map(|(name, direction, peer)| {
            let peers = [(peer.to_owned(), tree([("peer-name", leaf(peer))]))].into();
            let group = tree([
                ("name", leaf(name)),
                ("direction", leaf(direction)),
                ("connection-groups", TreeNode::List("peer-name", peers)),
            ]);
            (name.to_owned(), group)
        });
        let mut state = config.clone();
        if self.breaks(Misbehaviour::HidesBidirectional) {
            state.remove("bidirectional");
        }
        if self.breaks(Misbehaviour::RecoversTooWell) {
            state.insert("cold-boot-recovery", leaf("MAINTAIN"));
        }
        state.insert("connection-recovery-capability", leaf(self.spec.recovery.word()));
        state.insert("port-groups", TreeNode::List("name", groups.into()));
        tree([("config", TreeNode::Tree(config)), ("state", TreeNode::Tree(state))])
    }

    fn connections_tree(&self, only: Option<&str>) -> TreeNode {
        let mut entries = BTreeMap::new();
        let names = self.config.connections.keys().chain(self.circuits.keys());
        for name in names.filter(|name| only.is_none_or(|only| only == name.as_str())) {
            let intent = self.config.connections.get(name);
            let circuit = self.circuits.get(name);
            entries.entry(name.clone()).or_insert_with(|| self.connection(name, intent, circuit));
        }
        tree([
            ("last-change-time", leaf(self.spec.date(self.changed_at))),
            ("port-connection", TreeNode::List("name", entries)),
        ])
    }

    fn connection(
        &self,
        name: &str,
        intent: Option<&IntendedConnection>,
        circuit: Option<&EstablishedConnection>,
    ) -> TreeNode {
        let mut below = BTreeMap::from([("name", leaf(name))]);
        if let Some(intent) = intent.filter(|_| !self.breaks(Misbehaviour::HidesConfig)) {
            let mut config = BTreeMap::from([("name", leaf(name))]);
            config.extend(intent.input.as_ref().map(|port| ("input-port-name", leaf(port))));
            config.extend(intent.output.as_ref().map(|port| ("output-port-name", leaf(port))));
            below.insert("config", TreeNode::Tree(config));
        }
        let mut state = BTreeMap::from([("name", leaf(name))]);
        if let Some(circuit) = circuit {
            let swapped = intent
                .and_then(|intent| intent.input.as_ref())
                .is_some_and(|input| *input == self.spec.port_name(circuit.pair.1));
            let (input, output) =
                if swapped { (circuit.pair.1, circuit.pair.0) } else { circuit.pair };
            state.insert("input-port-name", leaf(self.spec.port_name(input)));
            state.insert("output-port-name", leaf(self.spec.port_name(output)));
            let too_soon = circuit.stands == Stands::PendingConnection
                && self.breaks(Misbehaviour::ConnectedTooSoon);
            let stands = if too_soon { Stands::Connected } else { circuit.stands };
            state.insert("status", leaf(stands.word()));
            state.insert("last-updated", leaf(self.spec.date(circuit.updated)));
            state.extend(circuit.reason.as_ref().map(|why| ("status-reason", leaf(why))));
        }
        below.insert("state", TreeNode::Tree(state));
        TreeNode::Tree(below)
    }

    fn components_tree(&self, only: Option<&str>) -> TreeNode {
        let of: BTreeMap<u16, (u16, u16)> = self
            .matrix
            .pairs()
            .into_iter()
            .flat_map(|pair| [(pair.0, pair), (pair.1, pair)])
            .collect();
        let moving: BTreeMap<u16, bool> = self
            .circuits
            .values()
            .filter(|c| matches!(c.stands, Stands::PendingConnection | Stands::PendingDeletion))
            .flat_map(|circuit| [(circuit.pair.0, true), (circuit.pair.1, true)])
            .collect();
        let numbers = 1..=self.spec.ingress + self.spec.egress;
        let numbers =
            numbers.filter(|number| only.is_none_or(|only| self.spec.port(only) == Some(*number)));
        let entries = numbers.map(|number| {
            let name = self.spec.port_name(number);
            let port =
                self.port(number, &name, of.get(&number).copied(), moving.contains_key(&number));
            let below = tree([
                ("name", leaf(&name)),
                ("config", tree([("name", leaf(&name))])),
                ("state", tree([("name", leaf(&name))])),
                ("ocp-ocs-port", port),
            ]);
            (name, below)
        });
        tree([("component", TreeNode::List("name", entries.collect()))])
    }

    fn port(&self, number: u16, name: &str, pair: Option<(u16, u16)>, is_moving: bool) -> TreeNode {
        let usual = PortConfig::default();
        let set = self.config.ports.get(name).unwrap_or(&usual);
        let mut config =
            BTreeMap::from([("enabled", TreeNode::Leaf(LeafValue::Bool(set.enabled)))]);
        config.extend(set.alias.as_ref().map(|alias| ("alias", leaf(alias))));
        config.extend(set.description.as_ref().map(|text| ("description", leaf(text))));
        let is_input = number <= self.spec.ingress;
        let lit = pair.is_some_and(|pair| self.matrix.is_lit(self.now, pair.0));
        let status = if self.matrix.faults.is_stuck(number) {
            "FAILED"
        } else if self.breaks(Misbehaviour::StrangePortStatus) {
            "OK"
        } else if is_moving {
            "TUNING"
        } else if lit && set.enabled {
            "TUNED"
        } else {
            "BLOCKED"
        };
        let mut connection = BTreeMap::from([
            ("connected", TreeNode::Leaf(LeafValue::Bool(lit))),
            ("counters", counters()),
        ]);
        let hides_peer = !is_input && self.breaks(Misbehaviour::OneSidedPeer);
        let peer = pair.filter(|_| !hides_peer);
        let peer = peer.map(|(input, output)| if is_input { output } else { input });
        connection.extend(peer.map(|peer| ("peer", leaf(self.spec.port_name(peer)))));
        let [first, second] = self.spec.groups();
        let mut state = config.clone();
        let own = if is_input { first } else { second };
        let group = if self.breaks(Misbehaviour::PortWithoutGroup) { "elsewhere" } else { own };
        let index = if self.breaks(Misbehaviour::SameIndex) { 1 } else { self.spec.index(number) };
        state.extend([
            ("group", leaf(group)),
            ("index", TreeNode::Leaf(LeafValue::Number(u32::from(index)))),
            ("status", leaf(status)),
            ("connection", TreeNode::Tree(connection)),
            ("counters", counters()),
        ]);
        if self.spec.has_power_monitors {
            let which = if is_input { "input-optical-power" } else { "output-optical-power" };
            #[expect(clippy::cast_possible_truncation, reason = "a power in dBm fits in the type")]
            let mut hundredths = (self.matrix.power_dbm(self.now, number) * 100.0).round() as i64;
            if lit && !is_input && self.breaks(Misbehaviour::Amplifies) {
                hundredths += 1_000;
            }
            state.insert(which, TreeNode::Leaf(LeafValue::Decimal(hundredths)));
        }
        tree([("config", TreeNode::Tree(config)), ("state", TreeNode::Tree(state))])
    }
}

/// The model requires these counters, but the switch cannot detect such errors.
fn counters() -> TreeNode {
    tree([
        ("correctable-error-count", TreeNode::Leaf(LeafValue::Counter(0))),
        ("total-error-count", TreeNode::Leaf(LeafValue::Counter(0))),
    ])
}
