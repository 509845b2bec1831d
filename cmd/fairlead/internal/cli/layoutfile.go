package cli

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// archiveEnding ends the names of files that hold an image layout of OCI.
const archiveEnding = ".tar"

// The limits of a file with a layout.
const (
	maxLayoutFiles = 200_000
	maxLayoutIndex = 16 << 20 // bytes of a file that is not a blob
)

// layoutName matches the files of a layout that this program reads.
var layoutName = pattern.New(`^(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})$`)

// packLayout writes the files of a layout into one file: the same bytes for the same layout. It reads them while it writes.
func packLayout(dir, file string) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	w := tar.NewWriter(out)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !layoutName.MatchString(name) {
			return err
		}
		return packFile(w, filepath.Join(dir, filepath.FromSlash(name)), name)
	})
	if err = errors.Join(err, w.Close(), out.Sync(), out.Close()); err != nil {
		return errors.Join(fmt.Errorf("write the bundle: %w", err), os.Remove(file))
	}
	return nil
}

func packFile(w *tar.Writer, file, name string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size(), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}

// withLayout calls run with the absolute path of a layout: the folder itself, or a new one with the files of a packed layout.
func withLayout(name string, run func(dir string) error) error {
	info, err := os.Stat(name)
	if err != nil {
		return usage("'fairlead app bundle --out' writes a bundle.", "%v", err)
	}
	if info.IsDir() {
		dir, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		return run(dir)
	}
	dir, err := os.MkdirTemp("", "fairlead-bundle-")
	if err != nil {
		return fmt.Errorf("make a folder for the bundle: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := unpackLayout(name, dir); err != nil {
		return usage("Export the bundle again with 'fairlead app bundle --out'.", "%s cannot be read: %v", name, err)
	}
	return run(dir)
}

// unpackLayout writes the files of a packed layout into a folder. It takes no other file, and no link.
func unpackLayout(file, dir string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r := tar.NewReader(in)
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return errors.New("it is empty")
			}
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(h.Name, "./")
		switch {
		case h.Typeflag == tar.TypeDir:
			continue
		case n >= maxLayoutFiles:
			return fmt.Errorf("it has more than %d files", maxLayoutFiles)
		case h.Typeflag != tar.TypeReg || !layoutName.MatchString(name):
			return fmt.Errorf("%.200q is no file of an image layout of OCI", h.Name)
		case path.Dir(name) == "." && h.Size > maxLayoutIndex:
			return fmt.Errorf("%s has more than %d bytes", name, maxLayoutIndex)
		}
		if err := unpackFile(root, name, r); err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Close())
}
