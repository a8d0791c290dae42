// SPDX-License-Identifier: Apache-2.0
//! Values in messages and registers: big-endian integers, one-byte codes, and structs of them.

/// A value that is encoded on its own.
pub(crate) trait Wire: Sized {
    fn write(self, writer: &mut Writer<'_>);
    fn read(reader: &mut Reader<'_>) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Wire for $integer {
            fn write(self, writer: &mut Writer<'_>) {
                writer.slice(&self.to_be_bytes());
            }
            fn read(reader: &mut Reader<'_>) -> Option<Self> {
                reader.slice(size_of::<Self>())?.try_into().ok().map(Self::from_be_bytes)
            }
        }
    )+};
}
integers!(u8, u16, u32, u64);

impl Wire for bool {
    fn write(self, writer: &mut Writer<'_>) {
        writer.put(u8::from(self));
    }
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        reader.get::<u8>().filter(|&code| code <= 1).map(|code| code == 1)
    }
}

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    fn write(self, writer: &mut Writer<'_>) {
        for item in self {
            writer.put(item);
        }
    }
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = reader.get()?;
        }
        Some(items)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn write(self, writer: &mut Writer<'_>) {
        writer.put(self.0).put(self.1);
    }
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some((reader.get()?, reader.get()?))
    }
}

/// Encodes a struct as these fields, in this order.
macro_rules! fields {
    ($name:ident { $($field:tt),+ }) => {
        impl $crate::wire::Wire for $name {
            fn write(self, writer: &mut $crate::wire::Writer<'_>) {
                $(writer.put(self.$field);)+
            }
            fn read(reader: &mut $crate::wire::Reader<'_>) -> Option<Self> {
                Some(Self { $($field: reader.get()?),+ })
            }
        }
    };
}

/// Uses the code of a type in registers and messages.
macro_rules! coded {
    ($name:ident) => {
        impl $crate::cmis::Coded for $name {
            fn from_code(code: u8) -> Option<Self> {
                Self::from_code(code)
            }
            fn code(self) -> u8 {
                self.code()
            }
        }
        impl $crate::wire::Wire for $name {
            fn write(self, writer: &mut $crate::wire::Writer<'_>) {
                writer.put(self.code());
            }
            fn read(reader: &mut $crate::wire::Reader<'_>) -> Option<Self> {
                Self::from_code(reader.get()?)
            }
        }
    };
}

/// Defines an enum whose variants have one-byte codes.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }
        impl $name {
            /// Returns `None` for an undefined code.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }
            /// Returns the code.
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$variant => $code,)+
                }
            }
        }
        $crate::wire::coded!($name);
    };
}

pub(crate) use {coded, codes, fields};

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(length)?;
        self.0 = tail;
        Some(head)
    }
    pub(crate) fn get<T: Wire>(&mut self) -> Option<T> {
        T::read(self)
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
    pub(crate) fn put(&mut self, value: impl Wire) -> &mut Self {
        value.write(self);
        self
    }
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}
