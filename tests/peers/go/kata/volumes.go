package main

import (
	_ "unsafe" // go:linkname

	volume "github.com/kata-containers/kata-containers/src/runtime/pkg/direct-volume"
)

// directVolumes is the folder of Kata's direct volumes. The library offers no way to name another one.
//
//go:linkname directVolumes github.com/kata-containers/kata-containers/src/runtime/pkg/direct-volume.kataDirectVolumeRootPath
var directVolumes string

// volumeAsked is one call of the library.
type volumeAsked struct {
	Call    string `json:"call"` // add, read, record, sandbox or remove
	Path    string `json:"path"`
	Info    string `json:"info"`
	Sandbox string `json:"sandbox"`
}

// volumeSaid is what it returns.
type volumeSaid struct {
	Info    *volume.MountInfo `json:"info"`
	Sandbox string            `json:"sandbox"`
	Error   string            `json:"error"`
}

func (asked volumeAsked) answer() (said volumeSaid) {
	var err error
	switch asked.Call {
	case "add":
		err = volume.Add(asked.Path, asked.Info)
	case "read":
		said.Info, err = volume.VolumeMountInfo(asked.Path)
	case "record":
		err = volume.RecordSandboxId(asked.Sandbox, asked.Path)
	case "sandbox":
		said.Sandbox, err = volume.GetSandboxIdForVolume(asked.Path)
	case "remove":
		err = volume.Remove(asked.Path)
	}
	if err != nil {
		said.Error = err.Error()
	}
	return said
}

// volumes answers calls about the direct volumes in that folder.
func volumes(folder string) error {
	directVolumes = folder
	return each(volumeAsked.answer)
}
