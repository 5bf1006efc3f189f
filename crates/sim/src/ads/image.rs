//! Memory of the PLC: the program's working image, and the clients' view of it, one cycle at a time.

use std::sync::Arc;

use super::symbols::SymbolTable;
use super::wire::{error, group, state};

/// Memory of a program: variables and flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    data: Vec<u8>,
    memory: Vec<u8>,
}

impl Image {
    /// Returns zeroed memory for the symbols of a table.
    pub(crate) fn new(table: &SymbolTable) -> Self {
        Image { data: vec![0; table.data_size as usize], memory: vec![0; table.memory_size as usize] }
    }

    /// Returns the bytes of an index group, or `None` if it is not one of memory.
    pub(crate) fn area(&self, group: u32) -> Option<&[u8]> {
        match group {
            group::DATA => Some(&self.data),
            group::MEMORY => Some(&self.memory),
            _ => None,
        }
    }

    fn area_mut(&mut self, group: u32) -> Option<&mut [u8]> {
        match group {
            group::DATA => Some(&mut self.data),
            group::MEMORY => Some(&mut self.memory),
            _ => None,
        }
    }

    /// Reads a part of memory.
    ///
    /// # Errors
    /// An ADS error code: unknown group, offset or size.
    pub(crate) fn read(&self, group: u32, offset: u32, length: u32) -> Result<&[u8], u32> {
        let area = self.area(group).ok_or(error::GROUP)?;
        let rest = area.get(offset as usize..).filter(|rest| !rest.is_empty()).ok_or(error::OFFSET)?;
        rest.get(..length as usize).ok_or(error::SIZE)
    }

    /// Writes a part of memory.
    ///
    /// # Errors
    /// As for [`Image::read`].
    pub(crate) fn write(&mut self, group: u32, offset: u32, bytes: &[u8]) -> Result<(), u32> {
        let area = self.area_mut(group).ok_or(error::GROUP)?;
        let rest = area.get_mut(offset as usize..).filter(|rest| !rest.is_empty()).ok_or(error::OFFSET)?;
        rest.get_mut(..bytes.len()).ok_or(error::SIZE)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes a variable of the program, whose place must exist.
    pub(crate) fn put(&mut self, offset: u32, bytes: &[u8]) {
        let placed = self.write(group::DATA, offset, bytes);
        debug_assert_eq!(placed, Ok(()));
    }
}

/// Memory as one cycle left it, which clients read.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) image: Image,
    pub(crate) table: Arc<SymbolTable>,
    /// Number of cycles of the task since the start, including those while stopped.
    pub(crate) tick: u64,
    /// Time of the cycle, 100 ns since 1601.
    pub(crate) file_time: u64,
    /// ADS state: run or stop.
    pub(crate) state: u16,
}

impl Snapshot {
    /// Reads a part of memory, the version of the symbols or the state, for reads and notifications.
    ///
    /// # Errors
    /// An ADS error code.
    pub(crate) fn value(&self, group: u32, offset: u32, length: u32, out: &mut Vec<u8>) -> Result<(), u32> {
        match (group, offset) {
            (group::SYMBOL_VERSION, 0) if length >= 1 => out.push(self.table.version),
            (group::DEVICE_DATA, 0) if length >= 2 => out.extend_from_slice(&self.state.to_le_bytes()),
            (group::DEVICE_DATA, 2) if length >= 2 => out.extend_from_slice(&[0, 0]),
            (group::SYMBOL_VERSION | group::DEVICE_DATA, 0) | (group::DEVICE_DATA, 2) => return Err(error::SIZE),
            (group::SYMBOL_VERSION | group::DEVICE_DATA, _) => return Err(error::OFFSET),
            (group::DATA_SIZE | group::MEMORY_SIZE, 0) if length >= 4 => {
                let of = if group == group::DATA_SIZE { self.table.data_size } else { self.table.memory_size };
                out.extend_from_slice(&of.to_le_bytes());
            }
            (group::DATA_SIZE | group::MEMORY_SIZE, _) => return Err(error::SIZE),
            (group::MEMORY_BIT, bit) => {
                let byte = self.image.read(group::MEMORY, bit / 8, 1)?[0];
                if length != 1 {
                    return Err(error::SIZE);
                }
                out.push(byte >> (bit % 8) & 1);
            }
            _ => out.extend_from_slice(self.image.read(group, offset, length)?),
        }
        Ok(())
    }

    pub(crate) fn running(&self) -> bool {
        self.state == state::RUN
    }
}
