//! A disk that fills and empties: a file system of its own, and a ballast file in it that takes the free space.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

/// Number of bytes that the ballast takes or frees at a time.
const PIECE_BYTES: u64 = 256 << 10;

/// File system of the disk. All except tmpfs and FUSE are in a file, mounted as a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FileSystem {
    /// tmpfs, in memory.
    Tmpfs,
    /// ext4.
    Ext4,
    /// XFS: at least 300 MiB.
    Xfs,
    /// btrfs, which copies on write.
    Btrfs,
    /// A tmpfs seen through FUSE, by bindfs.
    Fuse,
}

/// File system that the benchmark may fill.
pub(super) struct Disk {
    path: PathBuf,
    limited: bool,
}

impl FileSystem {
    fn mount(self, at: &Path, mib: u64) -> anyhow::Result<()> {
        let format = match self {
            FileSystem::Tmpfs => return tmpfs(at, mib),
            FileSystem::Fuse => {
                let below = at.with_extension("below");
                std::fs::create_dir_all(&below)?;
                tmpfs(&below, mib)?;
                return run(Command::new("bindfs").arg(below).arg(at));
            }
            FileSystem::Ext4 => "mkfs.ext4",
            FileSystem::Xfs => "mkfs.xfs",
            FileSystem::Btrfs => "mkfs.btrfs",
        };
        let image = at.with_extension("img");
        // An earlier run may have left one, before the machine was restarted.
        if !image.exists() {
            File::create(&image)?.set_len(mib << 20)?;
            run(Command::new(format).arg("-q").arg(&image))?;
        }
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at))
    }
}

fn tmpfs(at: &Path, mib: u64) -> anyhow::Result<()> {
    let options = format!("size={mib}m,mode=0700");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "strongback-soak"]).arg(at))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().display().to_string();
    let done = command.status().with_context(|| format!("{program}, which must be installed"))?;
    ensure!(done.success(), "{program} ends with {done}: it takes root");
    Ok(())
}

impl Disk {
    /// Mounts a file system of this size, or reuses the one left by an earlier run in this folder. With 0 MiB, uses a
    /// plain folder.
    pub(super) fn mount(path: &Path, file_system: FileSystem, mib: u64) -> anyhow::Result<Disk> {
        std::fs::create_dir_all(path)?;
        let is_mounted = std::fs::read_to_string("/proc/mounts")?
            .lines()
            .any(|line| line.split(' ').nth(1).is_some_and(|at| Path::new(at) == path));
        if mib > 0 && !is_mounted {
            file_system.mount(path, mib).context("no file system can be made; --disk-mib 0 does without")?;
        }
        Ok(Disk { path: path.to_owned(), limited: mib > 0 })
    }

    /// Returns the store's folder.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join("store")
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Returns whether the ballast takes any space.
    pub(super) fn is_taken(&self) -> bool {
        self.ballast().exists()
    }

    /// Frees all space.
    pub(super) fn empty(&self) -> anyhow::Result<()> {
        if self.limited && self.ballast().exists() {
            std::fs::remove_file(self.ballast())?;
        }
        Ok(())
    }

    /// Fills the disk to the last byte and empties it in part, repeatedly, until `ended` is set. Returns how often it
    /// was full.
    pub(super) fn press(&self, random: &mut fastrand::Rng, ended: &AtomicBool) -> anyhow::Result<u64> {
        if !self.limited {
            return Ok(0);
        }
        let zeros = vec![0; PIECE_BYTES as usize];
        let mut file = File::options().create(true).append(true).open(self.ballast())?;
        let mut fulls = 0;
        while !ended.load(Ordering::SeqCst) {
            let mut pieces = 0_u64;
            let filled = loop {
                match file.write_all(&zeros) {
                    Ok(()) => pieces += 1,
                    Err(error) => break error,
                }
                if ended.load(Ordering::SeqCst) {
                    return Ok(fulls);
                }
                // Occasionally take space slowly.
                if pieces.is_multiple_of(64) && random.bool() {
                    std::thread::park_timeout(Duration::from_millis(random.u64(0..20)));
                }
            };
            ensure!(filled.kind() == std::io::ErrorKind::StorageFull, "ballast: {filled}");
            fulls += 1;
            std::thread::park_timeout(Duration::from_millis(random.u64(10..800)));
            // The freed space is sometimes too small for anything.
            let size = file.metadata()?.len();
            let given = if random.u8(..4) == 0 { random.u64(0..2 * PIECE_BYTES) } else { random.u64(0..=size) };
            file.set_len(size - given.min(size))?;
            std::thread::park_timeout(Duration::from_millis(random.u64(0..500)));
        }
        Ok(fulls)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A mount in a temporary folder would outlive it; a mount in a kept folder holds the store.
        if self.limited && self.path.starts_with(std::env::temp_dir()) {
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
            let below = self.path.with_extension("below");
            if below.exists() {
                let _ = Command::new("umount").arg("-l").arg(below).status();
            }
        }
    }
}
