// SPDX-License-Identifier: Apache-2.0
//! The traffic matrix of a phase contains the bytes from each leaf to each other leaf.

use std::collections::BTreeMap;

use lightloom_units::Bytes;
use lightloom_units::id::LeafId;

use super::mistake::Mistake;

/// A matrix of bytes from senders (rows) to receivers (columns), without traffic within a leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    leaves: usize,
    bytes: Vec<u64>,
    carried: Carried,
    interfaces: Vec<[u64; 2]>,
    usable_share: f64,
    exchanges: Option<BTreeMap<(u32, u32), u64>>,
}

/// Traffic of a phase that stays off the links between leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes within a ring or island.
    pub rings: Bytes,
    /// Bytes between GPUs of one leaf.
    pub leaves: Bytes,
}

/// The network location of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The leaf of its GPU.
    pub leaf: LeafId,
    /// Ring or island of the GPU, if any. Traffic between ranks of one island does not leave it.
    pub island: Option<u32>,
    /// Index of its GPU among the planned ranks. `None` if only the leaf is known.
    pub gpu: Option<u32>,
}

impl From<LeafId> for Seat {
    fn from(leaf: LeafId) -> Self {
        Self { leaf, island: None, gpu: None }
    }
}

impl Demand {
    /// Creates a demand without traffic between `leaves` leaves.
    pub fn none(leaves: usize) -> Self {
        Self {
            leaves,
            bytes: vec![0; leaves * leaves],
            carried: Carried::default(),
            interfaces: Vec::new(),
            usable_share: 1.0,
            exchanges: None,
        }
    }

    /// Like [`Demand::none`], but also records the traffic between GPUs.
    pub fn between_gpus(leaves: usize) -> Self {
        Self { exchanges: Some(BTreeMap::new()), ..Self::none(leaves) }
    }

    /// Iterates over bytes between GPUs, by rank index. `None` if this traffic was not recorded.
    pub fn exchanges(&self) -> Option<impl Iterator<Item = ((u32, u32), Bytes)> + '_> {
        let exchanges = self.exchanges.as_ref().filter(|exchanges| !exchanges.is_empty());
        exchanges.map(|all| all.iter().map(|(ends, bytes)| (*ends, Bytes(*bytes))))
    }

    /// Returns the traffic between the halves of leaves that send and those that receive.
    pub fn between_halves(&self) -> Self {
        let leaves = 2 * self.leaves;
        let mut halves = Self { leaves, bytes: vec![0; leaves * leaves], ..self.clone() };
        for (from, to, bytes) in self.flows() {
            halves.add(from, LeafId::from_index(to.index() + self.leaves), bytes);
        }
        halves
    }

    /// Scales the bytes for packet simulation, where senders use the full link rate and the phase
    /// takes 1/`divisor` of the time. Every pair keeps at least one byte.
    pub fn at_whole_rate(mut self, divisor: u64) -> Self {
        let share = self.usable_share;
        let of_gpus = self.exchanges.iter_mut().flat_map(BTreeMap::values_mut);
        for bytes in
            self.bytes.iter_mut().chain(self.interfaces.iter_mut().flatten()).chain(of_gpus)
        {
            *bytes = ((*bytes as f64 / share).round() as u64).div_ceil(divisor);
        }
        Self { usable_share: 1.0, ..self }
    }

    /// Sets the usable share of a link's rate, above 0 and at most 1.
    pub fn filling(self, share: f64) -> Self {
        Self { usable_share: share, ..self }
    }

    /// Returns the bits that a link carries at full rate while it sends `bytes` of this traffic.
    pub fn bits(&self, bytes: Bytes) -> f64 {
        bytes.0 as f64 * 8.0 / self.usable_share
    }

    /// Returns the time in seconds that the busiest GPU needs at `rate` bit/s. `None` if only leaves are known.
    pub fn interface_seconds(&self, rate: f64) -> Option<f64> {
        Some(self.bits(self.busiest_interface()?) / rate)
    }

    /// Returns the number of leaves.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Returns the bytes from one leaf to another.
    ///
    /// # Panics
    /// Panics if a leaf does not exist.
    pub fn bytes(&self, from: LeafId, to: LeafId) -> Bytes {
        Bytes(self.bytes[from.index() * self.leaves + to.index()])
    }

    /// Adds traffic. Ignores traffic from a leaf to itself.
    ///
    /// # Panics
    /// Panics if a leaf does not exist.
    pub fn add(&mut self, from: LeafId, to: LeafId, size: Bytes) {
        if from != to {
            let entry = &mut self.bytes[from.index() * self.leaves + to.index()];
            *entry = entry.saturating_add(size.0);
        }
    }

    /// Adds traffic between two ranks to the island, the leaf or the matrix.
    ///
    /// # Panics
    /// Panics if a leaf does not exist.
    pub fn send(&mut self, from: impl Into<Seat>, to: impl Into<Seat>, size: Bytes) {
        let (from, to) = (from.into(), to.into());
        if from.island.is_some() && from.island == to.island {
            self.carried.rings = Bytes(self.carried.rings.0.saturating_add(size.0));
            return;
        }
        for (direction, gpu) in [from.gpu, to.gpu].into_iter().enumerate() {
            let Some(gpu) = gpu.map(|gpu| gpu as usize) else { continue };
            if self.interfaces.len() <= gpu {
                self.interfaces.resize(gpu + 1, [0; 2]);
            }
            let count = &mut self.interfaces[gpu][direction];
            *count = count.saturating_add(size.0);
        }
        if let (Some(all), Some(one), Some(other)) = (&mut self.exchanges, from.gpu, to.gpu) {
            let sum = all.entry((one, other)).or_default();
            *sum = sum.saturating_add(size.0);
        }
        if from.leaf == to.leaf {
            self.carried.leaves = Bytes(self.carried.leaves.0.saturating_add(size.0));
        } else {
            self.add(from.leaf, to.leaf, size);
        }
    }

    fn busiest_interface(&self) -> Option<Bytes> {
        self.interfaces.iter().flatten().copied().max().map(Bytes)
    }

    /// Returns the traffic that stays off the links between leaves.
    pub fn carried(&self) -> Carried {
        self.carried
    }

    /// Adds the traffic of `other`.
    ///
    /// # Panics
    /// Panics if the matrices differ in size.
    pub fn add_all(&mut self, other: &Self) {
        assert_eq!(self.leaves, other.leaves, "demands of one fabric have the same size");
        for (entry, more) in self.bytes.iter_mut().zip(&other.bytes) {
            *entry = entry.saturating_add(*more);
        }
        if self.interfaces.len() < other.interfaces.len() {
            self.interfaces.resize(other.interfaces.len(), [0; 2]);
        }
        let counts = self.interfaces.iter_mut().flatten();
        for (count, more) in counts.zip(other.interfaces.iter().flatten()) {
            *count = count.saturating_add(*more);
        }
        let exchanges = other.exchanges.iter().flatten();
        if let Some(all) = &mut self.exchanges {
            exchanges.for_each(|(ends, more)| *all.entry(*ends).or_default() += more);
        }
        let (mine, more) = (&mut self.carried, other.carried);
        mine.rings = Bytes(mine.rings.0.saturating_add(more.rings.0));
        mine.leaves = Bytes(mine.leaves.0.saturating_add(more.leaves.0));
    }

    /// Multiplies all traffic by a factor.
    pub fn times(mut self, times: u32) -> Self {
        let exchanges = self.exchanges.iter_mut().flat_map(BTreeMap::values_mut);
        for entry in
            self.bytes.iter_mut().chain(self.interfaces.iter_mut().flatten()).chain(exchanges)
        {
            *entry = entry.saturating_mul(u64::from(times));
        }
        let Carried { rings, leaves } = self.carried;
        let times = u64::from(times);
        self.carried = Carried {
            rings: Bytes(rings.0.saturating_mul(times)),
            leaves: Bytes(leaves.0.saturating_mul(times)),
        };
        self
    }

    /// Iterates over pairs with traffic as (sender, receiver, bytes), in order.
    pub fn flows(&self) -> impl Iterator<Item = (LeafId, LeafId, Bytes)> + '_ {
        self.bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0).map(|(at, bytes)| {
            let (from, to) = (at / self.leaves, at % self.leaves);
            (LeafId::from_index(from), LeafId::from_index(to), Bytes(*bytes))
        })
    }

    /// Returns the total bytes between leaves.
    pub fn total(&self) -> Bytes {
        Bytes(self.bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes)))
    }

    /// Returns the time in seconds that the busiest leaf needs if `rate` is the rate of a leaf in bit/s.
    pub fn busiest_leaf_seconds(&self, rate: impl Fn(LeafId) -> f64) -> f64 {
        let mut ends = vec![(0.0, 0.0); self.leaves];
        for (from, to, bytes) in self.flows() {
            ends[from.index()].0 += self.bits(bytes);
            ends[to.index()].1 += self.bits(bytes);
        }
        let seconds = ends.into_iter().enumerate().map(|(leaf, (sent, received))| {
            match f64::max(sent, received) {
                0.0 => 0.0,
                bits => bits / rate(LeafId::from_index(leaf)),
            }
        });
        seconds.fold(0.0, f64::max)
    }

    /// Parses one row of comma-separated numbers per line. Comments start with `#`.
    ///
    /// # Errors
    /// Returns all invalid entries and all rows of the wrong length.
    pub fn from_csv(text: &str) -> Result<Self, Vec<Mistake>> {
        let rows: Vec<Vec<(String, Option<f64>)>> = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or("").trim())
            .filter(|line| !line.is_empty())
            .map(|line| line.split(',').map(|entry| numbered(entry.trim())).collect())
            .collect();
        Self::from_rows(&rows)
    }

    /// Parses a JSON array of arrays of numbers.
    ///
    /// # Errors
    /// Returns a JSON syntax error, or all invalid entries and rows of the wrong length.
    pub fn from_json(text: &str) -> Result<Self, Vec<Mistake>> {
        let rows: Vec<Vec<serde_json::Value>> = serde_json::from_str(text).map_err(|error| {
            let message = format!("line {}, column {}: {error}", error.line(), error.column());
            Mistake::of_whole(message, "use an array of rows of numbers: [[0, 1e9], [1e9, 0]]")
        })?;
        let numbered: Vec<Vec<(String, Option<f64>)>> = rows
            .iter()
            .map(|row| row.iter().map(|entry| (entry.to_string(), entry.as_f64())).collect())
            .collect();
        Self::from_rows(&numbered)
    }

    /// Converts rows of numbers.
    ///
    /// # Errors
    /// Returns all invalid entries and all rows of the wrong length.
    pub fn from_numbers(rows: &[Vec<f64>]) -> Result<Self, Vec<Mistake>> {
        let numbered: Vec<Vec<(String, Option<f64>)>> = rows
            .iter()
            .map(|row| row.iter().map(|entry| (entry.to_string(), Some(*entry))).collect())
            .collect();
        Self::from_rows(&numbered)
    }

    /// Checks that the matrix has the fabric's number of leaves.
    pub fn must_fit(&self, fabric_leaves: usize) -> Result<(), Mistake> {
        if self.leaves == fabric_leaves {
            return Ok(());
        }
        let (matrix, last) = (self.leaves, fabric_leaves - 1);
        Err(Mistake {
            place: String::new(),
            message: format!("the matrix has {matrix} leaves, but the fabric has {fabric_leaves}"),
            fix: format!("use one row and one column for each of leaf0 to leaf{last}"),
        })
    }

    fn from_rows(rows: &[Vec<(String, Option<f64>)>]) -> Result<Self, Vec<Mistake>> {
        let mut demand = Self::none(rows.len());
        let mut mistakes = Vec::new();
        for (row, entries) in rows.iter().enumerate() {
            if entries.len() != rows.len() {
                let (number, columns, rows) = (row + 1, entries.len(), rows.len());
                let message =
                    format!("row {number} has length {columns}, but there are {rows} rows");
                let fix = "a demand matrix is square: use one row and one column per leaf";
                mistakes
                    .extend(Mistake::within(&format!("/{row}"), Mistake::of_whole(message, fix)));
                continue;
            }
            for (column, (text, value)) in entries.iter().enumerate() {
                let (problem, fix) = match value.filter(|value| (0.0..=1e18).contains(value)) {
                    None => (
                        format!("`{text}` is not a number of bytes"),
                        "use a number of bytes from 0 to 1e18",
                    ),
                    Some(value) if row == column && value > 0.0 => (
                        format!("leaf{row} sends {text} bytes to itself"),
                        "traffic within a leaf does not use the fabric: use 0",
                    ),
                    Some(value) => {
                        demand.bytes[row * rows.len() + column] = value.round() as u64;
                        continue;
                    }
                };
                let message = format!("row {}, column {}: {problem}", row + 1, column + 1);
                let place = format!("/{row}/{column}");
                mistakes.extend(Mistake::within(&place, Mistake::of_whole(message, fix)));
            }
        }
        if mistakes.is_empty() { Ok(demand) } else { Err(mistakes) }
    }
}

fn numbered(entry: &str) -> (String, Option<f64>) {
    (entry.to_owned(), entry.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(mistakes: &[Mistake]) -> String {
        mistakes.iter().map(|mistake| &*mistake.message).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn csv_and_json_parse_to_the_same_matrix() {
        let csv = Demand::from_csv("# two leaves\n0, 1e9\n5, 0\n").unwrap();
        assert_eq!(csv, Demand::from_json("[[0, 1e9], [5, 0]]").unwrap());
        assert_eq!(csv.bytes(LeafId(0), LeafId(1)), Bytes(1_000_000_000));
        assert_eq!(csv.total(), Bytes(1_000_000_005));
    }

    #[test]
    fn locates_every_bad_entry() {
        let text = messages(&Demand::from_csv("0, -1, NaN\n1, 2, x\n0, inf, 0").unwrap_err());
        for expected in [
            "row 1, column 2: `-1`",
            "row 1, column 3: `NaN`",
            "row 2, column 3: `x`",
            "row 2, column 2: leaf1 sends 2 bytes to itself",
            "row 3, column 2: `inf`",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
    }

    #[test]
    fn locates_non_square_and_invalid_matrices() {
        let text = messages(&Demand::from_csv("0,1\n1").unwrap_err());
        assert!(text.contains("row 2 has length 1, but there are 2 rows"), "{text}");
        let text = messages(&Demand::from_json("[[0,\n oops]]").unwrap_err());
        assert!(text.contains("line 2"), "{text}");
        let text = messages(&Demand::from_json("[[0,null],[1,0]]").unwrap_err());
        assert!(text.contains("row 1, column 2: `null`"), "{text}");
    }

    #[test]
    fn rejects_a_matrix_of_another_size() {
        let text = Demand::none(4).must_fit(8).unwrap_err().message;
        assert!(text.contains("4 leaves, but the fabric has 8"), "{text}");
    }
}
