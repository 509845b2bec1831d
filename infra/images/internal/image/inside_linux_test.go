package image_test

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fairlead/fairlead/infra/images/internal/image"
)

// inside runs the image's program in the root folder as the image's user, with only
// its environment.
func inside(t *testing.T, root string, img v1.Image, args ...string) (string, error) {
	t.Helper()
	c := must(img.ConfigFile())(t).Config
	cmd := exec.Command(filepath.Join(root, c.Entrypoint[0]), args...)
	cmd.Path = c.Entrypoint[0]
	cmd.Err = nil // exec looked for the program outside of root
	cmd.Dir, cmd.Env = c.WorkingDir, append([]string{"GOCOVERDIR=/tmp"}, c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: image.UID, Gid: image.GID}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
