// cgroupsrs places a sandbox as Kata's runtime-rs does, with the library that runtime-rs uses for it.
//
// It answers each line of stdin, a request in JSON, with a line in JSON. Every request names a sandbox:
//   cgroups_path  the OCI cgroupsPath; null where runtime-rs finds no OCI spec
//   sandbox, only the sandbox's id, and sandbox_cgroup_only
// Operations:
//   paths   says where the sandbox and the overhead cgroup are; changes nothing
//   place   `shim`: this process joins, before it starts others; `vcpus`: threads of the VM, after its start
//           `read`: processes and threads whose /proc/ID/cgroup is the answer
//   delete  removes the cgroups, as at the sandbox's end
// It keeps a sandbox's managers until `delete`, as runtime-rs does; another process has to restore them.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Write};

use cgroups_rs::fs::{hierarchies, Cgroup};
use cgroups_rs::manager::is_systemd_cgroup;
use cgroups_rs::systemd::utils::expand_slice;
use cgroups_rs::{FsManager, Manager, SystemdManager};
use serde_json::{json, Map, Value};

type Outcome<T> = Result<T, Box<dyn Error>>;
type Placer = Box<dyn Manager>;
type Kept = HashMap<Sandbox, (Placer, Option<Placer>)>;

/// The paths that runtime-rs hands to the library for one sandbox.
#[derive(PartialEq, Eq, Hash)]
struct Sandbox {
    path: String,
    overhead: Option<String>,
}

impl Sandbox {
    fn of(request: &Value) -> Outcome<Sandbox> {
        let id = request["sandbox"].as_str().ok_or("sandbox: not a text")?;
        let only = request["only"].as_bool().ok_or("only: neither true nor false")?;
        let path = match &request["cgroups_path"] {
            Value::Null => format!("kata_sandboxed_pod/{id}"),
            Value::String(path) => path.trim_start_matches('/').to_string(),
            other => return Err(format!("cgroups_path: neither a text nor null: {other}").into()),
        };
        let before = if is_systemd_cgroup(&path) { "kata-overhead.slice:runtime-rs:" } else { "kata_overhead/" };
        let overhead = format!("{before}{id}");
        Ok(Sandbox { path, overhead: (!only).then_some(overhead) })
    }

    fn managers(&self) -> Outcome<(Placer, Option<Placer>)> {
        let systemd = is_systemd_cgroup(&self.path);
        let overhead = self.overhead.as_deref().map(|path| manager(path, systemd)).transpose()?;
        Ok((manager(&self.path, systemd)?, overhead))
    }
}

fn manager(path: &str, systemd: bool) -> Outcome<Placer> {
    if !systemd {
        return Ok(Box::new(FsManager::new(path)?));
    }
    let mut made = SystemdManager::new(path)?;
    made.set_term_timeout(300)?; // seconds; refused for a unit that is there, so there nothing can be restored
    Ok(Box::new(made))
}

/// The cgroup below the root of its hierarchy. On cgroup v1 a manager's own `cgroup_path` is that of the caller.
fn cgroup(path: &str, systemd: bool) -> Outcome<String> {
    if !systemd {
        return Ok(format!("/{}", Cgroup::load(hierarchies::auto(), path).path()));
    }
    let made = SystemdManager::new(path)?;
    Ok(format!("/{}/{}", expand_slice(made.slice())?, made.unit()))
}

fn paths(sandbox: &Sandbox) -> Outcome<Value> {
    let systemd = is_systemd_cgroup(&sandbox.path);
    let overhead = sandbox.overhead.as_deref().map(|path| cgroup(path, systemd)).transpose()?;
    Ok(json!({"systemd": systemd, "sandbox": cgroup(&sandbox.path, systemd)?, "overhead": overhead}))
}

fn place(inner: &mut Placer, overhead: &mut Option<Placer>, request: &Value) -> Outcome<Value> {
    if let Some(shim) = request["shim"].as_u64() {
        join(overhead.as_mut().unwrap_or(inner), shim)?;
        if overhead.is_none() && inner.v2() {
            fs::write(format!("{}/cgroup.procs", inner.cgroup_path(None)?), shim.to_string())?;
        }
    }
    if !request["vcpus"].is_null() && overhead.is_some() {
        let vcpus = ids(&request["vcpus"])?;
        let first = *vcpus.first().ok_or("vcpus: none, so runtime-rs cannot move the hypervisor")?;
        if inner.systemd() || inner.v2() {
            inner.add_proc(thread_group(first)?.into())?;
        } else {
            vcpus.iter().try_for_each(|id| inner.add_thread((*id).into()))?;
        }
    }
    let read = |id: u64| Ok((id.to_string(), fs::read_to_string(format!("/proc/{id}/cgroup"))?.into()));
    ids(&request["read"])?.into_iter().map(read).collect::<Outcome<Map<_, _>>>().map(Value::Object)
}

/// systemd may make the cgroup at the same time, so one failure because it is there is not the end.
fn join(manager: &mut Placer, id: u64) -> Outcome<()> {
    let joined = manager.add_proc(id.into());
    let mut cause = joined.as_ref().err().and_then(|error| error.source());
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            return Ok(manager.add_proc(id.into())?);
        }
        cause = error.source();
    }
    Ok(joined?)
}

fn ids(value: &Value) -> Outcome<Vec<u64>> {
    let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(all.iter().map(Value::as_u64).collect::<Option<_>>().ok_or("an id is not a number")?)
}

fn thread_group(id: u64) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:")).ok_or("no Tgid in the status")?;
    Ok(line.trim().parse()?)
}

fn answer(line: &str, kept: &mut Kept) -> Outcome<Value> {
    let request: Value = serde_json::from_str(line)?;
    let sandbox = Sandbox::of(&request)?;
    if request["op"] == "paths" {
        return paths(&sandbox);
    }
    let (mut inner, mut overhead) = kept.remove(&sandbox).map_or_else(|| sandbox.managers(), Ok)?;
    if request["op"] == "delete" {
        inner.destroy()?;
        overhead.map_or(Ok(()), |mut overhead| overhead.destroy())?;
        return Ok(Value::Null);
    }
    let placed = place(&mut inner, &mut overhead, &request);
    kept.insert(sandbox, (inner, overhead));
    placed
}

fn main() -> io::Result<()> {
    let mut kept = Kept::new();
    for line in io::stdin().lock().lines() {
        let said = answer(&line?, &mut kept).map(|value| json!({"error": "", "value": value}));
        let said = said.unwrap_or_else(|error| json!({"error": error.to_string()}));
        writeln!(io::stdout(), "{said}")?;
    }
    Ok(())
}
