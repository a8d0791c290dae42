// SPDX-License-Identifier: Apache-2.0
//! The subset of Protocol Buffers that Chakra needs: number, text and message fields, and streams
//! of length-prefixed messages.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireValue<'b> {
    /// A number or Boolean. Negative numbers are sign-extended to 64 bits.
    Number(u64),
    /// A text, a message or packed numbers.
    Bytes(&'b [u8]),
    /// A fixed32 or fixed64 field, which none of these messages has.
    Fixed,
}

pub(super) type WireError = &'static str;

const SHORT: WireError = "it ends in the middle of a field";
const LONG: WireError = "a number is longer than 64 bits";
const KIND: WireError = "a field has another type than in et_def.proto";

fn number(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first().ok_or(SHORT)?;
        *bytes = rest;
        if place == 9 && *byte > 1 {
            return Err(LONG);
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(LONG)
}

fn take<'b>(bytes: &mut &'b [u8], length: u64) -> Result<&'b [u8], WireError> {
    let length = usize::try_from(length).map_err(|_| SHORT)?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or(SHORT)?;
    *bytes = rest;
    Ok(taken)
}

/// Takes the next length-prefixed message off a stream.
pub(super) fn message<'b>(stream: &mut &'b [u8]) -> Result<&'b [u8], WireError> {
    let length = number(stream)?;
    take(stream, length)
}

/// Calls `field` with the number and the value of each field.
pub(super) fn fields<'b>(
    mut bytes: &'b [u8],
    field: &mut dyn FnMut(u64, WireValue<'b>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    while !bytes.is_empty() {
        let key = number(&mut bytes)?;
        let value = match key & 7 {
            0 => WireValue::Number(number(&mut bytes)?),
            1 => take(&mut bytes, 8).map(|_| WireValue::Fixed)?,
            2 => {
                let length = number(&mut bytes)?;
                WireValue::Bytes(take(&mut bytes, length)?)
            }
            5 => take(&mut bytes, 4).map(|_| WireValue::Fixed)?,
            _ => return Err("a field has an unknown type"),
        };
        field(key >> 3, value)?;
    }
    Ok(())
}

impl<'b> WireValue<'b> {
    pub(super) fn number(self) -> Result<u64, WireError> {
        if let Self::Number(value) = self { Ok(value) } else { Err(KIND) }
    }

    pub(super) fn bytes(self) -> Result<&'b [u8], WireError> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(KIND) }
    }

    pub(super) fn text(self) -> Result<String, WireError> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| "a text is not UTF-8")?;
        Ok(text.to_owned())
    }

    /// Appends a repeated number field, packed or not.
    pub(super) fn add_to(self, numbers: &mut Vec<u64>) -> Result<(), WireError> {
        match self {
            Self::Number(value) => numbers.push(value),
            Self::Bytes(mut bytes) => {
                while !bytes.is_empty() {
                    numbers.push(number(&mut bytes)?);
                }
            }
            Self::Fixed => return Err(KIND),
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Written(Vec<u8>);

impl Written {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Writes a number field, even if it is 0.
    pub(super) fn put_number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    /// Writes a bytes field, even if it is empty.
    pub(super) fn put_bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Writes a number field. 0 is protobuf's default and is omitted.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.put_number(field, value);
        }
    }

    /// Writes a bytes field. Empty is protobuf's default and is omitted.
    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put_bytes(field, bytes);
        }
    }

    pub(super) fn numbers(&mut self, field: u64, numbers: &[u64]) {
        let mut packed = Self::default();
        numbers.iter().for_each(|value| packed.varint(*value));
        self.bytes(field, &packed.0);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn behind_its_length(&self) -> Vec<u8> {
        let mut stream = Self::default();
        stream.varint(self.0.len() as u64);
        stream.0.extend_from_slice(&self.0);
        stream.0
    }
}
