package image_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fairlead/fairlead/infra/images/internal/image"
)

// makeDevices makes the devices that the programs need.
func makeDevices(t *testing.T, root string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	const memory = 1 << 8 // the major number
	for name, minor := range map[string]int{"null": 3, "urandom": 9} {
		file := filepath.Join(root, "dev", name)
		if err := syscall.Mknod(file, syscall.S_IFCHR, memory|minor); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// inside runs a program in the root folder as the image's user, with only the image's
// environment.
func inside(t *testing.T, root string, img v1.Image, program string, args ...string) (string, error) {
	t.Helper()
	c := must(img.ConfigFile())(t).Config
	cmd := exec.Command(filepath.Join(root, program), args...)
	cmd.Path = program
	cmd.Err = nil // exec looked for the program outside of root
	cmd.Dir, cmd.Env = c.WorkingDir, append([]string{"GOCOVERDIR=/tmp"}, c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: image.UID, Gid: image.GID}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
