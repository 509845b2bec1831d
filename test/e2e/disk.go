//go:build linux

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Disk is a small file system for one test.
type Disk struct {
	Path string
	t    testing.TB
}

// NewDisk mounts a disk of the size, in bytes, until the test ends. NewDisk skips the test
// if the user may not mount.
func NewDisk(t testing.TB, size int64, readOnly bool) *Disk {
	t.Helper()
	d := &Disk{Path: filepath.Join(t.TempDir(), "disk"), t: t}
	if err := os.Mkdir(d.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Mount(d.Path, size, readOnly); err != nil {
		t.Skipf("DISK FAULTS NOT TESTED: this user may not mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.Path, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.Path, err)
		}
	})
	return d
}

// Mount mounts a small file system of the size, in bytes, at the path.
func Mount(path string, size int64, readOnly bool) error {
	var flags uintptr
	if readOnly {
		flags = syscall.MS_RDONLY
	}
	return syscall.Mount("fairlead-test", path, "tmpfs", flags, "mode=0700,size="+strconv.FormatInt(size, 10))
}

// Fill uses all free space.
func (d *Disk) Fill() {
	d.t.Helper()
	if err := FillUp(d.filler()); err != nil {
		d.t.Fatal(err)
	}
}

// FillUp extends the file until its disk has no free space.
func FillUp(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		block := make([]byte, size)
		for {
			if _, err = f.Write(block); err != nil {
				break
			}
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return nil
}

// Free releases the space that Fill used.
func (d *Disk) Free() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Disk) filler() string { return filepath.Join(d.Path, "filler") }
