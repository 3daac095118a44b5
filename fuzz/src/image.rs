//! A whole store as files in RAM, of which some are replaced: for the decoders that only an opened store reaches.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_io::{Dir, MemDir};

/// Every file by its path.
#[derive(Clone, Default)]
pub struct Image(BTreeMap<String, Vec<u8>>);

impl Image {
    /// All that `dir` holds.
    pub fn of(dir: &dyn Dir) -> Self {
        let mut image = Self::default();
        image.add(dir, "");
        image
    }

    fn add(&mut self, dir: &dyn Dir, above: &str) {
        for entry in dir.list().expect("a folder in RAM") {
            let path = format!("{above}{}", entry.name);
            if entry.is_dir {
                let sub = dir.open_subdir(&entry.name).expect("it was listed");
                self.add(&*sub, &format!("{path}/"));
            } else {
                let disk = dir.open(&entry.name).expect("it was listed");
                let mut bytes = vec![0; disk.len().expect("in RAM") as usize];
                disk.read_at(&mut bytes, 0).expect("it is so long");
                self.0.insert(path, bytes);
            }
        }
    }

    /// The files whose path begins so.
    pub fn files(&self, begin: &str) -> Vec<(String, Vec<u8>)> {
        let all = self.0.iter();
        all.filter(|(path, _)| path.starts_with(begin))
            .map(|(path, bytes)| (path.clone(), bytes.clone()))
            .collect()
    }

    /// The store without this file.
    pub fn without(&self, path: &str) -> Self {
        let mut image = self.clone();
        image.0.remove(path);
        image
    }

    /// The store with `bytes` under `path`.
    pub fn with(&self, path: &str, bytes: &[u8]) -> Arc<MemDir> {
        self.with_all(&[(path, bytes)])
    }

    /// The store with these bytes under these paths, in place of what is there.
    pub fn with_all(&self, changed: &[(&str, &[u8])]) -> Arc<MemDir> {
        let root = Arc::new(MemDir::new());
        let unchanged = |path: &&String| changed.iter().all(|(other, _)| other != path);
        let unchanged = self.0.keys().filter(unchanged);
        let unchanged = unchanged.map(|path| (&path[..], &self.0[path][..]));
        for (path, content) in unchanged.chain(changed.iter().copied()) {
            let mut dir: Arc<dyn Dir> = root.clone();
            let mut parts: Vec<&str> = path.split('/').collect();
            let name = parts.pop().unwrap_or_default();
            for part in parts {
                dir = dir.subdir(part).expect("RAM");
            }
            let disk = dir.create(name).expect("RAM");
            disk.write_at(content, 0).expect("RAM");
        }
        root
    }
}
