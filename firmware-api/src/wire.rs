// SPDX-License-Identifier: Apache-2.0

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(length)?;
        self.0 = tail;
        Some(head)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.slice(N)?.try_into().ok()
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub(crate) fn codes<T: Copy + Default, const N: usize>(
        &mut self,
        item: impl Fn(u8) -> Option<T>,
    ) -> Option<[T; N]> {
        let mut items = [T::default(); N];
        for (slot, code) in items.iter_mut().zip(self.array::<N>()?) {
            *slot = item(code)?;
        }
        Some(items)
    }
    pub(crate) fn done<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// Writes to a buffer, which must be large enough.
pub(crate) struct Writer<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, length: 0 }
    }
    pub(crate) fn slice(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.slice(&[value])
    }
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.slice(&value.to_be_bytes())
    }
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.slice(&value.to_be_bytes())
    }
    pub(crate) fn codes<T: Copy>(&mut self, items: &[T], code: impl Fn(T) -> u8) -> &mut Self {
        for &item in items {
            self.u8(code(item));
        }
        self
    }
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}
