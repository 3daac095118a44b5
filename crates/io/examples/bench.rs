//! Compares the crate's ways of accessing a disk:
//! `cargo run --release -p onefold-io --example bench -- FOLDER`.

use std::{path::Path, sync::Arc, time::Instant};

use onefold_io::{Batching, Dir, Disk, FileDir, ReadAt, SimDir, uring_works};

fn main() {
    let folder = std::env::args().nth(1).expect("a folder to work in");
    let folder = Path::new(&folder);
    println!(
        "io_uring {}",
        if uring_works() { "works" } else { "is refused" }
    );
    crash_images();
    containers(folder);
    random_reads(folder);
}

/// Name and length of the disk for random reads.
const READS: &str = "bench-reads";
const LEN: u64 = 1 << 30;

fn random_reads(folder: &Path) {
    let plain = FileDir::open(folder).unwrap();
    let _ = plain.remove(READS);
    let disk = plain.create(READS).unwrap();
    let block: Vec<u8> = (0..1 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for i in 0..LEN >> 20 {
        disk.write_at(&block, i << 20).unwrap();
    }
    disk.sync().unwrap();
    for (cache, count) in [("direct", 60_000), ("cold", 30_000), ("cached", 200_000)] {
        for way in ["io_uring", "threads", "one by one"] {
            let slow = way == "one by one" && cache != "cached";
            let count = if slow { 10_000 } else { count };
            let reads_s = read_at_random(folder, cache, way, count);
            let name = format!("{cache}, {way}");
            println!("{name:20} {reads_s:>9.0} reads/s of 4 KiB in batches of 256");
        }
    }
    plain.remove(READS).unwrap();
}

/// Opens the disk in one way, with its pages in the page cache or not.
fn open(folder: &Path, cache: &str, way: &str) -> Arc<dyn Disk> {
    let mut dir = FileDir::open(folder).unwrap();
    if cache == "direct" {
        dir = dir.direct();
    }
    let dir = match way {
        "threads" => dir.batched(Batching::Threads),
        "one by one" => dir.batched(Batching::Sequential),
        _ => dir,
    };
    if cache == "cold" {
        let file = std::fs::File::open(folder.join(READS)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    } else if cache == "cached" {
        std::fs::read(folder.join(READS)).unwrap();
    }
    dir.open(READS).unwrap()
}

/// Random reads a second.
fn read_at_random(folder: &Path, cache: &str, way: &str, count: u32) -> f64 {
    let disk = open(folder, cache, way);
    let mut bufs = vec![[0u8; 4096]; 256];
    let mut seed = 1u64;
    let start = Instant::now();
    for _ in 0..count / 256 {
        let mut reads: Vec<ReadAt> = bufs
            .iter_mut()
            .map(|buf| {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                ReadAt {
                    offset: (seed >> 20) % (LEN / 4096) * 4096,
                    buf,
                }
            })
            .collect();
        disk.read_many_at(&mut reads).unwrap();
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

/// Writes 1 GiB as 16 MiB disks, each synced and renamed, as a store does; and as a plain file without syncs.
fn containers(folder: &Path) {
    const DISK: usize = 16 << 20;
    let data: Vec<u8> = (0..DISK as u32 + 1)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    let dir = FileDir::open(folder)
        .unwrap()
        .subdir("bench-writes")
        .unwrap();
    for (name, piece) in [
        ("16 MiB at once", DISK),
        ("1 MiB pieces", 1 << 20),
        ("200 kB pieces (cached)", 200_000),
    ] {
        let start = Instant::now();
        for i in 0..64 {
            let disk = dir.create("tmp").unwrap();
            for at in (0..DISK).step_by(piece) {
                disk.write_at(&data[at + 1..DISK.min(at + piece) + 1], at as u64)
                    .unwrap();
            }
            disk.sync().unwrap();
            dir.rename_new("tmp", &i.to_string()).unwrap();
            dir.sync().unwrap();
        }
        println!(
            "containers, {name:24} {:>6.0} MB/s",
            1073.7 / start.elapsed().as_secs_f64()
        );
        for i in 0..64 {
            dir.remove(&i.to_string()).unwrap();
        }
    }
    let path = folder.join("bench-plain");
    let start = Instant::now();
    let mut file = std::fs::File::create(&path).unwrap();
    for _ in 0..64 {
        std::io::Write::write_all(&mut file, &data[1..]).unwrap();
    }
    println!(
        "one plain file, never synced         {:>6.0} MB/s",
        1073.7 / start.elapsed().as_secs_f64()
    );
    std::fs::remove_file(path).unwrap();
    FileDir::open(folder)
        .unwrap()
        .remove_subdir("bench-writes")
        .unwrap();
}

/// Makes crash images of every point of a run that leaves 400 KB in 100 disks, from its history.
fn crash_images() {
    let dir = SimDir::new(1);
    dir.keep_history();
    let start = Instant::now();
    for i in 0..500 {
        let disk = dir.create("tmp").unwrap();
        (0..4).for_each(|part| disk.write_at(&[i as u8; 1000], part * 1000).unwrap());
        disk.sync().unwrap();
        dir.rename("tmp", &(i % 100).to_string()).unwrap();
        dir.sync().unwrap();
    }
    let points = dir.counts().points;
    let run = start.elapsed();
    let bytes: u64 = (0..points)
        .filter_map(|point| dir.crash_image_at(point, point))
        .map(|image| {
            let list = image.list().unwrap();
            let lens = list.iter().map(|entry| image.len_of(&entry.name).unwrap());
            lens.sum::<u64>()
        })
        .sum();
    println!(
        "{points} points run in {run:.1?}, their crash images in {:.1?} ({bytes} bytes)",
        start.elapsed() - run
    );
}
