//! The numbers that the Dmdedup report (Mandal, FSL-15-03, 2015) gives in its text, with the page. Its plots are not
//! read off: where the text says nothing, nothing stands here.

/// Something that the report says of its measurements.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The figure or table.
    pub of: &'static str,
    /// The page on which the text says it.
    pub page: u32,
    /// The comparison. No other claim of the same figure has these words.
    pub what: &'static str,
    /// The report's own numbers.
    pub said: &'static str,
    /// These numbers in `unit`, from the lowest to the highest.
    pub range: (f64, f64),
    /// The unit of the range.
    pub unit: Unit,
}

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// How many times as much as what it is compared with.
    Times,
    /// A number of its own: pages, percent, a ratio of sizes.
    Count,
}

/// Megabytes a second of the report's raw device in order, and requests of 4 KiB a second at random (p. 24, p. 26).
pub const RAW_MB_S: f64 = 147.0;
const RAW_IOPS: f64 = 420.0;

const fn in_order(
    of: &'static str,
    page: u32,
    what: &'static str,
    said: &'static str,
    mb_s: (f64, f64),
) -> Claim {
    let range = (mb_s.0 / RAW_MB_S, mb_s.1 / RAW_MB_S);
    times(of, page, what, said, range)
}

const fn times(
    of: &'static str,
    page: u32,
    what: &'static str,
    said: &'static str,
    range: (f64, f64),
) -> Claim {
    claim(of, page, what, said, range, Unit::Times)
}

const fn count(
    of: &'static str,
    page: u32,
    what: &'static str,
    said: &'static str,
    range: (f64, f64),
) -> Claim {
    claim(of, page, what, said, range, Unit::Count)
}

const fn claim(
    of: &'static str,
    page: u32,
    what: &'static str,
    said: &'static str,
    range: (f64, f64),
    unit: Unit,
) -> Claim {
    Claim {
        of,
        page,
        what,
        said,
        range,
        unit,
    }
}

/// All claims, in the order of the report.
pub const CLAIMS: &[Claim] = &[
    count("t2.1", 11, UNIQUE_EXT2, "98.9 %", (98.9, 98.9)),
    count("t2.1", 11, UNIQUE_EXT3, "84.7 %", (84.7, 84.7)),
    count("t2.1", 11, UNIQUE_EXT4, "84.6 %", (84.6, 84.6)),
    count("2.2", 7, WHOLE_FILES, "about 2.02", (2.02, 2.02)),
    times(
        "2.2",
        7,
        FIXED_FALL,
        "decreases with the chunk size",
        (0.0, 1.0),
    ),
    times(
        "2.4",
        8,
        VARIABLE_FALL,
        "decreases with the mean chunk",
        (0.0, 1.0),
    ),
    times(
        "2.5",
        8,
        VARIABLE_MOST,
        "the most effective way",
        (1.0, f64::INFINITY),
    ),
    in_order("4.1", 24, INRAM_IN_ORDER, "147 of 147 MB/s", (147.0, 147.0)),
    in_order("4.1", 24, DTB_SMALL, "34 of 147 MB/s", (34.0, 34.0)),
    in_order("4.1", 25, DTB_LARGE, "147 of 147 MB/s", (147.0, 147.0)),
    in_order("4.1", 25, CBT_IN_ORDER, "3–95 of 147 MB/s", (3.0, 95.0)),
    in_order("4.1", 25, CBT_EACH, "3–6 of 147 MB/s", (3.0, 6.0)),
    in_order("4.1", 25, CBT_THOUSAND, "13–34 of 147 MB/s", (13.0, 34.0)),
    times(
        "4.1",
        25,
        CBT_FLAT,
        "does not depend on the cache",
        (1.0, 1.0),
    ),
    times("4.1", 25, CBT_MORE_IO, "40 % more", (1.4, 1.4)),
    count(
        "4.1",
        25,
        CBT_EACH_PAGES,
        "14 (4 + 3 + 5 + 1)",
        (14.0, 14.0),
    ),
    times(
        "4.1",
        26,
        ALL_RANDOM,
        "670–11,100 of 420 a second",
        (670.0 / RAW_IOPS, 11_100.0 / RAW_IOPS),
    ),
    times("4.2", 26, DUPLICATE_IN_ORDER, "1.4–2 ×", (1.4, 2.0)),
    in_order("4.2", 26, DUPLICATE_EACH, "12 of 147 MB/s", (12.0, 12.0)),
    count("4.2", 26, DUPLICATE_PAGES, "10", (10.0, 10.0)),
    times(
        "4.2",
        26,
        DUPLICATE_FLAT,
        "does not depend on it",
        (1.0, 1.0),
    ),
    times("4.2", 26, DUPLICATE_RANDOM, "2–140 ×", (2.0, 140.0)),
    times("4.2", 26, DUPLICATE_DTB, "performs poorly", (0.0, 1.0)),
    count("4.3", 26, RATIO_512, "1.18", (1.18, 1.18)),
    count("4.3", 26, RATIO_4096, "1.88", (1.88, 1.88)),
    times("4.3", 26, INRAM_512, "11 % more", (1.11, 1.11)),
    times("4.3", 26, INRAM_4096, "45 % more", (1.45, 1.45)),
    times(
        "4.3",
        26,
        CBT_BEFORE_DTB,
        "outperforms DTB",
        (1.0, f64::INFINITY),
    ),
    times("4.4", 27, TRACES, "1.6–7.2 ×", (1.6, 7.2)),
    times(
        "t4.2",
        28,
        EXTRACTION,
        "649 s against 521 s",
        (649.0 / 521.0, 649.0 / 521.0),
    ),
    times("6.1", 34, NODEDUP, "2.2–5.4 ×", (2.2, 5.4)),
    times("6.1", 34, NODEDUP_EACH, "1.5–1.7 ×", (1.5, 1.7)),
    times("6.1", 34, NODEDUP_TURNS, "2.2–5.4 ×", (2.2, 5.4)),
    times("6.1", 34, NODEDUP_EACH_TURNS, "1.5–1.7 ×", (1.5, 1.7)),
    times("6.2", 34, PREFETCH, "1.2–1.8 ×", (1.2, 1.8)),
    times("6.2", 34, PREFETCH_EACH, "0.9–1.1 ×", (0.9, 1.1)),
    times("6.2", 34, PREFETCH_TURNS, "1.2–1.8 ×", (1.2, 1.8)),
    times("6.2", 34, PREFETCH_EACH_TURNS, "0.9–1.1 ×", (0.9, 1.1)),
    times("6.3", 35, PREFETCH_HALF, "1.1–1.6 ×", (1.1, 1.6)),
    times("6.3", 35, PREFETCH_HALF_TURNS, "1.1–1.6 ×", (1.1, 1.6)),
    times("6.4", 35, FILES_EXT4[0], "1–10 % more", (1.01, 1.10)),
    times("6.4", 35, FILES_EXT4[1], "1–10 % more", (1.01, 1.10)),
    times("6.4", 35, FILES_EXT4[2], "1.1–1.2 ×", (1.1, 1.2)),
    times("6.4", 35, FILES_EXT4[3], "1.1–1.2 ×", (1.1, 1.2)),
    times("6.4", 35, FILES_NILFS2[0], "1–10 % more", (1.01, 1.10)),
    times("6.4", 35, FILES_NILFS2[1], "1–10 % more", (1.01, 1.10)),
    times("6.4", 35, FILES_NILFS2[2], "3.5–4.4 ×", (3.5, 4.4)),
    times("6.4", 35, FILES_NILFS2[3], "3.5–4.4 ×", (3.5, 4.4)),
];

pub const UNIQUE_EXT2: &str = "unique metadata of ext2, at rest and of all writes, %";
pub const UNIQUE_EXT3: &str = "unique metadata of ext3, at rest and of all writes, %";
pub const UNIQUE_EXT4: &str = "unique metadata of ext4, at rest and of all writes, %";

pub const WHOLE_FILES: &str = "ratio of whole files, 40 versions of a source tree";
pub const FIXED_FALL: &str = "fixed chunks: ratio at twice the size by ratio at the size";
pub const VARIABLE_FALL: &str = "variable chunks: ratio at twice the mean by ratio at the mean";
pub const VARIABLE_MOST: &str = "4 KiB: variable chunks by fixed ones";
pub const INRAM_IN_ORDER: &str = "in order: inram by raw";
pub const DTB_SMALL: &str = "in order: dtb with a cache of 0.3 % by raw";
pub const DTB_LARGE: &str = "in order: dtb with a cache of 135 % by raw";
pub const CBT_IN_ORDER: &str = "in order: cbt by raw, all caches and transactions";
pub const CBT_EACH: &str = "in order: cbt by raw, transactions of one write";
pub const CBT_THOUSAND: &str = "in order: cbt by raw, transactions of 1,000";
pub const CBT_FLAT: &str = "in order: cbt, 1,000: least by most, caches from 25 %";
pub const CBT_MORE_IO: &str = "in order: pages of cbt by those of dtb, caches of 25–75 %";
pub const CBT_EACH_PAGES: &str =
    "pages of metadata written by cbt for a write, transactions of one";
pub const ALL_RANDOM: &str = "at random: all of dmdedup by raw";
pub const DUPLICATE_IN_ORDER: &str = "in order: all but cbt with transactions of one, by raw";
pub const DUPLICATE_EACH: &str = "in order: cbt with transactions of one, by raw";
pub const DUPLICATE_PAGES: &str =
    "pages of metadata written by cbt for a write, transactions of one";
pub const DUPLICATE_FLAT: &str = "in order: dtb, least by most over its caches";
pub const DUPLICATE_RANDOM: &str = "at random: all of dmdedup by raw";
pub const DUPLICATE_DTB: &str = "at random: dtb with 0.3 % by dtb with more";
pub const RATIO_512: &str = "ratio of the tar with borders of 512 bytes";
pub const RATIO_4096: &str = "ratio of the tar with borders of 4 KiB";
pub const INRAM_512: &str = "in order: inram by raw, tar-512";
pub const INRAM_4096: &str = "in order: inram by raw, tar-4096";
pub const CBT_BEFORE_DTB: &str = "at random: cbt by dtb, equal caches of 25–100 %";
pub const TRACES: &str = "replay of three traces by raw";
pub const EXTRACTION: &str = "40 trees on ext4: time without by time with dmdedup";
pub const NODEDUP: &str = "time without the hint by time with it, transactions of 1,000";
pub const NODEDUP_EACH: &str = "the same, transactions of one";
pub const PREFETCH: &str = "time without the hint by time with it, transactions of 1,000";
pub const PREFETCH_EACH: &str = "the same, transactions of one";
pub const PREFETCH_HALF: &str = "the same copy at a ratio of 2:1, transactions of 1,000";
pub const NODEDUP_TURNS: &str = "data and metadata in turns: transactions of 1,000";
pub const NODEDUP_EACH_TURNS: &str = "data and metadata in turns: transactions of one";
pub const PREFETCH_TURNS: &str = "data and metadata in turns: transactions of 1,000";
pub const PREFETCH_EACH_TURNS: &str = "data and metadata in turns: transactions of one";
pub const PREFETCH_HALF_TURNS: &str = "data and metadata in turns: transactions of 1,000";
/// The file server: hints for metadata by none, and in turns; for metadata and data by none, and in turns.
pub const FILES_EXT4: [&str; 4] = [
    "ext4: hint for metadata by none",
    "ext4: hint for metadata by none, in turns",
    "ext4: hint for all by none",
    "ext4: hint for all by none, in turns",
];
/// The same of the report's second file system.
pub const FILES_NILFS2: [&str; 4] = [
    "nilfs2, here btrfs: hint for metadata by none",
    "nilfs2, here btrfs: hint for metadata by none, in turns",
    "nilfs2, here btrfs: hint for all by none",
    "nilfs2, here btrfs: hint for all by none, in turns",
];

/// A trace of Table 4.1 (p. 26), in GB.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    pub name: &'static str,
    pub days: u32,
    pub written: f64,
    pub unique_by_content: f64,
    pub unique_by_offset: f64,
    pub read: f64,
    pub ratio: f64,
    pub block_bytes: u32,
    pub ranges: f64,
}

/// Table 4.1.
pub const TRACES_OF_TABLE: [Trace; 3] = [
    Trace {
        name: "Web",
        days: 21,
        written: 42.64,
        unique_by_content: 22.45,
        unique_by_offset: 0.95,
        read: 11.89,
        ratio: 2.33,
        block_bytes: 4096,
        ranges: 19.07,
    },
    Trace {
        name: "Mail",
        days: 20,
        written: 1483.41,
        unique_by_content: 110.39,
        unique_by_offset: 8.28,
        read: 188.94,
        ratio: 10.29,
        block_bytes: 4096,
        ranges: 278.87,
    },
    Trace {
        name: "Homes",
        days: 21,
        written: 65.27,
        unique_by_content: 16.83,
        unique_by_offset: 4.95,
        read: 15.46,
        ratio: 3.43,
        block_bytes: 512,
        ranges: 542.32,
    },
];

/// Table 4.2 (p. 28), in seconds.
pub const EXTRACTION_SECONDS: [(&str, f64); 5] = [
    ("ext4", 649.0),
    ("ext4 on dmdedup, 4 KB", 521.0),
    ("lessfs, BDB, 4 KB", 1825.0),
    ("lessfs, BDB, 128 KB", 1413.0),
    ("lessfs, HamsterDB without transactions, 128 KB", 814.0),
];
