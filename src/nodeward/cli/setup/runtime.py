"""`nodeward setup runtime`: changes the container runtime's settings for Nodeward, and changes them back."""

import click


@click.command("runtime")
@click.option(
    "--runtime", "chosen", type=click.Choice(["containerd", "crio"]), help="Which one.  [default: that is here]"
)
@click.option("--undo", is_flag=True, help="Put back what this command has changed.")
@click.option("--dry-run", is_flag=True, help="Show the change and make none.")
def command(chosen: str | None, undo: bool, dry_run: bool) -> None:
    """Switch NRI on in containerd or CRI-O, so that limits are there before a container's program begins.

    containerd's setting is changed in the file that decides (/etc/containerd/config.toml, or one that it imports), with
    a copy FILE.before-nodeward beside it. CRI-O gets a drop-in in /etc/crio/crio.conf.d. The runtime is not restarted:
    the last line says how. Kubelet needs no change; where the relay is wanted see `nodeward setup relay`.

    Exit code: 0 done, or nothing is to be done, 1 it cannot be done, and nothing was changed.

    \b
    Examples:
      nodeward setup runtime --dry-run     what would be changed
      nodeward setup runtime --runtime containerd
      nodeward setup runtime --undo
    """
    from nodeward.host.hostfs import OsFiles
    from nodeward.programs.once import runtime_nri as nri

    files = OsFiles()
    found = [chosen] if chosen else nri.there(files)
    if len(found) != 1:
        which = "both containerd and CRI-O have" if found else "neither containerd nor CRI-O has"
        raise click.ClickException(f"{which} settings here; name the runtime by --runtime")
    plans = {
        "containerd": (nri.prepare_containerd, nri.undo_containerd),
        "crio": (nri.prepare_crio, nri.undo_crio),
    }
    edits = plans[found[0]][undo](files)
    if not edits:
        print("nothing to put back" if undo else f"NRI is on in the settings of {found[0]} already")
        return
    for edit in edits:
        print(f"{edit.path}: a copy" if edit.path.endswith(nri.COPY) else edit.shown())
    if dry_run:
        print("nothing was changed; without --dry-run it is done")
        return
    nri.write(files, edits)
    print(f"done; now: systemctl restart {found[0]} (pods go on meanwhile)")
