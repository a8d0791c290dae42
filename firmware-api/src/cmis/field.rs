// SPDX-License-Identifier: Apache-2.0

use core::marker::PhantomData;

use crate::wire::fields;

/// Address of a register. Bank and page are ignored below offset 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterAddress {
    /// Bank number, 0 for pages without banks.
    pub bank: u8,
    /// Page number.
    pub page: u8,
    /// Offset in the 256-byte window.
    pub offset: u8,
}

fields!(RegisterAddress { bank, page, offset });

impl RegisterAddress {
    /// Addresses a byte in lower memory.
    pub const fn lower(offset: u8) -> Self {
        assert!(offset < 128, "the lower memory ends at 127");
        Self { bank: 0, page: 0, offset }
    }

    /// Addresses a byte of `page` in bank 0.
    pub const fn page(page: u8, offset: u8) -> Self {
        assert!(offset >= 128, "upper memory begins at 128");
        Self { bank: 0, page, offset }
    }

    /// Adds `count` to the offset, which must stay within the same half.
    #[must_use]
    pub const fn plus(self, count: u8) -> Self {
        Self { offset: self.offset + count, ..self }
    }
}

/// A source of register values, such as a module or a copy on the host.
pub trait Registers {
    /// Returns a byte, or zero if it does not exist.
    fn byte(&self, at: RegisterAddress) -> u8;
}

/// A writable set of registers.
pub trait RegistersMut: Registers {
    /// Sets a byte; does nothing if it does not exist.
    fn set_byte(&mut self, at: RegisterAddress, value: u8);
}

/// A value with a register code.
pub trait Coded: Sized {
    /// Returns `None` for a reserved code.
    fn from_code(code: u8) -> Option<Self>;
    /// Returns the register code.
    fn code(self) -> u8;
}

impl Coded for u8 {
    fn from_code(code: u8) -> Option<Self> {
        Some(code)
    }
    fn code(self) -> u8 {
        self
    }
}

/// Adjacent bits of one byte that encode a `T`.
#[derive(Debug)]
pub struct BitField<T> {
    /// Address of the byte.
    pub at: RegisterAddress,
    high: u8,
    low: u8,
    meaning: PhantomData<fn() -> T>,
}

impl<T> BitField<T> {
    /// Defines bits `high` to `low`.
    pub const fn bits(at: RegisterAddress, high: u8, low: u8) -> Self {
        assert!(high < 8 && low <= high, "bits of one byte");
        Self { at, high, low, meaning: PhantomData }
    }

    /// Defines a whole byte.
    pub const fn byte(at: RegisterAddress) -> Self {
        Self::bits(at, 7, 0)
    }

    const fn mask(&self) -> u8 {
        (0xff >> (7 - (self.high - self.low))) << self.low
    }
}

impl<T: Coded> BitField<T> {
    /// Returns the value, or `None` for a reserved code.
    pub fn get(&self, registers: &impl Registers) -> Option<T> {
        T::from_code((registers.byte(self.at) & self.mask()) >> self.low)
    }

    /// Sets the value and preserves the other bits of the byte.
    pub fn set(&self, registers: &mut impl RegistersMut, value: T) {
        let rest = registers.byte(self.at) & !self.mask();
        registers.set_byte(self.at, rest | (value.code() << self.low & self.mask()));
    }
}

/// A single bit.
#[derive(Clone, Copy, Debug)]
pub struct FlagBit {
    /// Address of the byte.
    pub at: RegisterAddress,
    /// Bit number, 0 to 7.
    pub bit: u8,
}

impl FlagBit {
    /// Defines bit `bit` of the byte at `at`.
    pub const fn new(at: RegisterAddress, bit: u8) -> Self {
        assert!(bit < 8, "a byte has eight bits");
        Self { at, bit }
    }

    /// Returns whether the bit is set.
    pub fn get(self, registers: &impl Registers) -> bool {
        registers.byte(self.at) >> self.bit & 1 == 1
    }

    /// Sets the bit to `value`.
    pub fn set(self, registers: &mut impl RegistersMut, value: bool) {
        let rest = registers.byte(self.at) & !(1 << self.bit);
        registers.set_byte(self.at, rest | u8::from(value) << self.bit);
    }

    /// Sets the bit, as a module does for a latched flag.
    pub fn raise(self, registers: &mut impl RegistersMut) {
        self.set(registers, true);
    }
}

/// One bit per lane; lane 1 is the lowest bit.
#[derive(Clone, Copy, Debug)]
pub struct LaneFlags {
    /// Address of the byte.
    pub at: RegisterAddress,
}

impl LaneFlags {
    /// Defines the byte at `at`.
    pub const fn new(at: RegisterAddress) -> Self {
        Self { at }
    }

    /// Returns all eight bits.
    pub fn get(self, registers: &impl Registers) -> u8 {
        registers.byte(self.at)
    }

    /// Sets all eight bits.
    pub fn set(self, registers: &mut impl RegistersMut, lanes: u8) {
        registers.set_byte(self.at, lanes);
    }

    /// Sets these bits and preserves the others, as a module does for latched flags.
    pub fn raise(self, registers: &mut impl RegistersMut, lanes: u8) {
        registers.set_byte(self.at, registers.byte(self.at) | lanes);
    }
}

/// A big-endian integer of several bytes.
#[derive(Debug)]
pub struct Number<T> {
    /// Address of the first byte.
    pub at: RegisterAddress,
    meaning: PhantomData<fn() -> T>,
}

impl<T> Number<T> {
    /// Defines the integer that begins at `at`.
    pub const fn new(at: RegisterAddress) -> Self {
        Self { at, meaning: PhantomData }
    }
}

fn read_array<const N: usize>(registers: &impl Registers, at: RegisterAddress) -> [u8; N] {
    core::array::from_fn(|index| registers.byte(at.plus(index as u8)))
}

fn write_slice(registers: &mut impl RegistersMut, at: RegisterAddress, bytes: &[u8]) {
    for (index, &byte) in bytes.iter().enumerate() {
        registers.set_byte(at.plus(index as u8), byte);
    }
}

macro_rules! number {
    ($($integer:ty),+) => {$(
        impl Number<$integer> {
            /// Returns the value.
            pub fn get(&self, registers: &impl Registers) -> $integer {
                <$integer>::from_be_bytes(read_array(registers, self.at))
            }
            /// Sets the value.
            pub fn set(&self, registers: &mut impl RegistersMut, value: $integer) {
                write_slice(registers, self.at, &value.to_be_bytes());
            }
        }
    )+};
}
number!(u16, i16, u32);

/// Text of fixed length, padded with spaces.
#[derive(Debug)]
pub struct TextField<const N: usize> {
    at: RegisterAddress,
}

impl<const N: usize> TextField<N> {
    /// Defines the text that begins at `at`.
    pub const fn new(at: RegisterAddress) -> Self {
        Self { at }
    }

    /// Returns the bytes, including padding.
    pub fn get(&self, registers: &impl Registers) -> [u8; N] {
        read_array(registers, self.at)
    }

    /// Writes all bytes.
    pub fn set(&self, registers: &mut impl RegistersMut, text: &[u8; N]) {
        write_slice(registers, self.at, text);
    }
}

/// One nibble for each of eight lanes; lane 1 is the low half of the first byte.
#[derive(Debug)]
pub struct Nibbles<T> {
    /// Address of the first byte.
    pub at: RegisterAddress,
    meaning: PhantomData<fn() -> T>,
}

impl<T: Coded> Nibbles<T> {
    /// Defines the four bytes that begin at `at`.
    pub const fn new(at: RegisterAddress) -> Self {
        Self { at, meaning: PhantomData }
    }

    /// Returns the value of a lane (0 to 7), or `None` for a reserved code.
    pub fn get(&self, registers: &impl Registers, lane: usize) -> Option<T> {
        let byte = registers.byte(self.at.plus(lane as u8 / 2));
        T::from_code(if lane.is_multiple_of(2) { byte & 0x0f } else { byte >> 4 })
    }

    /// Sets the value of a lane (0 to 7).
    pub fn set(&self, registers: &mut impl RegistersMut, lane: usize, value: T) {
        let at = self.at.plus(lane as u8 / 2);
        let (byte, code) = (registers.byte(at), value.code() & 0x0f);
        let byte =
            if lane.is_multiple_of(2) { byte & 0xf0 | code } else { byte & 0x0f | code << 4 };
        registers.set_byte(at, byte);
    }
}

/// Eight unsigned two-byte values, lane 1 first.
#[derive(Clone, Copy, Debug)]
pub struct U16s {
    /// First byte of the first value.
    pub at: RegisterAddress,
}

impl U16s {
    /// Defines the sixteen bytes that begin at `at`.
    pub const fn new(at: RegisterAddress) -> Self {
        Self { at }
    }

    /// Returns the value of a lane (0 to 7).
    pub fn get(self, registers: &impl Registers, lane: usize) -> u16 {
        Number::<u16>::new(self.at.plus(2 * lane as u8)).get(registers)
    }

    /// Sets the value of a lane (0 to 7).
    pub fn set(self, registers: &mut impl RegistersMut, lane: usize, value: u16) {
        Number::<u16>::new(self.at.plus(2 * lane as u8)).set(registers, value);
    }
}
