package modefile

import (
	"io/fs"
	"os"
	"syscall"
)

// own gives the file to the folder's owner, where that is somebody else.
func own(f *os.File, folder fs.FileInfo) error {
	to, ok := folder.Sys().(*syscall.Stat_t)
	if !ok || int(to.Uid) == os.Geteuid() {
		return nil
	}
	return f.Chown(int(to.Uid), int(to.Gid))
}
