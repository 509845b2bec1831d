package modefile

import (
	"io/fs"
	"os"
	"syscall"
)

// own changes the owner of the file to the folder's owner, if that is another user.
func own(f *os.File, folder fs.FileInfo) error {
	to, ok := folder.Sys().(*syscall.Stat_t)
	if !ok || int(to.Uid) == os.Geteuid() {
		return nil
	}
	return f.Chown(int(to.Uid), int(to.Gid))
}
